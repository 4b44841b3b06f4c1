"""Quantities of a softmax row, twice: from the core's weights, and from scores without the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.cells import DEAD_TRACE
from attnsym.softmax import entropy

Array = NDArray[Any]

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


# From scores x (rows, n), overwritten. e = exp(x − max x) but 0 at the maximum, R = Σ e, Z = 1 + R.


class Row:
    """The unnormalised exponentials of score rows, with the largest entry kept apart."""

    def __init__(self, scores: Array) -> None:
        rows = np.arange(scores.shape[0])
        self.at = (rows, np.argmax(scores, axis=-1))
        scores -= scores[self.at][:, None]
        floor = _LEAST[scores.dtype]
        if scores.min() < floor:
            np.maximum(scores, floor, out=scores)
        self.shifted = scores
        self.exp = np.exp(scores)
        self.exp[self.at] = 0.0
        self.rest = self._total(self.exp)
        self.partition = 1.0 + self.rest

    def _total(self, x: Array, y: Array | None = None) -> Array:
        total = x.sum(axis=-1) if y is None else np.einsum("ij,ij->i", x, y)
        return np.asarray(total, dtype=np.float64)

    def entropy(self) -> Array:
        """H = log Z + Σ e·(max − x) / Z: positive terms only."""
        return np.asarray(np.log1p(self.rest) - self._total(self.exp, self.shifted) / self.partition)

    def effective_keys(self) -> Array:
        """Return e^entropy."""
        return np.asarray(np.exp(self.entropy()))

    def jacobian_trace(self) -> Array:
        """(2R + R² − Σe²) / Z²."""
        return np.asarray((2.0 * self.rest + self.rest**2 - self._total(self.exp, self.exp)) / self.partition**2)

    def jacobian_norm(self) -> Array:
        """√(R² + (Z² + 2)Σe² − 2Z Σe³ + (Σe²)²) / Z²."""
        squares = self.exp * self.exp
        second, third = self._total(squares), self._total(squares, self.exp)
        total = self.rest**2 + (self.partition**2 + 2.0) * second - 2.0 * self.partition * third + second**2
        return np.asarray(np.sqrt(total) / self.partition**2)

    def dead_row(self) -> Array:
        """Whether tr J is below 1e-3, as 0 or 1."""
        return (self.jacobian_trace() < DEAD_TRACE).astype(np.float64)

    def max_weight(self) -> Array:
        """1 / Z."""
        return 1.0 / self.partition

    def times_jacobian(self, upstream: Array) -> Array:
        """Return J g in place of g, measured from the entry of g at the largest weight."""
        inverse = (1.0 / self.partition).astype(upstream.dtype)[:, None]
        upstream -= upstream[self.at][:, None]
        mean = np.einsum("ij,ij->i", self.exp, upstream)[:, None] * inverse
        upstream -= mean
        upstream *= self.exp
        upstream[self.at] = -mean[:, 0]
        upstream *= inverse
        return upstream
