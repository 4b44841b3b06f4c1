"""Tiles of the masked score matrix of some heads, computed into one buffer."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from attnsym._blocks import Problem, mask_part, row_part
from attnsym._scores import cap_in_place, times_scale
from attnsym._validate import Array
from attnsym.masks import as_bias

_EDGES_KEPT, _BIASES_KEPT = 256, 4
_LOWEST, _LOWEST_POWER = -86.0, -126.0  # eˣ and 2ˣ take a slow path from just below
_ALIGNED = 16  # an edge that starts on a cache line is added several times faster


class ScoreTiles:
    """
    One thread's source of score tiles.

    Attributes
    ----------
    largest_scale : float
        The largest size of a factor on the scores of the loaded heads.
    bounded : bool
        Whether Cauchy-Schwarz bounds every score of the loaded heads: not where a floating mask is added.
    """

    def __init__(self, problem: Problem, elements: int) -> None:
        self.problem = problem
        self.dtype = problem.query.matrices.dtype
        self.least, self.most = float(np.finfo(self.dtype).tiny), float(np.finfo(self.dtype).max)
        self.buffer = np.empty(elements, self.dtype)
        self.loaded_key = np.empty((0, 0, 0), self.dtype)
        self.edges: dict[tuple[int, int, int, int], list[tuple[slice, Array, Array]]] = {}
        self.biases: dict[tuple[int, bytes, bytes], tuple[Array, Array]] = {}

    def load(self, heads: slice, *, fold: bool = False, unit: float = 1.0) -> None:
        """Take up the keys and masks of these heads; with `fold`, a common scale and `unit` go to the keys at once."""
        key = self.problem.key[heads]
        given = self.problem.scale
        scale = given if isinstance(given, float) else given[heads]
        self.largest_scale = float(np.max(np.abs(scale), initial=0))
        factor = scale * unit
        n_heads, n_keys, d_k = key.shape
        if self.loaded_key.shape != (n_heads, d_k + 1, n_keys):
            self.loaded_key = np.ones((n_heads, d_k + 1, n_keys), self.dtype)  # contiguous: BLAS packs it fastest
        transposed = self.loaded_key[:, :d_k]
        if fold and isinstance(factor, float) and self.least <= abs(factor) <= self.most:
            np.multiply(key.swapaxes(-1, -2), self.dtype.type(factor), out=transposed)
            factor = 1.0
        else:
            transposed[...] = key.swapaxes(-1, -2)
        self.loaded_factor = factor
        self.loaded_mask = None if self.problem.mask is None else self.problem.mask[heads]
        self.bounded = self.problem.mask is None or self.problem.mask.matrices.dtype.kind == "b"
        self.take(slice(None))

    def take(self, part: slice) -> None:
        """Turn to some of the loaded heads."""
        self.extended_key = self.loaded_key[part]
        self.factor = self.loaded_factor if isinstance(self.loaded_factor, float) else self.loaded_factor[part]
        self.mask = None if self.loaded_mask is None else self.loaded_mask[part]

    def scaled(self, x: Array, rows: slice, unit: float = 1.0) -> Array:
        """Return vectors, one for each query of `rows`, times `unit` and what of the scale the keys do not hold."""
        if isinstance(self.factor, float):
            factor = self.factor * unit
            return x if factor == 1 else times_scale(x, factor)
        return times_scale(x, unit * row_part(self.factor, rows))

    def tile(self, scaled_query: Array, rows: slice, columns: slice, *, hide: bool = True) -> Array:
        """
        Return the scores of the queries `rows` and the keys `columns`: a view of the buffer.

        They are masked; what causality and window hide only if `hide`, else see `keep_visible`. A component beyond d_k
        is added to every score of its query.
        """
        n_heads, n_rows, width = scaled_query.shape
        n_columns = columns.stop - columns.start
        scores = self.buffer[: n_heads * n_rows * n_columns].reshape(n_heads, n_rows, n_columns)
        np.matmul(scaled_query, self.extended_key[:, :width, columns], out=scores)
        softcap = self.problem.settings.softcap
        if softcap is not None:
            cap_in_place(scores, softcap)
        if self.mask is not None:
            scores += as_bias(mask_part(self.mask, rows, columns), self.dtype)
        if hide:
            self._hide(scores, rows, columns)
        return scores

    def largest(self, scaled_query: Array, columns: slice) -> Array:
        """Return the largest score of each query with these few keys, soft-cap and mask aside."""
        d_k = scaled_query.shape[-1]
        scores = self.extended_key[:, :d_k, columns].swapaxes(-1, -2) @ scaled_query.swapaxes(-1, -2)
        return np.asarray(scores.max(axis=-2)[..., None])  # across rows, which NumPy does several times faster

    def lift(self, scores: Array, rows: slice, columns: slice) -> None:
        """
        Raise shifted scores of this tile to −86 where exponentials below the normal numbers would be slow.

        A visible key's weight below 4.5e-38, of a sum of at least 1, becomes 4.5e-38; what is hidden is hidden again.
        """
        if self.mask is None and self.dtype == np.float32 and not exponentials_are_wide():
            self.raise_to(scores, _LOWEST)
            self._hide(scores, rows, columns)

    def exponentiate(self, scores: Array, rows: slice, columns: slice, *, powers: bool, lift: bool) -> None:
        """
        Overwrite finite scores by eˢ, or by 2ˢ for `powers`, and what causality and window hide by 0.

        With `lift`, exponentials below the normal numbers, where they would be slow, become the least normal one.
        """
        if lift and self.dtype == np.float32 and (powers or not exponentials_are_wide()):
            self.raise_to(scores, _LOWEST_POWER if powers else _LOWEST)
        (np.exp2 if powers else np.exp)(scores, out=scores)
        for part, _, kept in self._edges(rows, columns):
            edge = scores[..., part]
            edge *= kept

    def raise_to(self, scores: Array, lowest: float) -> None:
        """Raise what is below `lowest` to it; by a full array, since NumPy takes four times as long for a scalar."""
        np.maximum(scores, _floor(self.buffer.size, lowest)[: scores.size].reshape(scores.shape), out=scores)

    def _hide(self, scores: Array, rows: slice, columns: slice) -> None:
        """Set to −inf what causality and window hide; only the columns that some row does not see are touched."""
        for part, bias, _ in self._edges(rows, columns):
            edge = scores[..., part]
            edge += bias

    def _edges(self, rows: slice, columns: slice) -> list[tuple[slice, Array, Array]]:
        tile = (rows.start, rows.stop, columns.start, columns.stop)
        if tile not in self.edges:
            if len(self.edges) >= _EDGES_KEPT:
                self.edges.clear()
            self.edges[tile] = self._find_edges(rows, columns)
        return self.edges[tile]

    def _find_edges(self, rows: slice, columns: slice) -> list[tuple[slice, Array, Array]]:
        first, end = self.problem.first[rows], self.problem.end[rows]
        seen_by_all = slice(int(first.max()), int(end.min()) // _ALIGNED * _ALIGNED)
        edges = [columns]
        if seen_by_all.start < seen_by_all.stop:
            left = slice(columns.start, min(columns.stop, seen_by_all.start))
            edges = [left, slice(max(columns.start, seen_by_all.stop), columns.stop)]
        return [
            (
                slice(edge.start - columns.start, edge.stop - columns.start),
                *self._bias(first - edge.start, end - edge.start, edge.stop - edge.start),
            )
            for edge in edges
            if edge.start < edge.stop
        ]

    def _bias(self, first: npt.NDArray[np.int64], end: npt.NDArray[np.int64], width: int) -> tuple[Array, Array]:
        """
        Return 0 where first ≤ column < end and −inf elsewhere, to add; and 1 and 0, to multiply by.

        The tiles along a diagonal share these arrays.
        """
        first, end = np.maximum(first, 0), np.minimum(end, width)
        name = (width, first.tobytes(), end.tobytes())
        if name not in self.biases:
            if len(self.biases) >= _BIASES_KEPT:
                self.biases.clear()
            keys = np.arange(width)
            seen = (keys >= first[:, None]) & (keys < end[:, None])
            self.biases[name] = as_bias(seen, self.dtype), seen.astype(self.dtype)
        return self.biases[name]


@functools.lru_cache(maxsize=4)
def _floor(elements: int, lowest: float) -> Array:
    return np.full(elements, lowest, np.float32)


@functools.cache
def exponentials_are_wide() -> bool:
    """
    Return whether NumPy computes eˣ and 2ˣ of float32 by AVX-512.

    Then 2ˣ takes half the time of eˣ, and eˣ no longer for subnormal results; without, 2ˣ takes twice that time, and
    eˣ 2.7 times as long for those.
    """
    try:
        from numpy.lib.introspect import opt_func_info

        chosen = opt_func_info(func_name="^exp2?$", signature="float32")
        return all(chosen[name]["ff"]["current"].startswith(("X86_V4", "AVX512")) for name in ("exp", "exp2"))
    except (ImportError, KeyError):
        return False
