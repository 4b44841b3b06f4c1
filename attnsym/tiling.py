"""Attention that never holds the score matrix: tiles over queries and keys, with a running maximum and sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from attnsym._activations import activate
from attnsym._blocks import Problem
from attnsym._rows import row_max, row_sum
from attnsym._score_tiles import ScoreTiles, exponentials_are_wide
from attnsym._sizes import measure
from attnsym._threads import for_each, useful_workers
from attnsym._validate import Array

# Scores of at most this size need no maximum subtracted: e³⁰ and sums of it are far inside float32.
_SAFE_SCORE = 30.0
# Values in this range neither overflow when weighted by e³⁰ nor lose digits when weighted by e⁻³⁰.
_SAFE_VALUE = (2.0**-70, 2.0**60)
# The maximum of a row is guessed from so many keys, where at least so many are seen by all rows of a tile; the shift
# lies so far above it, and with values in that range the exponentials may add up to this.
_MOST_SAMPLED, _FEWEST_SAMPLED = 64, 16
_MARGIN, _GUESS_VALUE, _MOST_SUM = 30.0, (2.0**-40, 2.0**40), 2.0**80

_QUERIES, _KEYS = 512, 512  # a megabyte of float32: where that leaves a cache, fewer calls still outweigh it
_TOGETHER = 1 << 17  # scores of several short heads at once; where queries differ in reach, twice as many
_RAGGED_QUERIES = (16, 128)
_SHORT = 1024  # with more keys, loading those of several heads at once gains nothing
_LOADED = 1 << 17  # components of keys that are made ready at once
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
    small = problem.n_keys <= _SHORT and queries * keys <= _QUERIES * _KEYS // 4
    together = (_TOGETHER << ragged) // (queries * keys) if small else 1
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
    """
    Return tasks, runs of query tiles of some heads: few enough to share transposed keys, enough for all workers.

    Which heads go together depends on the shape alone, so that the number of workers changes no number.
    """
    together = max(1, _LOADED // max(1, problem.key.matrices[0].size * tiles.heads)) * tiles.heads
    groups = [slice(h, min(h + together, problem.n_heads)) for h in range(0, problem.n_heads, together)]
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
        one_tile = tiles.keys >= problem.n_keys  # memory not asked for is not fetched page by page either
        self.partial = np.empty(0 if one_tile else tiles.heads * tiles.queries * output.shape[-1], self.dtype)
        self.loaded: slice | None = None
        settings = problem.settings
        self.unmasked = problem.mask is None and settings.softcap is None  # 2ˣ is slow on what a mask makes −inf
        softmax = settings.normalizer == "softmax"
        self.powers = softmax and self.unmasked and self.dtype == np.float32 and exponentials_are_wide()
        self.unit = 1 / math.log(2) if self.powers else 1.0  # eˢ is 2 to the power s / log 2

    def run(self, heads: slice, queries: slice) -> None:
        """Fill the output of some heads and queries, tile by tile."""
        if self.loaded != heads:
            self._load(heads)
        for first in range(0, heads.stop - heads.start, self.tiles.heads):
            part = slice(first, min(first + self.tiles.heads, heads.stop - heads.start))
            self._take(part)
            some = slice(heads.start + part.start, heads.start + part.stop)
            for start in range(queries.start, queries.stop, self.tiles.queries):
                rows = slice(start, min(start + self.tiles.queries, queries.stop))
                if not self._attend(self.query[part, rows], self.output[some, rows], rows):
                    self.output[some, rows] = self.plain(some, rows)

    def _load(self, heads: slice) -> None:
        """Make some heads ready: their keys, and how large their vectors are."""
        self.scores.load(heads, fold=True, unit=self.unit)
        self.query, self.values = self.problem.query[heads], self.problem.value[heads]
        self.offsets = None if self.problem.offset is None else self.problem.offset[heads]
        self.sizes = measure(self.problem, heads)
        least, most = self.sizes.value_least, self.sizes.value_most
        self.value_fits = most <= float(np.finfo(self.dtype).max) / 4
        self.value_safe = _SAFE_VALUE[0] <= least and most <= _SAFE_VALUE[1]
        self.guesses = self.unmasked and _GUESS_VALUE[0] <= least and most <= _GUESS_VALUE[1]
        self.loaded = heads

    def _take(self, part: slice) -> None:
        """Turn to some of the loaded heads."""
        self.scores.take(part)
        self.value, self.lengths = self.values[part], self.sizes.queries[part]
        self.offset = None if self.offsets is None else self.offsets[part]
        softmax = self.problem.settings.normalizer == "softmax"
        self.largest_sink = float(self.offset.max()) if self.offset is not None and softmax else -np.inf

    def _bound(self, rows: slice) -> float:
        """Return what no score of these queries exceeds, soft-cap and mask aside; NaN or ∞ if one may not be finite."""
        reach = self.scores.largest_scale * float(self.lengths[:, rows].max())
        return reach * self.sizes.longest_key if reach < float(np.finfo(self.dtype).max) else np.inf

    def _attend(self, query: Array, output: Array, rows: slice) -> bool:
        """Compute one query tile's output; False, with the output undefined, where something was not finite."""
        bound = self._bound(rows)
        if not (self.value_fits and bound < float(np.finfo(self.dtype).max) * 2.0**-26):
            return False
        bound = max(min(bound, self.problem.settings.softcap or np.inf), self.largest_sink)
        safe = self.value_safe and self.scores.bounded and bound <= _SAFE_SCORE
        running = output if output.dtype == self.dtype else np.empty(output.shape, self.dtype)
        if self.problem.settings.normalizer == "softmax":
            done = self._mix_shares(query, rows, safe, running)
        else:
            done = self._mix_activated(self.scores.scaled(query, rows), rows, running)
        if done and running is not output:
            output[...] = running
        return done

    def _mix_shares(self, query: Array, rows: slice, safe: bool, running: Array) -> bool:
        """Write the values mixed by softmax to `running`; False where something was not finite."""
        sample = None if safe or not self.guesses else self._sample(rows)
        if (safe or sample is not None) and self._mix_at_fixed_shift(query, rows, sample, running):
            return True
        return self._mix_at_running_maximum(self.scores.scaled(query, rows, 1 / self.unit), rows, running)

    def _sample(self, rows: slice) -> slice | None:
        """Return keys that all of these queries see, enough to guess the size of their scores; None if too few."""
        start, end = int(self.problem.first[rows].max()), int(self.problem.end[rows].min())
        stop = min(start + max(_FEWEST_SAMPLED, min(_MOST_SAMPLED, self.problem.n_keys // 8)), end)
        return slice(start, stop) if stop - start >= _FEWEST_SAMPLED else None

    def _mix_at_fixed_shift(self, query: Array, rows: slice, sample: slice | None, running: Array) -> bool:
        """
        Mix with one shift of each row's scores: none, or by the largest for a `sample` of keys and a margin.

        Softmax is the same under any shift. False where the exponentials, which the rest of the row decides, add up to
        more than is safe; at least they add up to e to the minus _MARGIN, far above where exponentials are lifted.
        """
        exponential = np.exp2 if self.powers else np.exp
        query, total = self.scores.scaled(query, rows), None
        sink = None if self.offset is None else self.offset * self.dtype.type(self.unit)
        if sample is not None:
            shift = self.scores.largest(query, sample) + self.dtype.type(_MARGIN * self.unit)
            shift = shift if sink is None else np.maximum(shift, sink)
            sink = None if sink is None else sink - shift
            query = np.concatenate([query, -shift], axis=-1)  # the product subtracts it
        if sink is not None:
            total = np.asarray(exponential(sink))
        for columns, is_first in self._columns(rows, running):
            scores = self.scores.tile(query, rows, columns, hide=False)
            self.scores.exponentiate(scores, rows, columns, powers=self.powers, lift=sample is not None)
            total = row_sum(scores) if total is None else total + row_sum(scores)
            self._add(scores, columns, is_first, running)
        if total is None or total.shape[1] != running.shape[1]:  # no row sees a key
            return True
        if sample is not None and not float(total.max()) <= _MOST_SUM:
            return False
        if not total.all():
            total[total == 0] = 1
        running /= total
        return True

    def _mix_at_running_maximum(self, scaled: Array, rows: slice, running: Array) -> bool:
        total, peak = self._start(running.shape[:2])
        for columns, is_first in self._columns(rows, running):
            scores = self.scores.tile(scaled, rows, columns)
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
        for columns, is_first in self._columns(rows, running):
            scores = self.scores.tile(scaled, rows, columns)
            activate(scores, self.problem.settings.normalizer, self.offset, self.problem.n_keys)
            self._add(scores, columns, is_first, running)
        return bool(np.isfinite(running).all())

    def _start(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Return the rows' sum of exponentials and their maximum before the first key: those of the sink alone."""
        sink = self.dtype.type(-np.inf) if self.offset is None else self.offset
        peak = np.zeros((*shape, 1), self.dtype) + sink
        return (peak > -np.inf).astype(self.dtype), peak

    def _columns(self, rows: slice, running: Array) -> Iterator[tuple[slice, bool]]:
        """Yield runs of keys of which some row sees one, and whether it is the first; none: `running` is 0."""
        first, end = int(self.problem.first[rows].min()), int(self.problem.end[rows].max())
        for start in range(first, end, self.tiles.keys):
            yield slice(start, min(start + self.tiles.keys, end)), start == first
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
