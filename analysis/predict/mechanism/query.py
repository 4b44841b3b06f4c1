"""The length of a Gaussian query: nodes and weights for averages over it."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import linalg

from analysis.predict.average import chi_rule, chi_window, log_chi_weight, panel
from analysis.predict.mechanism.key_law import Array

# From these dimensions on a Gauss-Laguerre rule of so many nodes is at 1e-12, the last for scores narrower than this.
LAGUERRE = ((128, 14), (64, 16), (32, 32))
NARROW_SCORES, NARROW_FROM, NARROW_NODES = 1.5, 8, 24
# So few are at 1e-6, for scores of any width.
FEW_FROM, FEW_NODES = 64, 6
# One Gauss-Legendre rule of so many nodes is, for scores up to so wide, and from `NARROW_FROM` dimensions on one of
# Gauss for the law of the length, found from that of so many.
SINGLE_UP_TO, SINGLE_NODES = 3.0, 56
LENGTH_NODES, FINE_NODES = 24, 160


@lru_cache(maxsize=256)
def query_lengths(
    d_k: int, scale: float, n_keys: int, *, is_odd: bool = False, is_singular: bool = False
) -> tuple[Array, Array]:
    """
    Return nodes r and weights (sum 1) for averages over r = ‖q‖, q ~ N(0, I_{d_k}); fewer nodes than `chi_rule`.

    Parameters
    ----------
    d_k : int
    scale : float
        As for `chi_rule`.
    n_keys : int
        The largest number of keys of the functions averaged.
    is_odd : bool, optional
        Whether they are smooth in r only, and not in r²: the largest weight.
    is_singular : bool, optional
        Whether they grow as 1/r² next to 0: the gradient where there is a needle.
    """
    width = scale * math.sqrt(d_k)
    for least, count in LAGUERRE:
        if d_k >= least:
            return _laguerre(d_k, count)
    if d_k >= NARROW_FROM and width <= NARROW_SCORES and not (is_odd or is_singular):
        return _laguerre(d_k, NARROW_NODES)
    if d_k >= NARROW_FROM and width <= SINGLE_UP_TO and not is_singular:
        return _gauss(*_legendre(d_k, n_keys, FINE_NODES), LENGTH_NODES)
    if width <= SINGLE_UP_TO:
        return _legendre(d_k, n_keys, SINGLE_NODES)
    return chi_rule(d_k, scale, n_keys)


def few_query_lengths(
    d_k: int, scale: float, n_keys: int, *, is_odd: bool = False, is_singular: bool = False
) -> tuple[Array, Array]:
    """Return six nodes and weights of such a rule, whatever the scale: for six digits from d_k = `FEW_FROM` on."""
    return _laguerre(d_k, FEW_NODES)


def _laguerre(d_k: int, count: int) -> tuple[Array, Array]:
    """Golub and Welsch: the nodes are eigenvalues."""
    # r²/2 has the weight x^α e⁻ˣ, whose recurrence has a_k = 2k + α + 1 and b_k = √(k(k + α)).
    alpha = d_k / 2 - 1
    k = np.arange(float(count))
    nodes, vectors = linalg.eigh_tridiagonal(2 * k + alpha + 1, np.sqrt(k[1:] * (k[1:] + alpha)))
    weight = vectors[0] ** 2
    return np.sqrt(2 * nodes), weight / weight.sum()


def _legendre(d_k: int, n_keys: int, count: int) -> tuple[Array, Array]:
    r, part = panel(*chi_window(d_k, n_keys), count)
    weight = part * np.exp(log_chi_weight(r, d_k))
    return r, weight / weight.sum()


def _gauss(x: Array, weight: Array, count: int) -> tuple[Array, Array]:
    """Return the rule of Gauss, of `count` nodes, for the measure of this one: Lanczos, then Golub and Welsch."""
    basis = [np.sqrt(weight)]
    diagonal, beside = [], []
    for _ in range(count):
        v = x * basis[-1]
        diagonal.append(float(v @ basis[-1]))
        for _ in range(2):  # once leaves what rounding put there
            v = v - np.array(basis).T @ (np.array(basis) @ v)
        beside.append(float(np.linalg.norm(v)))
        basis.append(v / beside[-1])
    nodes, vectors = linalg.eigh_tridiagonal(np.array(diagonal), np.array(beside[:-1]))
    return np.asarray(nodes, np.float64), np.asarray(vectors[0] ** 2, np.float64)
