"""Attention that never holds the score matrix: tiles over queries and keys, with a running maximum and sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from attnsym._activations import activate
from attnsym._blocks import Problem
from attnsym._rows import row_max, row_sum
from attnsym._score_tiles import ScoreTiles
from attnsym._threads import for_each, useful_workers
from attnsym._validate import Array

# Scores of at most this size need no maximum subtracted: e³⁰ and sums of it are far inside float32.
_SAFE_SCORE = 30.0
# Values outside this range could overflow when weighted by e³⁰, or lose digits when weighted by e⁻³⁰.
_SAFE_VALUE = (2.0**-70, 2.0**60)

_QUERIES, _KEYS = 256, 512  # half a megabyte of float32: half of a usual L2 cache
_TOGETHER = 1 << 18  # scores of several short heads at once: fewer calls are worth a tile that leaves that cache
_RAGGED_QUERIES = (16, 128)
_SHORT = 1024  # with more keys, loading those of several heads at once gains nothing
_TASKS_PER_WORKER = 4


@dataclass(frozen=True)
class Tiles:
    """How many heads, queries and keys a tile holds."""

    heads: int
    queries: int
    keys: int


def choose_tiles(problem: Problem) -> Tiles:
    """Return tiles that stay in cache: a part of a long head, or of several short ones."""
    ragged = problem.end.size > 0 and bool(problem.end[0] < problem.end[-1])
    low, high = _RAGGED_QUERIES  # where queries differ in reach, low tiles waste less of it, and many cost more calls
    queries = min(problem.n_queries, max(low, min(high, problem.n_keys // 4)) if ragged else _QUERIES)
    keys = min(problem.n_keys, _KEYS)
    small = problem.n_keys <= _SHORT and queries * keys <= _QUERIES * _KEYS // 2
    together = _TOGETHER // (queries * keys) if small else 1
    return Tiles(max(1, min(problem.n_heads, together)), queries, keys)


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
    workers = useful_workers(problem.n_scores) if workers is None else workers
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
        self.scores = ScoreTiles(problem, tiles.heads * tiles.queries * tiles.keys)
        self.partial = np.empty(tiles.heads * tiles.queries * output.shape[-1], self.dtype)
        self.loaded: slice | None = None

    def run(self, heads: slice, queries: slice) -> None:
        """Fill the output of some heads and queries, tile by tile."""
        if self.loaded != heads:
            self._load(heads)
        query = self.problem.query[heads]
        for start in range(queries.start, queries.stop, self.tiles.queries):
            rows = slice(start, min(start + self.tiles.queries, queries.stop))
            if not self._attend(query[:, rows], heads, rows):
                self.output[heads, rows] = self.plain(heads, rows)

    def _load(self, heads: slice) -> None:
        self.scores.load(heads)
        self.value = self.problem.value[heads]
        self.offset = None if self.problem.offset is None else self.problem.offset[heads]
        self.largest_sink = -np.inf
        if self.offset is not None and self.problem.settings.normalizer == "softmax":
            self.largest_sink = float(self.offset.max())
        # of each component, between its largest size and n_keys times that: NaN or inf if one is not finite
        sizes = np.ones((1, self.value.shape[-2]), self.dtype) @ np.abs(self.value)
        self.value_fits = bool((sizes <= np.finfo(self.dtype).max / 4).all())
        low, high = _SAFE_VALUE
        self.value_safe = bool(((sizes == 0) | ((sizes >= low) & (sizes <= high))).all())
        self.loaded = heads

    def _attend(self, query: Array, heads: slice, rows: slice) -> bool:
        """Compute one query tile's output; False, with the output undefined, where something was not finite."""
        bound = self.scores.bound(query)
        if not (self.value_fits and bound < float(np.finfo(self.dtype).max) * 2.0**-26):
            return False
        scaled = self.scores.scaled(query, rows)
        bound = max(min(bound, self.problem.settings.softcap or np.inf), self.largest_sink)
        safe = self.value_safe and self.scores.bounded and bound <= _SAFE_SCORE
        output = self.output[heads, rows]
        running = output if output.dtype == self.dtype else np.empty(output.shape, self.dtype)
        if self.problem.settings.normalizer == "softmax":
            done = self._mix_shares(scaled, rows, safe, running)
        else:
            done = self._mix_activated(scaled, rows, running)
        if done and running is not output:
            output[...] = running
        return done

    def _mix_shares(self, scaled: Array, rows: slice, safe: bool, running: Array) -> bool:
        """Write the values mixed by softmax to `running`; False where something was not finite."""
        total, peak = self._start(running.shape[:2], safe)
        for scores, columns, is_first in self._tiles(scaled, rows, running):
            if not safe:
                so_far = (total, running)[: 2 if not is_first else self.offset is not None]
                peak = _shift(scores, peak, so_far)
                if self.value_safe:
                    self.scores.lift(scores, rows, columns)
            np.exp(scores, out=scores)
            total += row_sum(scores)
            self._add(scores, columns, is_first, running)
        if not np.isfinite(total).all():
            return False
        if not total.all():
            total[total == 0] = 1
        running /= total
        return True

    def _mix_activated(self, scaled: Array, rows: slice, running: Array) -> bool:
        """Write the values mixed by sigmoid or ReLU to `running`; False where something was not finite."""
        for scores, columns, is_first in self._tiles(scaled, rows, running):
            activate(scores, self.problem.settings.normalizer, self.offset, self.problem.n_keys)
            self._add(scores, columns, is_first, running)
        return bool(np.isfinite(running).all())

    def _start(self, shape: tuple[int, ...], safe: bool) -> tuple[Array, Array]:
        """Return the rows' sum of exponentials and their maximum before the first key: those of the sink alone."""
        sink = self.dtype.type(-np.inf) if self.offset is None else self.offset
        peak = np.zeros((*shape, 1), self.dtype) + sink
        return np.exp(peak) if safe else (peak > -np.inf).astype(self.dtype), peak

    def _tiles(self, scaled: Array, rows: slice, running: Array) -> Iterator[tuple[Array, slice, bool]]:
        """Yield the score tiles that some row sees, their keys, and whether it is the first; none: `running` is 0."""
        first, end = int(self.problem.first[rows].min()), int(self.problem.end[rows].max())
        for start in range(first, end, self.tiles.keys):
            columns = slice(start, min(start + self.tiles.keys, end))
            yield self.scores.tile(scaled, rows, columns), columns, start == first
        if first >= end:
            running[...] = 0

    def _add(self, weights: Array, columns: slice, is_first: bool, running: Array) -> None:
        if is_first:
            np.matmul(weights, self.value[:, columns], out=running)
        else:
            mixed = self.partial[: running.size].reshape(running.shape)
            running += np.matmul(weights, self.value[:, columns], out=mixed)


def _shift(scores: Array, peak: Array, summed: tuple[Array, ...]) -> Array:
    """Subtract the rows' running maximum from `scores`, and rescale what was summed under the maximum so far."""
    new_peak = np.maximum(peak, row_max(scores))
    subtracted = np.where(new_peak == -np.inf, peak.dtype.type(0), new_peak)
    scores -= subtracted
    for x in summed:
        x *= np.exp(peak - subtracted)
    return new_peak
