"""One shard: the unit of work, of storage and of randomness."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from analysis.measure.estimate.accumulators import Moments, OrderStatistics, Sample
from analysis.measure.run.seeds import shard_sequence
from attnsym._threads import one_blas_thread

# (cell, sequence, replicates) -> that many independent values; a function at the top of a module, which travels.
Draw = Callable[[Any, np.random.SeedSequence, int], NDArray[np.float64]]


class Drawable(Protocol):
    """What shards are drawn from: a cell of a study or of a claim."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def where(self) -> str:
        """Its settings in words."""

    @property
    def digest(self) -> str:
        """The name of its streams and of its rows in a store."""

    @property
    def shard(self) -> int:
        """Replicates of one shard; a property of the cell alone."""


@dataclass(frozen=True)
class ShardResult:
    """What a worker sends back: the moments, and the values where quantiles are asked for."""

    moments: Moments
    values: NDArray[np.float64] | None

    def sample(self) -> Sample:
        """Return it as an accumulator."""
        return Sample(self.moments, None if self.values is None else OrderStatistics.of(self.values))


@dataclass(frozen=True)
class Shard:
    """One unit of work: the first `size` replicates of the stream of a cell's shard."""

    cell: Drawable
    draw: Draw
    number: int
    size: int
    seed: int
    keep_values: bool


def run_shard(shard: Shard) -> ShardResult:
    """Draw one shard; the function that workers run. NumPy's error state is the caller's, and draws do not heed it."""
    with one_blas_thread(), np.errstate(all="ignore"):
        values = shard.draw(shard.cell, shard_sequence(shard.seed, shard.cell.digest, shard.number), shard.size)
        return ShardResult(Moments.of(values), values if shard.keep_values else None)


def run_sent(payload: bytes) -> ShardResult:
    """Unpack a shard and draw it; what cannot be unpacked here is said, where an executor might wait for ever."""
    try:
        shard: Shard = pickle.loads(payload)
    except Exception as error:
        raise ImportError(f"a worker cannot load what it is to measure: {error}") from None
    return run_shard(shard)


def shards_of(cell: Drawable, replicates: int, *, draw: Draw, seed: int, keep_values: bool) -> Iterator[Shard]:
    """Yield the shards that make up that many replicates of a cell; only the last may be short."""
    for number, done in enumerate(range(0, replicates, cell.shard)):
        yield Shard(cell, draw, number, min(cell.shard, replicates - done), seed, keep_values)
