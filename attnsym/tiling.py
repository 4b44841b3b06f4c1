"""Attention that never holds the score matrix: tiles over queries and keys, with a running maximum and sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attnsym._blocks import Problem, mask_part
from attnsym._scores import times_scale
from attnsym._threads import available_workers, for_each
from attnsym._validate import Array
from attnsym.masks import as_bias
from attnsym.softmax import row_max, row_sum

# Scores of at most this size need no maximum subtracted: e³⁰ and sums of it are far inside float32.
_SAFE_SCORE = 30.0
# Values outside this range could overflow when weighted by e³⁰, or lose digits when weighted by e⁻³⁰.
_SAFE_VALUE = (2.0**-70, 2.0**60)

_TILE_ELEMENTS = 1 << 17  # half a megabyte of float32: half of a usual L2 cache
_QUERIES, _CAUSAL_QUERIES, _KEYS = 256, 128, 512
_TASKS_PER_WORKER = 4


@dataclass(frozen=True)
class Tiles:
    """How many heads, queries and keys a tile holds."""

    heads: int
    queries: int
    keys: int


def choose_tiles(problem: Problem) -> Tiles:
    """Return tiles that stay in cache: several small heads, or a part of a large one."""
    ragged = problem.end.size > 0 and bool(problem.end[0] < problem.end[-1])
    queries = min(problem.n_queries, _CAUSAL_QUERIES if ragged else _QUERIES)
    keys = min(problem.n_keys, _KEYS)
    whole = queries == problem.n_queries and keys == problem.n_keys
    return Tiles(max(1, _TILE_ELEMENTS // (queries * keys)) if whole else 1, queries, keys)


def tiled_attention(
    problem: Problem,
    plain: Callable[[slice, slice], Array],
    *,
    tiles: Tiles | None = None,
    workers: int | None = None,
) -> Array:
    """
    Return the output (..., n_queries, d_v) of dot-product attention, equal to the plain path's up to rounding.

    Parameters
    ----------
    problem : Problem
        With at least one head, query and key.
    plain : callable
        (heads, queries) -> output of those by the plain path, to which a tile falls back when an input is not finite
        or so large that a tile might overflow.
    tiles : Tiles, optional
        Any sizes from 1; chosen by shape if None.
    workers : int, optional
        Number of threads; as many as BLAS would use if None.
    """
    tiles = choose_tiles(problem) if tiles is None else tiles
    workers = available_workers() if workers is None else workers
    output = np.empty((problem.n_heads, problem.n_queries, problem.value.matrices.shape[-1]), problem.output_dtype)
    blocks = _blocks(problem, tiles, workers)

    def new_worker() -> Callable[[int], None]:
        worker = _Worker(problem, tiles, output, plain)
        return lambda task: worker.run(*blocks[task])

    for_each(len(blocks), new_worker, workers)
    return output.reshape(*problem.lead, *output.shape[1:])


def _blocks(problem: Problem, tiles: Tiles, workers: int) -> list[tuple[slice, slice]]:
    """Return tasks, runs of query tiles of some heads: few enough to share a transposed key, enough for all workers."""
    groups = [slice(h, min(h + tiles.heads, problem.n_heads)) for h in range(0, problem.n_heads, tiles.heads)]
    query_tiles = -(-problem.n_queries // tiles.queries)
    parts = 1 if workers == 1 else min(query_tiles, -(-_TASKS_PER_WORKER * workers // len(groups)))
    step = -(-query_tiles // parts) * tiles.queries
    rows = [slice(a, min(a + step, problem.n_queries)) for a in range(0, problem.n_queries, step)]
    return [(group, part) for group in groups for part in reversed(rows)]  # under causality the last rows cost most


class _Worker:
    """One thread's buffers, and the tiles it computes with them."""

    def __init__(self, problem: Problem, tiles: Tiles, output: Array, plain: Callable[[slice, slice], Array]) -> None:
        self.problem, self.tiles, self.output, self.plain = problem, tiles, output, plain
        self.dtype = problem.query.matrices.dtype
        self.scores = np.empty(tiles.heads * tiles.queries * tiles.keys, self.dtype)
        self.partial = np.empty(tiles.heads * tiles.queries * output.shape[-1], self.dtype)
        self.loaded: slice | None = None
        self.triangles: dict[tuple[int, bytes, bytes], Array] = {}

    def run(self, heads: slice, queries: slice) -> None:
        """Fill the output of some heads and queries, tile by tile."""
        if self.loaded != heads:
            self._load_keys(heads)
        query = self.problem.query[heads]
        # Cauchy-Schwarz: no score is larger than the longest query times the longest key
        bound = abs(self.problem.settings.scale) * self.longest_key * _longest(query[:, queries])
        fits = bound < float(np.finfo(self.dtype).max) * 2.0**-26 and self.value_fits
        cap = self.problem.settings.softcap
        self.safe = self.value_safe and self.mask_is_bounded and min(bound, cap or np.inf) <= _SAFE_SCORE
        for start in range(queries.start, queries.stop, self.tiles.queries):
            rows = slice(start, min(start + self.tiles.queries, queries.stop))
            if not (fits and self._attend(query[:, rows], heads, rows)):
                self.output[heads, rows] = self.plain(heads, rows)

    def _load_keys(self, heads: slice) -> None:
        key, value = self.problem.key[heads], self.problem.value[heads]
        self.longest_key = _longest(key)
        self.transposed_key = np.ascontiguousarray(key.swapaxes(-1, -2))
        self.value = value
        self.mask = None if self.problem.mask is None else self.problem.mask[heads]
        self.mask_is_bounded = self.mask is None or self.mask.dtype.kind == "b"
        largest = np.maximum(value.max(axis=-2), -value.min(axis=-2))  # of each component: NaN if it has one
        self.value_fits = bool((largest <= np.finfo(self.dtype).max / (4 * value.shape[-2])).all())
        low, high = _SAFE_VALUE
        self.value_safe = bool(((largest == 0) | ((largest >= low) & (largest <= high))).all())
        self.loaded = heads

    def _attend(self, query: Array, heads: slice, rows: slice) -> bool:
        """Compute one query tile's output; False, with the output undefined, where a score was not finite."""
        scaled = times_scale(query, self.problem.settings.scale)
        n_heads, n_rows = query.shape[:2]
        mixed = self.partial[: n_heads * n_rows * self.value.shape[-1]].reshape(n_heads, n_rows, -1)
        output = self.output[heads, rows]
        direct = output.dtype == self.dtype
        total = np.zeros((n_heads, n_rows, 1), self.dtype)
        peak = np.full_like(total, -np.inf)
        running = output if direct else np.empty(output.shape, self.dtype)
        running[...] = 0
        first, end = int(self.problem.first[rows].min()), int(self.problem.end[rows].max())
        for start in range(first, end, self.tiles.keys):
            columns = slice(start, min(start + self.tiles.keys, end))
            scores = self._scores(scaled, rows, columns)
            if not self.safe:
                peak = _shift(scores, peak, total, running)
            np.exp(scores, out=scores)
            total += row_sum(scores)
            if start == first:
                np.matmul(scores, self.value[:, columns], out=running)
            else:
                running += np.matmul(scores, self.value[:, columns], out=mixed)
        if not np.isfinite(total).all():
            return False
        total[total == 0] = 1
        running /= total
        if not direct:
            output[...] = running
        return True

    def _scores(self, scaled_query: Array, rows: slice, columns: slice) -> Array:
        n_heads, n_rows = scaled_query.shape[:2]
        n_columns = columns.stop - columns.start
        scores = self.scores[: n_heads * n_rows * n_columns].reshape(n_heads, n_rows, n_columns)
        np.matmul(scaled_query, self.transposed_key[..., columns], out=scores)
        softcap = self.problem.settings.softcap
        if softcap is not None:
            np.divide(scores, softcap, out=scores)
            np.tanh(scores, out=scores)
            np.multiply(scores, softcap, out=scores)
        if self.mask is not None:
            scores += as_bias(mask_part(self.mask, rows, columns), self.dtype)
        self._hide(scores, rows, columns)
        return scores

    def _hide(self, scores: Array, rows: slice, columns: slice) -> None:
        """Set to −inf what causality and window hide; only the columns that some row does not see are touched."""
        first, end = self.problem.first[rows], self.problem.end[rows]
        seen_by_all = slice(int(first.max()), int(end.min()))
        if seen_by_all.start >= seen_by_all.stop:
            edges = [columns]
        else:
            left = slice(columns.start, min(columns.stop, seen_by_all.start))
            edges = [left, slice(max(columns.start, seen_by_all.stop), columns.stop)]
        for edge in edges:
            if edge.start < edge.stop:
                part = slice(edge.start - columns.start, edge.stop - columns.start)
                scores[..., part] += self._triangle(first - edge.start, end - edge.start, edge.stop - edge.start)

    def _triangle(self, first: npt.NDArray[np.int64], end: npt.NDArray[np.int64], width: int) -> Array:
        first, end = np.clip(first, 0, width), np.clip(end, 0, width)
        name = (width, first.tobytes(), end.tobytes())
        if name not in self.triangles:
            if len(self.triangles) >= 4:
                self.triangles.clear()
            keys = np.arange(width)
            self.triangles[name] = as_bias((keys >= first[:, None]) & (keys < end[:, None]), self.dtype)
        return self.triangles[name]


def _shift(scores: Array, peak: Array, total: Array, running: Array) -> Array:
    """Subtract the rows' running maximum from `scores`, and rescale what was summed under the maximum so far."""
    new_peak = np.maximum(peak, row_max(scores))
    subtracted = np.where(new_peak == -np.inf, peak.dtype.type(0), new_peak)
    scores -= subtracted
    rescale = np.exp(peak - subtracted)
    total *= rescale
    running *= rescale
    return new_peak


def _longest(x: Array) -> float:
    squares = np.einsum("...i,...i->...", x, x)
    return float(np.sqrt(squares.max(initial=0)))
