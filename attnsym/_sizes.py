"""How large the vectors of some heads are, which says what may overflow in their tiles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attnsym._blocks import Problem
from attnsym._rows import row_sum
from attnsym._validate import Array

_AT_ONCE = 1 << 16  # numbers: a temporary that stays in cache


@dataclass(frozen=True)
class Sizes:
    """
    Sizes of the vectors of some heads; NaN or ∞ where one is not finite, or its square is not.

    Attributes
    ----------
    queries : ndarray, (heads, n_queries)
        Their Euclidean lengths.
    longest_key : float
    value_least, value_most : float
        Over the components of the values, the range of Σ|v| over the keys, components that are 0 aside: each lies
        between the largest |v| and n_keys times that.
    """

    queries: Array
    longest_key: float
    value_least: float
    value_most: float


def measure(problem: Problem, heads: slice) -> Sizes:
    """Return the sizes of the queries, keys and values of these heads."""
    value = problem.value[heads]
    sums = np.zeros((len(value), value.shape[-1]), value.dtype)
    for part, _, piece in _pieces(np.abs, value):
        sums[part] += (np.ones((1, piece.shape[1]), value.dtype) @ piece)[:, 0]
    return Sizes(
        queries=_lengths(problem.query[heads]),
        longest_key=float(_lengths(problem.key[heads]).max(initial=0)),
        value_least=float(sums.min(initial=np.inf, where=sums != 0)),
        value_most=float(sums.max(initial=0)),
    )


def _lengths(x: Array) -> Array:
    """Return the Euclidean length of every vector, (heads, rows)."""
    squares = np.empty(x.shape[:-1], x.dtype)
    for heads, rows, piece in _pieces(np.square, x):
        squares[heads, rows] = row_sum(piece)[..., 0]
    return np.asarray(np.sqrt(squares, out=squares))


def _pieces(of: np.ufunc, matrices: Array) -> Iterator[tuple[slice, slice, Array]]:
    """Yield a function of runs of whole matrices, or of rows of one, in one buffer that a cache holds."""
    own, n_rows, width = matrices.shape
    step = min(n_rows, max(1, _AT_ONCE // max(1, width)))
    together = max(1, _AT_ONCE // max(1, n_rows * width))
    buffer = np.empty(together * step * width, matrices.dtype)
    for h, r in itertools.product(range(0, own, together), range(0, n_rows, step)):
        heads, rows = slice(h, h + together), slice(r, r + step)
        part = matrices[heads, rows]
        yield heads, rows, of(part, out=buffer[: part.size].reshape(part.shape))
