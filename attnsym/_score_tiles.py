"""Tiles of the masked score matrix of some heads, computed into one buffer."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from attnsym._blocks import Problem, mask_part, row_part
from attnsym._rows import row_sum
from attnsym._scores import cap_in_place, times_scale
from attnsym._validate import Array
from attnsym.masks import as_bias

_EDGES_KEPT, _BIASES_KEPT = 256, 4
_LOWEST = -86.0  # NumPy takes the slow path from just below it
_ALIGNED = 16  # an edge that starts on a cache line is added several times faster


class ScoreTiles:
    """
    One thread's source of score tiles.

    Attributes
    ----------
    longest_key : float
        The largest length of a key of the loaded heads; NaN if one is not finite.
    bounded : bool
        Whether Cauchy-Schwarz bounds every score of the loaded heads: not where a floating mask is added.
    """

    def __init__(self, problem: Problem, elements: int) -> None:
        self.problem = problem
        self.dtype = problem.query.matrices.dtype
        self.buffer = np.empty(elements, self.dtype)
        self.edges: dict[tuple[int, int, int, int], list[tuple[slice, Array]]] = {}
        self.biases: dict[tuple[int, bytes, bytes], Array] = {}

    def load(self, heads: slice) -> None:
        """Take up the keys and masks of these heads."""
        key = self.problem.key[heads]
        self.longest_key = longest(key)
        scale = self.problem.scale
        self.scale = scale if isinstance(scale, float) else scale[heads]
        self.largest_scale = float(np.max(np.abs(self.scale), initial=0))
        self.transposed_key = np.ascontiguousarray(key.swapaxes(-1, -2))  # BLAS packs it faster than a view
        self.mask = None if self.problem.mask is None else self.problem.mask[heads]
        self.bounded = self.mask is None or self.mask.dtype.kind == "b"

    def bound(self, query: Array) -> float:
        """Return what no score of these queries exceeds, soft-cap and mask aside; NaN or ∞ if one may not be finite."""
        reach = self.largest_scale * longest(query)
        return reach * self.longest_key if reach < float(np.finfo(self.dtype).max) else np.inf

    def scaled(self, x: Array, rows: slice) -> Array:
        """Return vectors, one for each query of `rows`, times the scale; `tile` wants the queries so."""
        return times_scale(x, self.scale if isinstance(self.scale, float) else row_part(self.scale, rows))

    def tile(self, scaled_query: Array, rows: slice, columns: slice) -> Array:
        """Return the masked scores of the queries `rows` and the keys `columns`: a view of the buffer."""
        n_heads, n_rows = scaled_query.shape[:2]
        n_columns = columns.stop - columns.start
        scores = self.buffer[: n_heads * n_rows * n_columns].reshape(n_heads, n_rows, n_columns)
        np.matmul(scaled_query, self.transposed_key[..., columns], out=scores)
        softcap = self.problem.settings.softcap
        if softcap is not None:
            cap_in_place(scores, softcap)
        if self.mask is not None:
            scores += as_bias(mask_part(self.mask, rows, columns), self.dtype)
        self._hide(scores, rows, columns)
        return scores

    def lift(self, scores: Array, rows: slice, columns: slice) -> None:
        """
        Raise shifted scores of this tile to −86 where exponentials below the normal numbers would be slow.

        A visible key's weight below 4.5e-38, of a sum of at least 1, becomes 4.5e-38; what is hidden is hidden again.
        """
        if self.mask is None and self.dtype == np.float32 and _exp_is_slow_on_subnormals():
            # a full array: NumPy takes four times as long for a scalar
            np.maximum(scores, _floor(self.buffer.size)[: scores.size].reshape(scores.shape), out=scores)
            self._hide(scores, rows, columns)

    def _hide(self, scores: Array, rows: slice, columns: slice) -> None:
        """Set to −inf what causality and window hide; only the columns that some row does not see are touched."""
        tile = (rows.start, rows.stop, columns.start, columns.stop)
        if tile not in self.edges:
            if len(self.edges) >= _EDGES_KEPT:
                self.edges.clear()
            self.edges[tile] = self._find_edges(rows, columns)
        for part, bias in self.edges[tile]:
            edge = scores[..., part]
            edge += bias

    def _find_edges(self, rows: slice, columns: slice) -> list[tuple[slice, Array]]:
        first, end = self.problem.first[rows], self.problem.end[rows]
        seen_by_all = slice(int(first.max()), int(end.min()) // _ALIGNED * _ALIGNED)
        edges = [columns]
        if seen_by_all.start < seen_by_all.stop:
            left = slice(columns.start, min(columns.stop, seen_by_all.start))
            edges = [left, slice(max(columns.start, seen_by_all.stop), columns.stop)]
        return [
            (
                slice(edge.start - columns.start, edge.stop - columns.start),
                self._bias(first - edge.start, end - edge.start, edge.stop - edge.start),
            )
            for edge in edges
            if edge.start < edge.stop
        ]

    def _bias(self, first: npt.NDArray[np.int64], end: npt.NDArray[np.int64], width: int) -> Array:
        """Return 0 where first ≤ column < end and −inf elsewhere; the tiles along a diagonal share one such array."""
        first, end = np.maximum(first, 0), np.minimum(end, width)
        name = (width, first.tobytes(), end.tobytes())
        if name not in self.biases:
            if len(self.biases) >= _BIASES_KEPT:
                self.biases.clear()
            keys = np.arange(width)
            self.biases[name] = as_bias((keys >= first[:, None]) & (keys < end[:, None]), self.dtype)
        return self.biases[name]


@functools.lru_cache(maxsize=2)
def _floor(elements: int) -> Array:
    return np.full(elements, _LOWEST, np.float32)


@functools.cache
def _exp_is_slow_on_subnormals() -> bool:
    """Return whether NumPy's exponential takes a slow path for subnormal results: 2.7 times as long without AVX-512."""
    try:
        from numpy.lib.introspect import opt_func_info

        chosen = opt_func_info(func_name="^exp$", signature="float32")["exp"]["ff"]["current"]
    except (ImportError, KeyError):
        return True
    return not chosen.startswith(("X86_V4", "AVX512"))


def longest(x: Array) -> float:
    """Return the largest Euclidean length of the vectors of the last axis; NaN or inf if one is not finite."""
    squares = row_sum(np.square(x))
    return float(np.sqrt(squares.max(initial=0)))
