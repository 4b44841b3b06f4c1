"""The exact curves that a picture draws: three quantities over whole grids of d_k, n_keys and scales, quickly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import interpolate

from analysis.predict.average import chi_rule
from analysis.predict.exact import expected_entropy, expected_jacobian_trace
from analysis.predict.maximum import gaussian_max_weight

Array = NDArray[np.float64]

# Exact values of E max p at so many σ, a cubic in log σ between them: the error stays below 1e-4 (a test holds it),
# a tenth of a line's width.
_NODES = 48
_LEAST_SIGMA = 1e-3


@dataclass(frozen=True)
class Curves:
    """
    Expectations for Gaussian query and keys, each of shape (len(n_keys), len(d_k)).

    Attributes
    ----------
    entropy : E H in nats, exact.
    largest_weight : E max p, interpolated between exact values in log σ, absolute error below 1e-4.
    jacobian_trace : E tr J = 1 - E Σ p², exact.
    """

    entropy: Array
    largest_weight: Array
    jacobian_trace: Array


def softmax_curves(d_k: Sequence[int], n_keys: Sequence[int], scale: Callable[[int], float]) -> Curves:
    """
    Evaluate the three quantities at every pair of d_k and n_keys.

    Parameters
    ----------
    d_k, n_keys : sequence of int
        Each at least 1.
    scale : callable
        d_k -> the factor on kᵀq, positive.

    Returns
    -------
    Curves
    """
    widths, lengths = np.asarray(d_k), np.asarray(n_keys)[:, None]
    factors = np.array([scale(int(width)) for width in d_k])
    return Curves(
        np.asarray(expected_entropy(lengths, d_k=widths, scale=factors), dtype=np.float64),
        np.array([_largest_weights(n, d_k, factors) for n in n_keys]),
        np.asarray(expected_jacobian_trace(lengths, d_k=widths, scale=factors), dtype=np.float64),
    )


def _largest_weights(n_keys: int, d_k: Sequence[int], factors: Array) -> list[float]:
    """Average E[max p | σ = scale·‖q‖] over ‖q‖ for one number of keys, the function of σ interpolated."""
    if n_keys == 1:
        return [1.0] * len(d_k)
    rules = [chi_rule(width, float(factor), n_keys) for width, factor in zip(d_k, factors, strict=True)]
    most = max(float(factor * r.max()) for factor, (r, _) in zip(factors, rules, strict=True))
    nodes = np.geomspace(_LEAST_SIGMA, most, _NODES)
    exact = np.array([gaussian_max_weight(float(node), float(n_keys)) for node in nodes])
    curve = interpolate.CubicSpline(np.log(nodes), exact)
    return [
        float(weight @ curve(np.log(np.maximum(factor * r, _LEAST_SIGMA))))
        for factor, (r, weight) in zip(factors, rules, strict=True)
    ]
