"""Softmax of columns of scores, one row of attention down each, so that every reduction runs along memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TAME = 20.0
_SATURATED = 0.05
_LEAST = {np.dtype(np.float64): -700.0, np.dtype(np.float32): -80.0}  # exp below is subnormal, which is slow


class ScoreColumns:
    """
    The exponentials of columns of scores, x overwritten by x − max x.

    Z = Σ exp(x − max x) = 1 + R. Where a column is nearly one-hot, R and the power sums of the others are formed
    without the largest entry, so that nothing is lost against its 1.
    """

    def __init__(self, scores: Array, exp: Array) -> None:
        self.top = scores.max(axis=0)
        scores -= self.top
        if scores.min() < (floor := _LEAST[scores.dtype]):
            np.maximum(scores, floor, out=scores)
        self.scores = scores
        self.exp = np.exp(scores, out=exp)
        rest = column_sums(self.exp) - 1.0
        saturated = rest < _SATURATED
        self.at = _where((self.exp == 1) & saturated) if saturated.any() else None  # once per saturated column
        self.kept = np.where(saturated, 0.0, 1.0)  # whether the largest entry is still among the exponentials
        if self.at is not None:
            self.exp[self.at] = 0
        self.rest = rest if self.at is None else column_sums(self.exp) - self.kept
        self.partition = 1.0 + self.rest
        self._entropy: Array | None = None

    def others(self, power: int) -> Array:
        """Return Σ e^power over all but the largest."""
        powers = self.exp
        for _ in range(power - 1):
            powers = powers * self.exp
        return column_sums(powers) - self.kept

    def entropy(self) -> Array:
        """H = log Z + Σ e·(max − x) / Z: positive terms only; the scores are overwritten."""
        if self._entropy is None:
            self.scores *= self.exp
            self._entropy = np.asarray(np.log1p(self.rest) - column_sums(self.scores) / self.partition)
        return self._entropy

    def weights(self) -> Array:
        """Return the weights as rows, in float64."""
        exp = self.exp.astype(np.float64)
        if self.at is not None:
            exp[self.at] = 1.0
        return np.ascontiguousarray((exp / exp.sum(axis=0)).T)

    def times_jacobian(self, upstream: Array) -> Array:
        """Return J g in place of g, measured from its entry at the largest weight: J is blind to a constant."""
        if self.at is not None:
            shift = np.zeros_like(self.rest)
            shift[self.at[1]] = upstream[self.at]
            upstream -= shift.astype(upstream.dtype)
        mean = column_sums(self.exp * upstream) / self.partition
        upstream -= mean.astype(upstream.dtype)
        upstream *= self.exp
        if self.at is not None:
            upstream[self.at] = -mean[self.at[1]]
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


def _where(mask: Array) -> tuple[Array, Array]:
    """Return what `np.nonzero` does, which is ten times as slow on two axes as on one."""
    rows, columns = np.divmod(np.flatnonzero(mask), mask.shape[1])
    return rows, columns


def column_sums(x: Array) -> Array:
    """Return the sum of each column, in float64."""
    return np.asarray(np.ones(len(x), dtype=x.dtype) @ x).astype(np.float64, copy=False)
