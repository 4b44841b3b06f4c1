"""Random queries and keys: independent components, linear mixtures with given correlations, or a caller's own law."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.measure.draw.cell import StudyCell

Array = NDArray[Any]
Generator = np.random.Generator


def common_part(alignment: float, key_correlation: float, n_keys: int) -> float:
    """
    Return √(1 − ρ + n(ρ − a²)), NaN where no such vectors exist.

    With e₁, …, eₙ independent and standardised and s = √(1 − ρ), kⱼ = a q + s eⱼ + (√(s² + n(ρ − a²)) − s) ē has
    variance 1, correlation a with q and ρ with the other keys. The root is real exactly where the correlation matrix
    of (q, k₁, …, kₙ) is positive semidefinite.
    """
    square = 1.0 - key_correlation + n_keys * (key_correlation - alignment**2)
    return math.sqrt(max(square, 0.0)) if square > -1e-12 else math.nan


class Vectors:
    """Draws query (replicates, n_queries, d_k) and key (replicates, n_keys, d_k) of a cell, a chunk at a time."""

    def __init__(self, cell: StudyCell) -> None:
        self.cell = cell
        assert not callable(cell.laws)
        self.query_law, self.key_law = cell.laws
        self.spread = math.sqrt(1.0 - cell.key_correlation)
        self.common = common_part(cell.alignment, cell.key_correlation, cell.keys_drawn) - self.spread

    def __call__(self, rng: Generator) -> tuple[Array, Array]:
        """Return the vectors of one chunk."""
        cell = self.cell
        query = self.query_law.sample(rng, (cell.chunk, cell.queries_drawn, cell.d_k), cell.dtype)
        key = self.key_law.sample(rng, (cell.chunk, cell.keys_drawn, cell.d_k), cell.dtype)
        return query, self._correlated(query, key) if cell.alignment or cell.key_correlation else key

    def _correlated(self, query: Array, key: Array) -> Array:
        real = key.dtype.type
        key_sd = real(math.sqrt(self.key_law.variance))
        noise = (key - real(self.key_law.mean)) / key_sd
        mixed = noise * real(self.spread) + noise.mean(axis=-2, keepdims=True) * real(self.common)
        if self.cell.alignment:
            slope = self.cell.alignment / math.sqrt(self.query_law.variance)
            mixed += (query - real(self.query_law.mean)) * real(slope)
        return np.asarray(mixed * key_sd + real(self.key_law.mean))


def called_law(cell: StudyCell, law: Callable[..., Any], rng: Generator) -> tuple[Array, Array]:
    """Return the vectors of one chunk of a callable law, which draws one replicate at a time."""
    dtype = cell.dtype
    queries = np.empty((cell.chunk, cell.queries_drawn, cell.d_k), dtype)
    keys = np.empty((cell.chunk, cell.keys_drawn, cell.d_k), dtype)
    for row in range(cell.chunk):
        query, key = _pair(cell, law(rng, cell.d_k, cell.keys_drawn))
        single = query[None, :] if query.ndim == 1 else query
        if single.shape != queries.shape[1:] or key.shape != keys.shape[1:]:
            raise ValueError(
                f"law {cell.law_name!r} must return query ({cell.queries_drawn}, {cell.d_k}) and key "
                f"({cell.keys_drawn}, {cell.d_k}): got {query.shape} and {key.shape}"
            )
        queries[row], keys[row] = single, key
    return queries, keys


def _pair(cell: StudyCell, drawn: Any) -> tuple[Array, Array]:
    """Read what a callable law returned."""
    try:
        query, key = drawn
    except (TypeError, ValueError):
        shape = f" of shape {drawn.shape}" if isinstance(drawn, np.ndarray) else ""
        raise ValueError(
            f"law {cell.law_name!r} must return a pair (query, key): got {type(drawn).__name__}{shape}"
        ) from None
    pair = np.asarray(query), np.asarray(key)
    if any(part.dtype.kind not in "fiub" for part in pair):
        raise ValueError(f"law {cell.law_name!r} must return real numbers: got {pair[0].dtype} and {pair[1].dtype}")
    return pair
