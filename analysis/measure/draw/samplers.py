"""Draw the replicates of a cell with the sampler that it names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analysis.measure.draw.cell import StudyCell
from analysis.measure.draw.chunks import sizes
from analysis.measure.draw.conditional import ConditionalSampler
from analysis.measure.draw.direct import DirectSampler


def draw(cell: StudyCell, sequence: np.random.SeedSequence, replicates: int) -> NDArray[np.float64]:
    """
    Return that many independent values of the cell's quantity.

    Whole chunks are drawn and the last one is cut, so that n values are the first n of any larger number.
    """
    try:
        return np.concatenate(list(_chunks(cell, np.random.Generator(np.random.PCG64(sequence)), replicates)))
    except (TypeError, ValueError) as error:
        called = {"quantity": cell.quantity, "law": cell.laws, "score": cell.score}
        names = [argument for argument, part in called.items() if callable(part)]
        if not names or any(argument in str(error) for argument in names):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{' or '.join(names)}: {error}") from error
    except MemoryError as error:
        raise MemoryError(
            f"d_k and n_keys: {cell.chunk} replicates at {cell.where} need more memory: {error}"
        ) from None


def _chunks(cell: StudyCell, rng: np.random.Generator, replicates: int) -> Iterator[NDArray[np.float64]]:
    chunk = ConditionalSampler(cell) if cell.sampler == "conditional" else DirectSampler(cell)
    for size in sizes(replicates, cell.chunk):
        values = chunk(rng)[:size]
        if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            raise ValueError(f"{cell.name!r} is not a finite number in every replicate at {cell.where}")
        yield values.astype(np.float64)
