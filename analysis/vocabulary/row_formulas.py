"""Formulas of a softmax row, twice: from its weights, and from columns of scores without forming weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnsym.softmax import entropy

Array = NDArray[Any]

DEAD_TRACE = 1e-3  # tr J below which a row counts as dead: softmax passes almost no gradient on
HIDDEN_BIAS = -1e4  # a mask's bias from which down an audit counts a key as hidden; the core hides at −inf only


class Columns(Protocol):
    """Columns of scores x, one row of attention down each, with e = exp(x − max x), R = Σ e − 1 and Z = 1 + R."""

    top: Array
    rest: Array
    partition: Array

    def others(self, power: int) -> Array:
        """Return Σ e^power of each column over all but its largest entry, whose e is 1."""

    def entropy(self) -> Array:
        """Return the entropy of each column's weights."""


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


def entropy_fraction(weights: Array) -> Array:
    return np.asarray(entropy(weights) / math.log(weights.shape[-1]))


# From weights w (..., n) of the keys beside a sink, which has the rest of 1.


def entropy_with_rest(weights: Array) -> Array:
    """Return the entropy of the weights and of what is missing to 1."""
    keys = np.asarray(weights, dtype=np.float64)
    rest = np.maximum(1.0 - keys.sum(axis=-1, keepdims=True), 0.0)
    return np.asarray(entropy(np.concatenate([keys, rest], axis=-1)))


def entropy_fraction_with_rest(weights: Array) -> Array:
    """Return that entropy over log n, n the number of keys."""
    return entropy_with_rest(weights) / math.log(weights.shape[-1])


def trace_of_keys(weights: Array) -> Array:
    """Return tr(diag(w) − w wᵀ) = Σ wᵢ(1 − wᵢ)."""
    keys = np.asarray(weights, dtype=np.float64)
    return np.asarray(np.sum(keys * (1.0 - keys), axis=-1))


def norm_of_keys(weights: Array) -> Array:
    """Return the Frobenius norm of diag(w) − w wᵀ, √(Σ wᵢ²(1 − wᵢ)² + (Σ wᵢ²)² − Σ wᵢ⁴)."""
    keys = np.asarray(weights, dtype=np.float64)
    squares = keys**2
    across = np.sum(squares, axis=-1) ** 2 - np.sum(squares**2, axis=-1)
    return np.asarray(np.sqrt(np.sum(squares * (1.0 - keys) ** 2, axis=-1) + np.maximum(across, 0.0)))


def logsumexp(scores: Array) -> Array:
    top = scores.max(axis=-1).astype(np.float64)
    return np.asarray(top + np.log(np.exp(scores - top[..., None]).sum(axis=-1)))


# From columns of scores (`Columns`).


def trace_of_columns(c: Columns) -> Array:
    """(2R + R² − Σ'e²) / Z², Σ' over all but the largest."""
    return np.asarray((2.0 * c.rest + c.rest**2 - c.others(2)) / c.partition**2)


def norm_of_columns(c: Columns) -> Array:
    """√(R² + (Z² + 2)Σ'e² − 2Z Σ'e³ + (Σ'e²)²) / Z²."""
    second, third = c.others(2), c.others(3)
    total = c.rest**2 + (c.partition**2 + 2.0) * second - 2.0 * c.partition * third + second**2
    return np.asarray(np.sqrt(total) / c.partition**2)


def is_dead(trace: Array) -> Array:
    return (trace < DEAD_TRACE).astype(np.float64)


def power_sum(order: int) -> Callable[[Array], Array]:
    return lambda weights: np.asarray(np.sum(np.asarray(weights, dtype=np.float64) ** order, axis=-1))


def power_sum_of_columns(order: int) -> Callable[[Columns], Array]:
    return lambda c: np.asarray((1.0 + c.others(order)) / c.partition**order)


def itself(values: Array) -> Array:
    return values
