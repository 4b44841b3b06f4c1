"""Softmax of columns of scores, one row of attention down each, so that every reduction runs along memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TAME = 20.0
_WIDE = 512  # columns from which NumPy's own reduction is as quick
_LEAST = {np.dtype(np.float64): -700.0, np.dtype(np.float32): -80.0}  # exp below is subnormal, which is slow


class ScoreColumns:
    """
    The exponentials of columns of scores, x overwritten by x − max x.

    Z = Σ exp(x − max x) = 1 + R. R and the power sums of the others are formed without the largest entry, so that
    nothing is lost against its 1 where a column is nearly one-hot.
    """

    def __init__(self, scores: Array, exp: Array) -> None:
        self.top = _column_maxima(scores, exp)
        scores -= self.top
        np.maximum(scores, np.full_like(self.top, _LEAST[scores.dtype]), out=scores)  # a number takes NumPy four times
        self.scores = scores
        self.exp = np.exp(scores, out=exp)
        self.largest = np.floor(self.exp)  # 1 at the largest entry, and at what ties with it
        self.exp -= self.largest
        self.ties = column_sums(self.largest) - 1.0
        self.rest = column_sums(self.exp) + self.ties
        self.partition = 1.0 + self.rest
        self._entropy: Array | None = None

    def others(self, power: int) -> Array:
        """Return Σ e^power over all but the largest."""
        powers = self.exp
        for _ in range(power - 1):
            powers = powers * self.exp
        return column_sums(powers) + self.ties

    def entropy(self) -> Array:
        """H = log Z + Σ e·(max − x) / Z: positive terms only; the scores are overwritten."""
        if self._entropy is None:
            self.scores *= self.exp
            self._entropy = np.asarray(np.log1p(self.rest) - column_sums(self.scores) / self.partition)
        return self._entropy

    def weights(self) -> Array:
        """Return the weights as rows, in float64."""
        exp = self.exp.astype(np.float64) + self.largest
        return np.ascontiguousarray((exp / exp.sum(axis=0)).T)

    def times_jacobian(self, upstream: Array) -> Array:
        """Return J g in place of g, measured from its entry at the largest weight: J is blind to a constant."""
        at, exp = self.largest, self.exp
        if self.ties.any():  # the first is taken out, and the others count
            at = _first_of_each_column(self.largest)
            exp = self.exp + (self.largest - at)
        upstream -= np.einsum("ij,ij->j", upstream, at)
        mean = column_sums(exp * upstream) / self.partition
        upstream -= mean.astype(upstream.dtype)
        upstream *= exp + at
        upstream *= (1.0 / self.partition).astype(upstream.dtype)
        return upstream


class TameColumns:
    """Columns of which all |x| are below `TAME`: nothing overflows and log Z − Σ e·x / Z loses no digits."""

    def __init__(self, scores: Array, exp: Array) -> None:
        self.scores = scores
        self.exp = np.exp(scores, out=exp)

    def entropy(self) -> Array:
        """H = log Z − Σ e·x / Z; the exponentials are overwritten."""
        partition = column_sums(self.exp)
        self.exp *= self.scores
        return np.asarray(np.log(partition) - column_sums(self.exp) / partition)


def _column_maxima(x: Array, room: Array) -> Array:
    """Return the maximum of each column, by halves: long rows are compared, whatever the width."""
    if len(x) < 4 or x.shape[1] >= _WIDE:
        return np.asarray(x.max(axis=0))
    kept = (len(x) + 1) // 2
    largest = np.maximum(x[:kept], x[len(x) - kept :], out=room[:kept])
    while kept > 1:
        half = (kept + 1) // 2
        largest = np.maximum(largest[:half], largest[kept - half : kept], out=room[:half])
        kept = half
    return np.asarray(largest[0].copy())


def _first_of_each_column(marked: Array) -> Array:
    """Keep the first mark of each column."""
    first = np.zeros_like(marked)
    first[marked.argmax(axis=0), np.arange(marked.shape[1])] = 1
    return first


def column_sums(x: Array) -> Array:
    """Return the sum of each column, in float64."""
    return np.asarray(_ones(len(x), x.dtype) @ x).astype(np.float64, copy=False)


@lru_cache(maxsize=8)
def _ones(n: int, dtype: np.dtype[Any]) -> Array:
    return np.ones(n, dtype=dtype)
