"""
One key's part in an exact expectation: functions of u = log t for a law of its score, to be multiplied over keys.

With w = exp(u + s) and φ(u) = E e⁻ʷ, a key enters as log φ and as ratios E[f(s) wᵃ e⁻ʷ]/φ, which we call its columns.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from analysis.predict.mechanism.key_law import Array, KeyLaw
from analysis.predict.quadrature import STEP, TAIL, _kappa, _wide_weights

# Shares below e^-DEEPEST of another's are 0: not far beyond, a float ends.
DEEPEST = 600.0
# Column -> the power of w, and whether the score, or the part x that the query moves, multiplies it.
NAMES = ("one", "two", "three", "kappa", "score", "slope", "one_x", "two_x", "two_xx")
# From this deviation on a normal law is averaged over v = log w instead of over the score.
WIDE = 2.0
# From this one on, few nodes in v are enough: as many as e^(v/2) takes, and more for a narrower density.
VERY_WIDE = 8.0
LEAST_NODES = 48
# Values of exp(-e^(u+s)) held at once, and in all: some second's worth.
POINTS_AT_ONCE = 2_000_000
MOST_POINTS = 40_000_000


def columns(law: KeyLaw, u: Array, names: frozenset[str], log_n: float) -> dict[str, Array]:
    """
    Tabulate a key.

    Parameters
    ----------
    law : KeyLaw
        Of the key's score, but for a shift that u already holds.
    u : ndarray, shape (n,)
    names : set of str
        Some of NAMES: "one", "two", "three" are E[wᵃ e⁻ʷ]/φ, "kappa" E[κ(log w)]/φ with κ as in `quadrature`, "score"
        E[s w e⁻ʷ]/φ, "slope" E[(ds/dx)² w² e⁻ʷ]/φ, "one_x" and so on E[y wᵃ e⁻ʷ]/φ with y = x ds/dx.
    log_n : float
        Of the number of keys: the more, the smaller the w that still matter.

    Returns
    -------
    dict
        Name to array of shape (n,), and "log_phi". Where φ underflows the ratios are 0: nothing is left to multiply.

    Raises
    ------
    ValueError
        For capped or cosine scores so wide that this would take many seconds.
    """
    if law.is_constant:
        return _constant(law, u, names)
    if law.is_plain and law.sigma >= WIDE:
        return _wide(law, u, names, log_n)
    x, weight = law.nodes()
    if u.size * x.size > MOST_POINTS:
        raise ValueError(
            f"scores this wide (of size {law.width:.4g} before a soft-cap of {law.cap:.4g}) have no quick exact value"
        )
    at_once = max(1, POINTS_AT_ONCE // x.size)
    parts = [_average(law, u[i : i + at_once], x, weight, names) for i in range(0, u.size, at_once)]
    return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def further(law: KeyLaw, highest: float) -> float:
    """
    Return how much smaller w than usual matter to a key whose u + mean never exceeds `highest`: a sink is above.

    E[w e⁻ʷ; w < e^v] is under rounding for v below x - √(max(x, 0)² + 2 TAIL σ²), x = u + mean + σ².
    """
    if not law.is_plain:
        return 0.0
    x = min(highest, 0.0) + law.sigma**2
    return min(max(0.0, math.hypot(max(x, 0.0), math.sqrt(2 * TAIL) * law.sigma) - x - TAIL), DEEPEST)


def _average(law: KeyLaw, u: Array, x: Array, weight: Array, names: frozenset[str]) -> dict[str, Array]:
    """Average over the nodes of the law itself."""
    s, slope = law.score(x), law.slope(x)
    w = np.exp(np.minimum(u[:, None] + s, 6.0))  # e⁻ʷ < 1e-170 beyond
    lost = -np.expm1(-w)
    kept = np.exp(-w)
    y = x * slope if not law.dimension else x
    weights = weight[:, None] * np.stack([np.ones_like(s), s, slope**2, y, y**2], axis=1)
    damped = w * kept
    first = damped @ weights
    moments = {"one": first[:, 0], "score": first[:, 1], "one_x": first[:, 3]}
    if names & {"two", "three", "slope", "two_x", "two_xx"}:
        damped *= w
        second = damped @ weights
        moments |= {"two": second[:, 0], "slope": second[:, 2], "two_x": second[:, 3], "two_xx": second[:, 4]}
    if "three" in names:
        moments["three"] = (damped * w) @ weight
    if "kappa" in names:
        moments["kappa"] = kappa(u[:, None] + s) @ weight
    return _ratios(lost @ weight, kept @ weight, moments, names)


def _ratios(lost: Array, kept: Array, moments: dict[str, Array], names: frozenset[str]) -> dict[str, Array]:
    """Divide by φ, which is 1 - lost or `kept`, whichever keeps its digits."""
    dead = kept < 1e-290
    phi = np.where(lost < 0.5, 1 - lost, np.where(dead, 1.0, kept))
    log_phi = np.where(lost < 0.5, np.log1p(-np.minimum(lost, 0.5)), np.where(dead, -745.0, np.log(phi)))
    return {"log_phi": log_phi} | {name: np.where(dead, 0.0, moments[name] / phi) for name in names}


def _constant(law: KeyLaw, u: Array, names: frozenset[str]) -> dict[str, Array]:
    """Give the columns of a constant, where e⁻ʷ cancels."""
    s = law.constant
    v = np.minimum(u + s, 6.0)  # e⁻ʷ < 1e-170 beyond
    w = np.exp(v)
    capped = 0.0 if law.cap == 0 else 1.0 / math.cosh(min(abs(law.mean) / law.cap, 300.0)) ** 2
    y, slope = law.mean * capped, capped**2
    known = {"one": w, "two": w**2, "three": w**3, "score": s * w, "slope": slope * w**2, "one_x": y * w,
             "two_x": y * w**2, "two_xx": y**2 * w**2}  # fmt: skip
    if "kappa" in names:
        known["kappa"] = kappa(v) * np.exp(w)
    return {"log_phi": -w} | {name: known[name] for name in names}


def _wide(law: KeyLaw, u: Array, names: frozenset[str], log_n: float) -> dict[str, Array]:
    """Average over v = log w against wᵃ e⁻ʷ: a few nodes, since the density is smooth on the scale of sigma."""
    centred = u + law.mean
    below = TAIL + 5 + log_n + further(law, float(centred[-1]))
    v, half_root, weights = _compressed(math.ceil(below / STEP), law.sigma)
    x = (centred[:, None] - v) / law.sigma
    density = np.exp(half_root - x**2 / 2) / (law.sigma * math.sqrt(2 * math.pi))
    a1, a11, a2, a21, a22, a3, k = (density @ weights).T
    left = centred < 0
    part = (special.ndtr(np.where(left[:, None], x, -x)) * np.exp(half_root)) @ weights[:, 0]
    moments = {
        "one": a1, "two": a2, "three": a3, "kappa": k, "score": a11 - u * a1, "slope": a2,
        "one_x": a11 - u * a1, "two_x": a21 - u * a2, "two_xx": a22 - 2 * u * a21 + u**2 * a2,
    }  # fmt: skip
    return _ratios(np.where(left, part, 1 - part), np.where(left, 1 - part, part), moments, names)


def _compressed(below: int, sigma: float) -> tuple[Array, Array, Array]:
    """
    Return few nodes v, v/2, and weights for e^(v/2) times functions that are smooth on the scale of sigma.

    The factor e^(v/2) is half of the weights' own decay: without it the density where it is largest, which the weights
    all but ignore, would set the size of the interpolation's error.
    """
    reach = (20 + below) * STEP / 2
    needed = LEAST_NODES + math.ceil(9.2 * reach / sigma / 8) * 8
    return _chebyshev(below, needed if sigma >= VERY_WIDE else 0)


@lru_cache(maxsize=128)
def _chebyshev(below: int, count: int) -> tuple[Array, Array, Array]:
    """Interpolate at `count` Chebyshev nodes what `_wide_weights` sums over the whole lattice (count 0: do not)."""
    v, weights = _wide_weights(below)
    weights = weights * np.exp(-v / 2)[:, None]
    if not 0 < count < v.size:
        return v, v / 2, weights
    middle, half = (v[0] + v[-1]) / 2, (v[0] - v[-1]) / 2
    nodes = np.polynomial.chebyshev.chebpts1(count)
    moments = np.polynomial.chebyshev.chebvander((v - middle) / half, count - 1).T @ weights
    moments[1:] *= 2
    at_nodes = np.polynomial.chebyshev.chebvander(nodes, count - 1)
    place = middle + half * nodes
    return np.asarray(place), np.asarray(place / 2), np.asarray(at_nodes @ moments / count)


def kappa(v: Array) -> Array:
    """Evaluate κ(v) of `quadrature`, 0 where it is under rounding."""
    flat = np.minimum(v.ravel(), 6.0)
    result = np.zeros_like(flat)
    matters = flat < 4.6
    result[matters] = _kappa(flat[matters])
    return result.reshape(v.shape)
