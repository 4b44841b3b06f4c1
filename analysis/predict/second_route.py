"""
The second route to every exact expectation: other formulas, on other nodes, sharing no intermediate with the first.

Plain nested quadrature by Gauss-Legendre panels instead of trapezoids on a lattice, nothing integrated by parts, and
sums of terms of both signs instead of positive terms. It costs some 30 ms per (σ, n_keys), and loses digits by
cancellation at large σ, which is why it is the second route.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.predict.average import chi_window, log_chi_weight
from analysis.predict.maximum import legendre

Array = NDArray[np.float64]

PANEL_NODES = 14
PANEL_WIDTH = 1.5
LOG_TINY = 44.0
NORMAL_REACH = 9.4
# Beyond v = log w = 4.6 the factor e⁻ʷ is 0 to rounding.
V_MAX = 4.6


def direct(name: str, sigma: float, n_keys: int) -> float:
    """
    Evaluate one expectation over n_keys iid N(0, σ²) scores, by name of an attribute of `Expectations` or "max_weight".

    Parameters
    ----------
    name : str
    sigma : float
        Finite and > 0.
    n_keys : int
        At least 1.

    Returns
    -------
    float

    Notes
    -----
    With w = exp(u + z), z ~ N(0, σ²) and φ = E e⁻ʷ, all integrals over u:
    Σpᵃ: n/Γ(a) ∫ E[wᵃe⁻ʷ] φⁿ⁻¹;  H: -n ∫ E[(γ + log w) w e⁻ʷ] φⁿ⁻¹;  tr J: 1 - Σp²;  ‖J‖_F²: Σp² - 2Σp³ + (Σp²)²;
    log Σ exp: ∫ (exp(-e^u) - φⁿ), a Frullani integral;  ‖J z‖²: Σ p²z² - 2 Σp²z z̄ + Σp² z̄², z̄ = Σ p z.
    """
    if n_keys == 1:
        return 1.0 if name in ("power_sum_2", "power_sum_3", "max_weight") else 0.0
    if name == "max_weight":
        return _max_weight(sigma, n_keys)
    return _Nested(sigma, n_keys).value(name)


def direct_average(name: str, d_k: int, scale: float, n_keys: int) -> float:
    """
    Average over ‖q‖ by the tanh-sinh rule; the name may also be "query_gradient".

    Parameters
    ----------
    name : str
    d_k : int
    scale : float
        Finite and > 0.
    n_keys : int

    Returns
    -------
    float
    """
    r, weight = tanh_sinh_lengths(d_k, n_keys)
    if name == "query_gradient":
        across = weight @ [direct("jacobian_frobenius_squared", scale * x, n_keys) for x in r]
        along = weight @ [direct("jacobian_radial_squared", scale * x, n_keys) for x in r]
        return float(scale**2 * ((d_k - 1) * across + along))
    return float(weight @ [direct(name, scale * x, n_keys) for x in r])


def tanh_sinh_lengths(d_k: int, n_keys: int) -> tuple[Array, Array]:
    """Return nodes and weights for averages over ‖q‖: the tanh-sinh rule on the window of chi."""
    low, high = chi_window(d_k, n_keys)
    t = 0.04 * np.arange(-78, 79)
    s = np.pi * np.sinh(t)
    part = special.expit(s)  # (1 + tanh(s/2))/2, without cancellation at either end
    r = low + (high - low) * part
    weight = part * (1 - part) * np.cosh(t) * np.exp(log_chi_weight(r, d_k))
    weight /= weight.sum()
    used = weight > 1e-18 * np.minimum(1.0, r**2)  # what is averaged may grow as 1/r²: a needle's part along q
    return r[used], weight[used]


class _Nested:
    """The nested rule at one (σ, n): rows are u, columns are v = u + z between bounds of their own."""

    def __init__(self, sigma: float, n_keys: int) -> None:
        self.sigma, self.n = sigma, float(n_keys)
        log_n = math.log(n_keys)
        self.u, self.weight = _panels(*self._window(log_n), PANEL_WIDTH * max(1.0, 0.12 * sigma))
        low = np.maximum(self.u - NORMAL_REACH * sigma, -LOG_TINY - log_n)
        high = np.minimum(self.u + NORMAL_REACH * sigma + 4 * sigma**2, V_MAX)
        length = np.maximum(high - low, 0.0)
        nodes, weights = _panels(0.0, 1.0, PANEL_WIDTH * min(1.0, sigma) / max(float(length.max()), 1e-300))
        self.v = low[:, None] + length[:, None] * nodes
        self.z = self.v - self.u[:, None]
        density = np.exp(-((self.z / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))
        self.inner = density * weights * length[:, None]
        self.w = np.exp(self.v)
        self.damped = np.exp(-self.w) * self.inner
        q = np.sum(-np.expm1(-self.w) * self.inner, axis=1) + special.ndtr((self.u - V_MAX) / sigma)
        self.log_phi = np.log1p(-np.minimum(q, 1 - 2.0**-53))

    def _window(self, log_n: float) -> tuple[float, float]:
        low = 0.0
        for a in (1, 2, 3, 4):
            reach, tilt = math.sqrt(2 * (LOG_TINY + log_n)), a * self.sigma
            gaussian = reach < tilt
            low = min(low, -self.sigma * reach - 4 if gaussian else -(LOG_TINY + log_n + tilt**2 / 2) / a - 2)
        return low, NORMAL_REACH * self.sigma + 5

    def moment(self, order: int, power: int = 0) -> Array:
        """E[wᵃ zᵇ e⁻ʷ] for every u."""
        result: Array = np.sum(self.w**order * self.z**power * self.damped, axis=1)
        return result

    def integral(self, values: Array, chosen: int) -> float:
        """∫ values · φ^(n - chosen) du."""
        return float(self.weight @ (values * np.exp((self.n - chosen) * self.log_phi)))

    def power_sum(self, order: int) -> float:
        return self.n / math.gamma(order) * self.integral(self.moment(order), 1)

    def value(self, name: str) -> float:
        if name == "power_sum_2":
            return self.power_sum(2)
        if name == "power_sum_3":
            return self.power_sum(3)
        if name == "jacobian_trace":
            return 1 - self.power_sum(2)
        if name == "jacobian_frobenius_squared":
            return self.power_sum(2) - 2 * self.power_sum(3) + self._squared_power_sum()
        if name == "entropy":
            return -self.n * self.integral(np.sum((np.euler_gamma + self.v) * self.w * self.damped, axis=1), 1)
        if name == "logsumexp":
            return self._logsumexp()
        return self._radial()

    def _squared_power_sum(self) -> float:
        pairs = self.n * (self.n - 1) * self.integral(self.moment(2) ** 2, 2)
        return (self.n * self.integral(self.moment(4), 1) + pairs) / 6

    def _logsumexp(self) -> float:
        # The survival function of log Exp(1) has an edge of width 1; at σ > 1 that of N(0, σ²) resolves better.
        survival, mean = np.exp(-np.exp(np.minimum(self.u, 50))), 0.0
        if self.sigma > 1:
            survival, mean = special.ndtr(-self.u / self.sigma), -np.euler_gamma
        return mean + float(self.weight @ (survival - np.exp(self.n * self.log_phi)))

    def _radial(self) -> float:
        pairs, triples = self.n * (self.n - 1), self.n * (self.n - 1) * (self.n - 2)
        a11, a20, a22 = self.moment(1, 1), self.moment(2), self.moment(2, 2)
        own = self.n * self.integral(a22, 1)
        cross = self.n * self.integral(self.moment(3, 2), 1) + pairs * self.integral(self.moment(2, 1) * a11, 2)
        mean = self.n * self.integral(self.moment(4, 2), 1) + pairs * self.integral(a20 * a22, 2)
        mean += 2 * pairs * self.integral(self.moment(3, 1) * a11, 2)
        if self.n > 2:
            mean += triples * self.integral(a20 * a11**2, 3)
        return (own - cross + mean / 6) / self.sigma**2


def _max_weight(sigma: float, n_keys: int) -> float:
    """
    E max p = n ∫∫ φ(x) f(u) ψⁿ⁻¹: the chance that Gumbel noise on the scores leaves the largest score σx the winner.

    Each other key loses with probability ψ, 1 - ψ = Φ(-x) exp(-e^u) + ∫ f(u - y) Φ(y/σ - x) dy over y > 0, where e^u is
    exponential (the winner's noise) and f(u) = exp(u - e^u).
    """
    log_n = math.log(n_keys)
    reach = math.sqrt(2 * (LOG_TINY + log_n))
    u, u_weight = _panels(-LOG_TINY - log_n, 4.0, PANEL_WIDTH)
    x_low = float(special.ndtri_exp(-LOG_TINY / (n_keys - 1)))
    x, x_weight = _panels(max(x_low, -reach), reach, PANEL_WIDTH / math.sqrt(1 + log_n))
    end = min(sigma * (reach + NORMAL_REACH), LOG_TINY + log_n + 4)
    y, y_weight = _panels(0.0, end, PANEL_WIDTH * min(1.0, sigma))
    log_noise = u[:, None] - y
    noise = np.exp(log_noise - np.exp(log_noise))
    losing = noise @ (y_weight[:, None] * special.ndtr(y[:, None] / sigma - x))
    beyond = -np.expm1(-np.exp(u - end))  # there Φ(y/σ - x) is 1
    outside = special.ndtr(-x) * np.exp(-np.exp(u))[:, None] + losing + beyond[:, None]
    power = np.exp((n_keys - 1) * np.log1p(-np.minimum(outside, 1 - 2.0**-53)))
    x_density = x_weight * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return float(n_keys * (u_weight * np.exp(u - np.exp(u))) @ power @ x_density)


def _panels(start: float, end: float, width: float) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on panels of at most this width."""
    count = max(1, math.ceil((end - start) / width))
    nodes, weights = legendre(PANEL_NODES)
    half = (end - start) / count / 2
    left = start + 2 * half * np.arange(count, dtype=np.float64)[:, None]
    points: Array = (left + half * (nodes + 1)).ravel()
    return points, np.tile(half * weights, count)
