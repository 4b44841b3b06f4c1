"""Shards: the unit of work, of storage and of randomness. Computed anywhere, merged in the order of their numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from analysis.measure.estimate.accumulators import Moments, OrderStatistics, Sample
from analysis.measure.run.executors import in_flight
from analysis.measure.run.seeds import shard_sequence
from attnsym._threads import one_blas_thread

if TYPE_CHECKING:
    from analysis.measure.run.store import Store

_ATTEMPTS = 5


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

    def draw(self, sequence: np.random.SeedSequence, replicates: int) -> NDArray[np.float64]:
        """Return that many independent values."""


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
    number: int
    size: int
    seed: int
    keep_values: bool


def run_shard(shard: Shard) -> ShardResult:
    """Draw one shard; the function that workers run."""
    with one_blas_thread():
        values = shard.cell.draw(shard_sequence(shard.seed, shard.cell.digest, shard.number), shard.size)
    return ShardResult(Moments.of(values), values if shard.keep_values else None)


def shards_of(cell: Drawable, replicates: int, *, seed: int, keep_values: bool) -> Iterator[Shard]:
    """Yield the shards that make up that many replicates of a cell; only the last may be short."""
    for number, done in enumerate(range(0, replicates, cell.shard)):
        yield Shard(cell, number, min(cell.shard, replicates - done), seed, keep_values)


def run_cells(
    work: Sequence[tuple[Drawable, int]],
    *,
    seed: int,
    keep_values: bool,
    executor: Executor,
    store: Store | None,
    advance: Callable[[int], None],
) -> Generator[Sample]:
    """Yield the sample of each (cell, replicates) in order; `advance` hears of every shard's replicates."""
    stream = (shard for cell, count in work for shard in shards_of(cell, count, seed=seed, keep_values=keep_values))
    results = _in_order(stream, executor, store, advance)
    with one_blas_thread(), closing(results):
        for cell, count in work:
            sample: Sample | None = None
            for _ in range(-(-count // cell.shard)):
                part = next(results).sample()
                sample = part if sample is None else sample.merge(part)
            assert sample is not None
            yield sample


def _in_order(
    shards: Iterator[Shard], executor: Executor, store: Store | None, advance: Callable[[int], None]
) -> Generator[ShardResult]:
    """Yield results in the order of `shards` while later ones are computed; each is stored as soon as it is seen."""
    waiting: deque[tuple[Shard, ShardResult | Future[ShardResult]]] = deque()
    window = in_flight(executor)
    try:
        while True:
            while len(waiting) < window and (shard := next(shards, None)) is not None:
                known = store and store.get(shard.cell.digest, shard.number, shard.size, with_values=shard.keep_values)
                waiting.append((shard, known or _submit(shard, executor)))
            if not waiting:
                return
            shard, pending = waiting.popleft()
            if isinstance(pending, ShardResult):
                result = pending
            else:
                result = _outcome(shard, pending, executor)
                if store:
                    store.put(shard.cell.digest, shard.number, shard.size, result)
            advance(shard.size)
            yield result
    finally:
        for shard, pending in waiting:
            if isinstance(pending, ShardResult) or pending.cancel() or not pending.done() or pending.exception():
                continue
            if store:  # finished although nobody came to ask: a resumed study will
                store.put(shard.cell.digest, shard.number, shard.size, pending.result())


def _submit(shard: Shard, executor: Executor) -> Future[ShardResult]:
    try:
        return executor.submit(run_shard, shard)
    except BrokenExecutor:
        raise _dead_worker(shard) from None


def _outcome(shard: Shard, future: Future[ShardResult], executor: Executor) -> ShardResult:
    for _ in range(_ATTEMPTS):
        try:
            return future.result()
        except CancelledError:  # a cluster lost the worker that held it
            future = _submit(shard, executor)
        except BrokenExecutor:
            break
        except Exception as error:
            if type(error).__name__ != "KilledWorker":  # dask's, for a task that several workers died of
                raise
            break
    raise _dead_worker(shard)


def _dead_worker(shard: Shard) -> OSError:
    return OSError(
        f"a worker process ended without an answer while it drew {shard.cell.name!r} at {shard.cell.where} "
        "(killed, or out of memory)"
    )
