"""Draw the replicates of a cell with the sampler that it names."""

from __future__ import annotations

from typing import Any

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
    rng = np.random.Generator(np.random.PCG64(sequence))
    chunk = ConditionalSampler(cell) if cell.sampler == "conditional" else DirectSampler(cell)
    chunks: list[NDArray[Any]] = []
    for size in sizes(replicates, cell.chunk):
        values = chunk(rng)[:size]
        if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            raise ValueError(f"{cell.name!r} is not a finite number in every replicate at {cell.where}")
        chunks.append(values.astype(np.float64))
    return np.concatenate(chunks)
