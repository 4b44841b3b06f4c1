"""The expected largest softmax weight of iid Gaussian scores, by a positive double integral."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from analysis.predict.quadrature import NORMAL_REACH, STEP, TAIL, Array

# Gauss-Legendre nodes per panel, and the panel's width in units of the smaller of 1 and σ.
PANEL_NODES = 12
PANEL_WIDTH = 2.5


def gaussian_max_weight(sigma: float, n_keys: float) -> float:
    """
    Average max p over n iid N(0, σ²) scores, exactly to rounding.

    E max p = n ∫ φ(x) dx ∫ e⁻ᵗ ψ(t, x)ⁿ⁻¹ dt over t > 0, where σx is the largest score and
    1 - ψ = Φ(-x) + ∫ N(σx - y; 0, σ²)(1 - exp(-t e⁻ʸ)) dy over the distance y > 0 below it: sums of positive terms.

    Parameters
    ----------
    sigma : float
        Standard deviation of the scores, finite and > 0.
    n_keys : float
        A whole number, at least 1.

    Returns
    -------
    float
        In [1/n, 1], relative error a few 1e-15.
    """
    if n_keys == 1:
        return 1.0
    log_n = math.log(n_keys)
    u, upper = _upper(math.ceil((TAIL + log_n) / STEP))
    x_high = math.sqrt(2 * (TAIL + log_n))
    x_step = 0.2 / math.sqrt(1 + 0.9 * log_n)
    x_low = float(special.ndtri_exp(-40 / (n_keys - 1)))
    x = x_low + x_step * np.arange(math.ceil((x_high - x_low) / x_step) + 1)
    # Distances below the largest score, in units of σ: to the normal's far tail, or to where 1 - exp(-t e⁻ʸ) < e⁻³⁸/n.
    reach = min(x_high + NORMAL_REACH, (TAIL + log_n + 4) / sigma)
    y, weight = _panels(reach, PANEL_WIDTH * min(1.0, 1 / sigma))
    density = weight[:, None] * np.exp(-((x - y[:, None]) ** 2) / 2) / math.sqrt(2 * math.pi)
    below = -np.expm1(-np.exp(u[:, None] - sigma * y))
    outside = special.ndtr(-x) + below @ density
    psi_power = np.exp((n_keys - 1) * np.log1p(-np.minimum(outside, 1 - 2.0**-53)))
    largest = n_keys * x_step * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return float(upper @ psi_power @ largest)


@lru_cache(maxsize=64)
def _upper(reach: int) -> tuple[Array, Array]:
    """Nodes and weights of ∫ e⁻ᵗ ... dt with t = e^u, a trapezoid in u from -reach steps."""
    u: Array = STEP * np.arange(-reach, 20.0)
    return u, STEP * np.exp(u - np.exp(u))


def _panels(end: float, width: float) -> tuple[Array, Array]:
    """Composite Gauss-Legendre nodes and weights on (0, end) with panels of at most this width."""
    count = math.ceil(end / width)
    nodes, weights = legendre(PANEL_NODES)
    half = end / count / 2
    left = 2 * half * np.arange(float(count))[:, None]
    points: Array = (left + half * (nodes + 1)).ravel()
    return points, np.tile(half * weights, count)


@lru_cache(maxsize=16)
def legendre(count: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on (-1, 1)."""
    nodes, weights = special.roots_legendre(count)
    return np.asarray(nodes, dtype=np.float64), np.asarray(weights, dtype=np.float64)
