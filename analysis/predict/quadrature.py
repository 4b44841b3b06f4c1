"""
Softmax of iid Gaussian scores, averaged exactly: one table per sigma serves every number of keys.

With w = exp(u + σZ), Z standard normal, the functions

    A_a(u) = E[wᵃ e⁻ʷ],   K(u) = E[κ(log w)],   q(u) = 1 - φ(u) = E[1 - e⁻ʷ]

depend on σ alone, and every expectation over n iid scores z ~ N(0, σ²) is an integral over u = log t of a product of
them with a power of φ, because Γ(a)·S⁻ᵃ = ∫ tᵃ⁻¹ e^(-tS) dt and the exponentials of independent scores separate. All
terms are positive, so nothing cancels, and the integrands are analytic on a strip, so the trapezoidal rule converges
exponentially.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

# Trapezoidal step in u: the weight exp(v - e^v) is analytic for |Im v| < π/2, so the error is of order exp(-π²/0.2).
STEP = 0.2
# Tails below exp(-38) of the total lie under rounding.
TAIL = 38.0
# The normal weight is negligible beyond this many standard deviations, and this step in them is at rounding.
NORMAL_REACH = 8.4
NORMAL_STEP = 0.7
# Where the logarithmic part of κ is taken from the series of the exponential integral.
SERIES_BELOW = 0.8
SERIES_TERMS = 18
# From some σ = 500 on the normal density is, over the range of v, a polynomial of less degree than this to rounding.
FAR_NODES = 14


class Expectations(NamedTuple):
    """
    Expectations over softmax weights p of n iid N(0, σ²) scores z, with J = diag(p) - p pᵀ; arrays of one shape.

    Attributes
    ----------
    logsumexp : E log Σ exp z
    entropy : E[-Σ p log p], nats
    power_sum_2, power_sum_3 : E Σ p², E Σ p³
    jacobian_trace : E tr J = 1 - E Σ p²
    jacobian_frobenius_squared : E‖J‖_F²
    jacobian_radial_squared : E‖J z‖²/σ², the response of p to a change of the length of z
    """

    logsumexp: Array
    entropy: Array
    power_sum_2: Array
    power_sum_3: Array
    jacobian_trace: Array
    jacobian_frobenius_squared: Array
    jacobian_radial_squared: Array


class _Table(NamedTuple):
    """The functions of u at one σ; `a21` is E[w² x e⁻ʷ] and so on, x a coordinate of the score in units of `unit`."""

    step: float
    unit: float
    q: Array
    kappa: Array
    a1: Array
    a11: Array
    a2: Array
    a21: Array
    a22: Array
    a3: Array


def gaussian_softmax(sigma: float, n_keys: Array) -> Expectations:
    """
    Average the softmax of iid N(0, σ²) scores, exactly to rounding.

    Parameters
    ----------
    sigma : float
        Standard deviation of the scores, finite and > 0.
    n_keys : ndarray of float, shape (n,)
        Whole numbers, at least 1.

    Returns
    -------
    Expectations
        Arrays of shape (n,), relative error a few 1e-15 (n_keys to 1e6, σ in 1e-3..200).
    """
    several = n_keys[n_keys > 1]
    if several.size == 0:
        return one_key(n_keys)
    table = _tabulate(sigma, float(several.min()), float(several.max()))
    many = _integrate(table, sigma, np.maximum(n_keys, 2.0))
    alone = n_keys == 1
    return Expectations(*(np.where(alone, one, value) for one, value in zip(one_key(n_keys), many, strict=True)))


def one_key(n_keys: Array) -> Expectations:
    """Give the values at n_keys = 1, where the only weight is 1."""
    zero, one = np.zeros_like(n_keys), np.ones_like(n_keys)
    return Expectations(zero, zero, one, one, zero, zero, zero)


def equal_scores(n_keys: Array) -> Expectations:
    """Give the values at σ = 0, where every weight is 1/n; the radial term is its limit, (n - 1)/n²."""
    spread = (n_keys - 1) / n_keys**2
    log_n = np.log(n_keys)
    return Expectations(log_n, log_n, 1 / n_keys, n_keys**-2.0, (n_keys - 1) / n_keys, spread, spread)


def _integrate(table: _Table, sigma: float, n: Array) -> Expectations:
    """Integrate the products over u for every n >= 2 (shape (k,)) by matrix products with the powers of φ."""
    log_phi = np.log1p(-np.minimum(table.q, 1 - 2.0**-53))
    phi_n2 = np.exp((n[:, None] - 2) * log_phi)
    phi_n3 = np.exp(np.maximum(n[:, None] - 3, 0) * log_phi)
    phi_n1 = phi_n2 * np.exp(log_phi)
    step = table.step
    pairs = n * (n - 1) * step
    triples = pairs * (n - 2)
    a1, a2, a11, a21, a22 = table.a1, table.a2, table.a11, table.a21, table.a22
    trace = pairs * (phi_n2 @ a1**2)
    entropy = pairs * (phi_n2 @ (table.kappa * a1))
    frobenius = pairs / 3 * (phi_n2 @ a2**2) + triples / 6 * (phi_n3 @ (a2 * a1**2))
    # Σ p_i² p_j p_k (x_i - x_j)(x_i - x_k): the terms j = k, then the terms with three distinct keys.
    # The only differences here; they keep 13 digits, and only the gradient of the query uses them.
    radial = pairs / 3 * (phi_n2 @ (a22 * a2 - a21**2))
    radial += triples / 6 * (phi_n3 @ (a22 * a1**2 - 2 * a21 * a1 * a11 + a2 * a11**2))
    return Expectations(
        logsumexp=entropy + sigma * (sigma * trace),
        entropy=entropy,
        power_sum_2=n * step * (phi_n1 @ a2),
        power_sum_3=n * step / 2 * (phi_n1 @ table.a3),
        jacobian_trace=trace,
        jacobian_frobenius_squared=frobenius,
        jacobian_radial_squared=radial * (table.unit / sigma) ** 2,
    )


def _window(sigma: float, n_min: float, n_max: float) -> tuple[float, float]:
    """Bound the u that matter for every n in [n_min, n_max]."""
    low = math.inf
    for order, need in ((1, math.log(n_max) + TAIL / 2), (2, math.log(n_max) + TAIL), (3, math.log(n_max) + TAIL)):
        reach = math.sqrt(2 * need)
        # The left tail of A_a is Gaussian while u > -aσ², and exponential, e^(au + a²σ²/2), below.
        gaussian = reach < order * sigma
        low = min(low, -sigma * reach - 4 if gaussian else -(need + (order * sigma) ** 2 / 2) / order - 2)
    high = 6.6 * sigma + 4
    if n_min > 100:
        # φ^(n-2) < e⁻⁴⁵ where q > 45/(n-2); both bounds follow from q >= 0.93 Φ((u-1)/σ) and q >= (1 - exp(-e^u))/2.
        enough = 45 / (n_min - 2)
        high = min(high, 1 + sigma * float(special.ndtri(enough / 0.93)), math.log(-math.log1p(-2 * enough)))
    return low, high


def _tabulate(sigma: float, n_min: float, n_max: float) -> _Table:
    """Tabulate the functions of u, whichever of the two variables of the inner average is the wide one."""
    low, high = _window(sigma, n_min, n_max)
    if sigma < 1:
        return _tabulate_narrow(sigma, low, high)
    return _tabulate_wide(sigma, low, high, math.log(n_max))


def _tabulate_narrow(sigma: float, low: float, high: float) -> _Table:
    """For σ < 1: the inner average is a trapezoid in z, against the normal weight; x = z."""
    rows = math.ceil((high - low) / STEP) + 1
    stride = max(1, math.ceil(STEP / (NORMAL_STEP * sigma))) if sigma > 0.02 else 0
    z_step = STEP / (stride * sigma) if stride else NORMAL_STEP
    # E[e^(3z) ...] lives around z = 3σ.
    z = z_step * np.arange(-math.ceil(NORMAL_REACH / z_step), math.ceil((NORMAL_REACH + 3 * sigma) / z_step) + 1)
    weight = np.exp(-(z**2) / 2)
    weight /= weight.sum()
    start = low + sigma * z[0]
    if stride:  # all u + σz lie on one lattice: evaluate once, and read rows as windows
        v = start + STEP / stride * np.arange((rows - 1) * stride + z.size)
    else:
        v = start + STEP * np.arange(rows)[:, None] + sigma * (z - z[0])

    def average(values: Array, powers: int = 1) -> Array:
        matrix = sliding_window_view(values, z.size)[::stride] if stride else values
        result: Array = np.ascontiguousarray(matrix) @ (weight * z ** np.arange(powers)[:, None]).T
        return result

    w = np.exp(v)
    a1 = w * np.exp(-w)
    one, two = average(a1, 2), average(w * a1, 3)
    return _Table(
        step=STEP,
        unit=sigma,
        q=average(-np.expm1(-w))[:, 0],
        kappa=average(_kappa(v))[:, 0],
        a1=one[:, 0],
        a11=one[:, 1],
        a2=two[:, 0],
        a21=two[:, 1],
        a22=two[:, 2],
        a3=average(w * w * a1)[:, 0],
    )


def _tabulate_wide(sigma: float, low: float, high: float, log_n: float) -> _Table:
    """For σ >= 1: the inner average is a trapezoid in v = log w, against the weight wᵃ e⁻ʷ; x = v."""
    # φⁿ is as rough as its complex zeros are near: at Im u = πσ/(2√(2 log n)), which 0.26σ/√(2 log n) resolves.
    stride = max(1, int(1.3 * sigma / math.sqrt(2 * log_n + 1)))
    step = stride * STEP
    rows = math.ceil((high - low) / step) + 1
    # In descending order, so that u - v rises along rows and columns alike.
    v, weights = _wide_weights(math.ceil((TAIL + log_n) / STEP))
    lattice = stride < v.size  # u - v then takes few values: evaluate once, and read rows as windows
    if lattice:
        x = (low - v[0] + STEP * np.arange((rows - 1) * stride + v.size)) / sigma
    else:
        v, weights = _far_weights(v.size - 21)
        x = (low + step * np.arange(rows)[:, None] - v) / sigma

    def matrix(values: Array) -> Array:
        return np.ascontiguousarray(sliding_window_view(values, v.size)[::stride]) if lattice else values

    density = matrix(np.exp(-(x**2) / 2) / (sigma * math.sqrt(2 * math.pi)))
    a_1, a_11, a_2, a_21, a_22, a_3, kappa = (density @ weights).T
    q: Array = matrix(special.ndtr(x)) @ weights[:, 0]
    return _Table(step, 1.0, q, kappa, a_1, a_11, a_2, a_21, a_22, a_3)


@lru_cache(maxsize=64)
def _wide_weights(below: int) -> tuple[Array, Array]:
    """Return the nodes v, from 20 steps above 0 to `below` steps below it, and their weights; not to be written to."""
    v: Array = STEP * np.arange(20.0, -below - 1, -1)
    w = np.exp(v)
    a1 = w * np.exp(-w)
    return v, STEP * np.stack([a1, a1 * v, a1 * w, a1 * w * v, a1 * w * v**2, a1 * w**2, _kappa(v)], axis=1)


@lru_cache(maxsize=64)
def _far_weights(below: int) -> tuple[Array, Array]:
    """Return a few nodes that do the work of `_wide_weights` on polynomials in v of degree FAR_NODES - 1."""
    v, weights = _wide_weights(below)
    middle, half = (v[0] + v[-1]) / 2, (v[0] - v[-1]) / 2
    nodes = np.polynomial.chebyshev.chebpts1(FAR_NODES)[::-1]
    values = np.polynomial.chebyshev.chebvander((v - middle) / half, FAR_NODES - 1)
    at_nodes = np.polynomial.chebyshev.chebvander(nodes, FAR_NODES - 1)
    return np.asarray(middle + half * nodes), np.asarray(np.linalg.solve(at_nodes.T, values.T @ weights), np.float64)


def _kappa(v: Array) -> Array:
    """Evaluate κ(v) = -∫ (γ + x) exp(x - e^x) dx over x < v, that is E1(w) + e⁻ʷ(v + γ) with w = e^v; >= 0."""
    w = np.exp(v)
    small = w < SERIES_BELOW
    result = np.empty_like(w)
    k = np.arange(1, SERIES_TERMS + 1)
    coefficients = np.concatenate([[0.0], -((-1.0) ** k) / (k * special.factorial(k))])
    ws, vs = w[small], v[small]
    entire: Any = np.polynomial.polynomial.polyval(ws, coefficients)  # ∫ (1 - e⁻ˢ)/s ds over (0, w)
    result[small] = entire + np.expm1(-ws) * (np.euler_gamma + vs)
    wl = w[~small]
    result[~small] = special.exp1(wl) + np.exp(-wl) * (v[~small] + np.euler_gamma)
    return result
