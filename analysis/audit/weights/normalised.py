"""Queries and keys that pass a norm of their own after the projection: exact moments for isotropic tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

KINDS = ("rms", "layer", "l2")
_NODES = np.arange(-76.0, 80.0, 0.25)  # in log t; the trapezoidal error is of order exp(−π²/0.25)


@dataclass(frozen=True)
class VectorNorm:
    """
    The norm of the queries, or of the keys.

    Attributes
    ----------
    kind : {"rms", "layer", "l2"}
        Vectors get length √d (layer: their mean over components taken off first) or 1, then the gain.
    gain, bias : ndarray or None
        (heads, d_k) each.
    mean_square : float or None
        None where every head is normalised by itself; else one norm is taken over all heads, and this is the mean
        square of a component, at which it is held.
    """

    kind: str
    gain: Array | None = None
    bias: Array | None = None
    mean_square: float | None = None


def normalised(norm: VectorNorm, head: int, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Return mean and covariance of what the norm makes of a Gaussian vector."""
    if norm.kind == "layer":
        mean = mean - mean.mean()
        covariance = _centred(covariance)
    if norm.mean_square is None:
        mean, second = unit_moments(mean, covariance)
        size = 1.0 if norm.kind == "l2" else float(len(mean))
        mean, covariance = math.sqrt(size) * mean, size * (second - np.outer(mean, mean))
    elif norm.mean_square > 0:
        mean, covariance = mean / math.sqrt(norm.mean_square), covariance / norm.mean_square
    if norm.gain is not None:
        gain = norm.gain[head].astype(np.float64)
        mean, covariance = mean * gain, covariance * np.outer(gain, gain)
    return (mean if norm.bias is None else mean + norm.bias[head].astype(np.float64)), covariance


def unit_moments(mean: Array, covariance: Array) -> tuple[Array, Array]:
    """
    Return E[u] and E[u uᵀ] of u = v/‖v‖ for v ~ N(mean, covariance).

    Notes
    -----
    1/‖v‖² = ∫₀^∞ exp(−t‖v‖²) dt and 1/‖v‖ = π^−½ ∫₀^∞ t^−½ exp(−t‖v‖²) dt. Under the integral v is Gaussian again: in
    the axes of the covariance with variance λ/(1 + 2λt) and mean m/(1 + 2λt), times
    Π (1 + 2λt)^−½ · exp(−t m²/(1 + 2λt)). By the trapezoidal rule in log t, to about 10⁻¹². For mean 0 only the
    direction of v matters, so that tokens on a sphere and Gaussian tokens give the same.
    """
    values, axes = np.linalg.eigh(covariance)
    values, centre = np.maximum(values, 0.0), axes.T @ mean
    total = float(values.sum() + centre @ centre)
    if not total > 0:
        return np.zeros_like(mean), np.zeros_like(covariance)
    values, centre = values / total, centre / math.sqrt(total)
    t = np.exp(_NODES)[:, None]
    shrink = 1 / (1 + 2 * t * values)
    density = np.exp(0.5 * np.log(shrink).sum(axis=1) - (t * centre**2 * shrink).sum(axis=1))
    weight = 0.25 * density * t[:, 0]
    inner = centre * shrink
    second = np.diag(weight @ (values * shrink)) + (inner * weight[:, None]).T @ inner
    first = (0.25 / math.sqrt(math.pi) * density * np.sqrt(t[:, 0])) @ inner
    return axes @ first, axes @ second @ axes.T


def longest(norm: VectorNorm, head: int, heads: int, d_k: int) -> tuple[float, Array, float]:
    """Return the length of a normalised vector before the gain, |gain| by component, and the length of the bias."""
    gain = np.ones(d_k) if norm.gain is None else np.abs(norm.gain[head].astype(np.float64))
    size = 1.0 if norm.kind == "l2" else float(d_k if norm.mean_square is None else heads * d_k)
    return math.sqrt(size), gain, 0.0 if norm.bias is None else float(np.linalg.norm(norm.bias[head]))


def _centred(matrix: Array) -> Array:
    rows = matrix - matrix.mean(axis=0)
    centred: Array = rows - rows.mean(axis=1, keepdims=True)
    return centred
