"""
From keys of a fixed query to Gaussian query and keys: the average over ‖q‖.

Given q, the scores scale·kᵀq of Gaussian keys are exactly iid N(0, (scale·‖q‖)²), and ‖q‖ follows the chi law with
d_k degrees of freedom: every softmax statistic of random vectors is a one-dimensional average over ‖q‖.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy import optimize

from analysis.predict.maximum import gaussian_max_weight, legendre
from analysis.predict.quadrature import Array, Expectations, gaussian_softmax, one_key

# The chi density is dropped where it is e^(-37.5)/n² of its peak: E Σp³ may be as small as 1/n², and the longest
# queries carry it. The Gauss-Legendre rules below then reach rounding. Expectations bend ever more sharply at
# σ = √(2 log n) and have no convergent power series at σ = 0, hence two panels beyond a million keys and from ‖q‖ = 0
# on; one rule of twice the order would have weights that are wrong by 5e-11 at its ends.
CHI_TAIL = 37.5
CHI_NODES = 56
MANY_KEYS = 10**6
# A σ-interval that starts at 0 and goes beyond this is graded: softmax changes on the scale of σ = 1 near 0.
GRADED_BEYOND = 16.0
GRADED_FACTOR = 6.0
# Far from both ends, σ above this and ‖q‖ below that, expectations are analytic for |arg σ| < π/4 and the chi weight is
# nearly a power: half the nodes on one panel are at rounding.
FAR_BEYOND = 100.0
FAR_BELOW = 0.5
# What stands for a product of a scale and a length that underflows to 0
LEAST = 5e-324


@lru_cache(maxsize=1024)
def chi_rule(d_k: int, scale: float = 1.0, n_keys: int = 1) -> tuple[Array, Array]:
    """
    Return nodes r and weights (sum 1) for averages of a function of scale·r over r = ‖q‖, q ~ N(0, I_{d_k}).

    Parameters
    ----------
    d_k : int
        Degrees of freedom, at least 1.
    scale : float, optional
        Only where the nodes lie depends on it: they crowd at 0 when scale·r spans far more than 1.
    n_keys : int, optional
        The largest number of keys of the functions averaged: more keys need finer nodes, further out.

    Returns
    -------
    r, weight : ndarray of float, shape (n,)
    """
    low, high = chi_window(d_k, n_keys)
    edges = [low, high]
    while low == 0 and abs(scale) * edges[1] > GRADED_BEYOND:
        edges.insert(1, max(edges[1] / GRADED_FACTOR, GRADED_BEYOND / 2 / abs(scale)))
    rules = []
    for left, right in pairwise(edges):
        if abs(scale) * left > FAR_BEYOND and right < FAR_BELOW:
            rules.append(panel(left, right, CHI_NODES // 2))
        else:
            cuts = np.linspace(left, right, 3 if low == 0 or n_keys > MANY_KEYS else 2).tolist()
            rules += [panel(a, b, CHI_NODES) for a, b in pairwise(cuts)]
    r, width = np.concatenate(rules, axis=1)
    weight = width * np.exp(log_chi_weight(r, d_k))
    return r, weight / weight.sum()


def panel(left: float, right: float, count: int) -> tuple[Array, Array]:
    """Return the nodes and weights of one Gauss-Legendre rule."""
    x, w = legendre(count)
    half = (right - left) / 2
    return left + half * (x + 1), half * w


def log_chi_weight(r: Array, d_k: int) -> Array:
    """Give the log density of chi relative to its peak; from (r - peak)/peak, so that large d_k costs no digits."""
    if d_k == 1:
        return -(r**2) / 2
    peak = math.sqrt(d_k - 1.0)
    x = (r - peak) / peak
    with np.errstate(divide="ignore"):  # at r = 0 the density is 0
        return (d_k - 1.0) * (np.log1p(x) - x - x**2 / 2)


def chi_window(d_k: int, n_keys: int = 1) -> tuple[float, float]:
    """Bound the ‖q‖ whose density is within e^(-37.5)/n² of the peak, from 0 where the lower bound is below 0.25."""
    tail = CHI_TAIL + 2 * math.log(n_keys)
    if d_k == 1:
        return 0.0, math.sqrt(2 * tail)
    peak = math.sqrt(d_k - 1.0)

    def excess(x: float) -> float:
        return (d_k - 1.0) * (math.log1p(x) - x - x**2 / 2) + tail

    high = optimize.brentq(excess, 0.0, math.sqrt(2 * tail) / peak)
    near_zero = 0.25 / peak - 1
    low = peak * (1 + optimize.brentq(excess, near_zero, 0.0)) if excess(near_zero) < 0 else 0.0
    return low, peak * (1 + high)


@lru_cache(maxsize=512)
def gaussian_attention(d_k: int, scale: float, n_keys: tuple[int, ...]) -> Expectations:
    """
    Average the softmax of scores scale·kᵀq over Gaussian query and keys.

    Parameters
    ----------
    d_k : int
        At least 1.
    scale : float
        Finite, > 0.
    n_keys : tuple of int
        Each at least 1.

    Returns
    -------
    Expectations
        Arrays of shape (len(n_keys),), not to be written to; relative error at most about 1e-13.
    """
    n = np.array(n_keys, dtype=np.float64)
    r, weight = chi_rule(d_k, scale, max(n_keys))
    nodes = np.array([gaussian_softmax(max(scale * float(node), LEAST), n) for node in r])
    average = np.tensordot(weight, nodes, axes=1)
    return Expectations(*np.where(n == 1, np.array(one_key(n)), average))  # 0 and 1 stay exact


@lru_cache(maxsize=512)
def gaussian_attention_max_weight(d_k: int, scale: float, n_keys: int) -> float:
    """Average the largest weight as `gaussian_attention` does the rest."""
    if n_keys == 1:
        return 1.0
    r, weight = chi_rule(d_k, scale, n_keys)
    return float(weight @ np.array([gaussian_max_weight(max(scale * float(node), LEAST), float(n_keys)) for node in r]))
