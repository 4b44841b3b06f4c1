"""The gradient of attention without the whole score matrix: blocks of queries, each with all of its keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnsym._blocks import Heads, Problem
from attnsym._score_tiles import ScoreTiles
from attnsym._threads import for_each, useful_workers
from attnsym._validate import Array
from attnsym.softmax import softmax_in_place

Gradients = tuple[Array, Array, Array]

_BLOCK_ELEMENTS = 1 << 18  # scores in a block: a megabyte of float32 for them and one for their gradient
_MAX_QUERIES, _MIN_QUERIES = 256, 32
_SUMS = 8


def gradients_in_blocks(
    problem: Problem,
    upstream: Heads,
    plain: Callable[[slice, slice], Gradients],
    *,
    block_elements: int = _BLOCK_ELEMENTS,
    workers: int | None = None,
) -> Gradients:
    """
    Return the gradients of query, key and value, one matrix for each head of the scores.

    Parameters
    ----------
    problem : Problem
        With at least one head, query and key.
    upstream : Heads
        The gradient with respect to the output.
    plain : callable
        (heads, queries) -> gradients due to those queries by the plain path, for what is not finite, soft-capped,
        or normalised otherwise than by the keys' softmax.
    block_elements : int
        How many scores a block holds at most, where one query's fit.
    workers : int, optional
        Number of threads; as many as BLAS would use if None.
    """
    workers = useful_workers(problem.n_scores) if workers is None else workers
    n_heads, n_queries, n_keys = problem.n_heads, problem.n_queries, problem.n_keys
    rows = max(1, min(n_queries, _MAX_QUERIES, max(block_elements // n_keys, min(_MIN_QUERIES, block_elements))))
    together = max(1, min(n_heads, block_elements // (n_queries * n_keys)))
    groups = [slice(h, min(h + together, n_heads)) for h in range(0, n_heads, together)]
    # few heads: several sums for each, added up at the end, so that the number of workers changes no number
    parts = max(1, min(-(-_SUMS // len(groups)), n_queries // rows))
    d_query = np.empty((n_heads, n_queries, problem.query.matrices.shape[-1]), problem.query.matrices.dtype)
    d_key = np.zeros((parts, n_heads, n_keys, d_query.shape[-1]), d_query.dtype)
    d_value = np.zeros((parts, n_heads, n_keys, problem.value.matrices.shape[-1]), d_query.dtype)
    starts = range(0, n_queries, rows)

    def new_worker() -> Callable[[int], None]:
        worker = _Worker(problem, upstream, plain, together * rows * n_keys)

        def run(task: int) -> None:
            heads, part = groups[task // parts], task % parts
            worker.load(heads)
            for start in starts[part::parts]:
                queries = slice(start, min(start + rows, n_queries))
                d_query[heads, queries] = worker.add(heads, queries, d_key[part, heads], d_value[part, heads])

        return run

    for_each(len(groups) * parts, new_worker, workers)
    return d_query, d_key.sum(axis=0) if parts > 1 else d_key[0], d_value.sum(axis=0) if parts > 1 else d_value[0]


class _Worker:
    """One thread's buffers, and the blocks it computes with them."""

    def __init__(
        self, problem: Problem, upstream: Heads, plain: Callable[[slice, slice], Gradients], elements: int
    ) -> None:
        self.problem, self.upstream, self.plain = problem, upstream, plain
        self.scores = ScoreTiles(problem, elements)
        self.gradient = np.empty(elements, self.scores.dtype)
        settings = problem.settings
        self.plain_only = settings.softcap is not None or settings.normalizer != "softmax" or problem.offset is not None

    def load(self, heads: slice) -> None:
        """Take up the keys and values of some heads."""
        self.scores.load(heads)
        self.key = self.problem.key[heads]
        self.transposed_value = np.ascontiguousarray(self.problem.value[heads].swapaxes(-1, -2))

    def add(self, heads: slice, queries: slice, d_key: Array, d_value: Array) -> Array:
        """Add what these queries contribute to `d_key` and `d_value`, and return their own gradient."""
        first, end = int(self.problem.first[queries].min()), int(self.problem.end[queries].max())
        columns = slice(first, max(first, end))
        computed = None if self.plain_only else self._compute(heads, queries, columns)
        if computed is None or not all(np.isfinite(gradient).all() for gradient in computed):
            columns = slice(None)
            computed = self.plain(heads, queries)
        d_query, to_key, to_value = computed
        d_key[:, columns] += to_key
        d_value[:, columns] += to_value
        return d_query

    def _compute(self, heads: slice, queries: slice, columns: slice) -> Gradients | None:
        query, upstream = self.problem.query[heads][:, queries], self.upstream[heads][:, queries]
        scaled = self.scores.scaled(query, queries)
        if not np.isfinite(scaled).all():
            return None
        weights = softmax_in_place(self.scores.tile(scaled, queries, columns))
        d_value = weights.swapaxes(-1, -2) @ upstream
        d_scores = self.gradient[: weights.size].reshape(weights.shape)
        np.matmul(upstream, self.transposed_value[..., columns], out=d_scores)
        d_scores -= np.vecdot(weights, d_scores)[..., None]
        d_scores *= weights
        d_query = self.scores.scaled(d_scores @ self.key[:, columns], queries)
        return d_query, d_scores.swapaxes(-1, -2) @ scaled, d_value
