"""Quantities of a softmax row, twice: from the core's weights, and from scores without the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.measure.cell import DEAD_TRACE
from attnsym.softmax import entropy

Array = NDArray[Any]

TAME = 20.0
_SATURATED = 0.05
_LEAST = {np.dtype(np.float64): -700.0, np.dtype(np.float32): -80.0}  # exp below is subnormal, which is slow


def norms(vectors: Array) -> Array:
    """Return the Euclidean norms over the last axis, accumulated in float64."""
    return np.asarray(np.sqrt(np.einsum("...i,...i->...", vectors, vectors, dtype=np.float64)))


# From weights w (..., n). With r = 1 − max w formed as a sum of the other weights, nothing cancels near one-hot.


def _without_largest(weights: Array) -> tuple[Array, Array]:
    others = np.array(weights, dtype=np.float64)
    np.put_along_axis(others, np.argmax(others, axis=-1)[..., None], 0.0, axis=-1)
    return others, np.asarray(others.sum(axis=-1))


def jacobian_trace(weights: Array) -> Array:
    """Return tr(diag(w) − w wᵀ) = 1 − Σ wᵢ²."""
    others, rest = _without_largest(weights)
    return np.asarray(2.0 * rest - rest**2 - np.einsum("...i,...i->...", others, others))


def jacobian_norm(weights: Array) -> Array:
    """Return the Frobenius norm of diag(w) − w wᵀ, from Σᵢ wᵢ²(1 − wᵢ)² + Σᵢ≠ⱼ wᵢ²wⱼ²."""
    others, rest = _without_largest(weights)
    squares = others * others
    largest, second, fourth = (1.0 - rest) ** 2, squares.sum(axis=-1), np.einsum("...i,...i->...", squares, squares)
    diagonal = largest * rest**2 + np.sum(squares * (1.0 - others) ** 2, axis=-1)
    return np.asarray(np.sqrt(diagonal + 2.0 * largest * second + np.maximum(second**2 - fourth, 0.0)))


FROM_WEIGHTS: dict[str, Callable[[Array], Array]] = {
    "entropy": entropy,
    "effective_keys": lambda w: np.exp(entropy(w)),
    "jacobian_trace": jacobian_trace,
    "jacobian_norm": jacobian_norm,
    "dead_row": lambda w: (jacobian_trace(w) < DEAD_TRACE).astype(np.float64),
    "max_weight": lambda w: np.asarray(w.max(axis=-1), dtype=np.float64),
}


# From scores x (n, rows), one row of attention down each column, so that every reduction runs along memory.


class ScoreColumns:
    """
    The exponentials of columns of scores, x overwritten by x − max x.

    Z = Σ exp(x − max x) = 1 + R. Where a column is nearly one-hot, R and the power sums of the others are formed
    without the largest entry, so that nothing is lost against its 1.
    """

    def __init__(self, scores: Array, exp: Array) -> None:
        scores -= scores.max(axis=0)
        if scores.min() < (floor := _LEAST[scores.dtype]):
            np.maximum(scores, floor, out=scores)
        self.scores = scores
        self.exp = np.exp(scores, out=exp)
        rest = self._sum(self.exp) - 1.0
        saturated = rest < _SATURATED
        self.at = np.nonzero((self.exp == 1) & saturated) if saturated.any() else None  # once per saturated column
        self.kept = np.where(saturated, 0.0, 1.0)  # whether the largest entry is still among the exponentials
        if self.at is not None:
            self.exp[self.at] = 0
        self.rest = rest if self.at is None else self._sum(self.exp) - self.kept
        self.partition = 1.0 + self.rest

    def _sum(self, x: Array) -> Array:
        return column_sums(x)

    def entropy(self) -> Array:
        """H = log Z + Σ e·(max − x) / Z: positive terms only."""
        return np.asarray(np.log1p(self.rest) - self._sum(self.exp * self.scores) / self.partition)

    def effective_keys(self) -> Array:
        """Return e^entropy."""
        return np.asarray(np.exp(self.entropy()))

    def jacobian_trace(self) -> Array:
        """(2R + R² − Σ'e²) / Z², Σ' over all but the largest."""
        second = self._sum(self.exp * self.exp) - self.kept
        return np.asarray((2.0 * self.rest + self.rest**2 - second) / self.partition**2)

    def jacobian_norm(self) -> Array:
        """√(R² + (Z² + 2)Σ'e² − 2Z Σ'e³ + (Σ'e²)²) / Z²."""
        power = self.exp * self.exp
        second = self._sum(power) - self.kept
        power *= self.exp
        third = self._sum(power) - self.kept
        total = self.rest**2 + (self.partition**2 + 2.0) * second - 2.0 * self.partition * third + second**2
        return np.asarray(np.sqrt(total) / self.partition**2)

    def dead_row(self) -> Array:
        """Whether tr J is below 1e-3, as 0 or 1."""
        return (self.jacobian_trace() < DEAD_TRACE).astype(np.float64)

    def max_weight(self) -> Array:
        """1 / Z."""
        return np.asarray(1.0 / self.partition)

    def times_jacobian(self, upstream: Array) -> Array:
        """Return J g in place of g, measured from its entry at the largest weight: J is blind to a constant."""
        if self.at is not None:
            shift = np.zeros_like(self.rest)
            shift[self.at[1]] = upstream[self.at]
            upstream -= shift.astype(upstream.dtype)
        mean = self._sum(self.exp * upstream) / self.partition
        upstream -= mean.astype(upstream.dtype)
        upstream *= self.exp
        if self.at is not None:
            upstream[self.at] = -mean[self.at[1]]
        upstream *= (1.0 / self.partition).astype(upstream.dtype)
        return upstream


def entropy_of_tame_columns(scores: Array, exp: Array) -> Array:
    """Return the entropies where all |x| are below `TAME`: nothing overflows and log Z − Σ e·x / Z loses no digits."""
    np.exp(scores, out=exp)
    partition = column_sums(exp)
    exp *= scores
    return np.asarray(np.log(partition) - column_sums(exp) / partition)


def column_sums(x: Array) -> Array:
    """Return the sum of each column, in float64."""
    return np.asarray(np.ones(len(x), dtype=x.dtype) @ x).astype(np.float64, copy=False)
