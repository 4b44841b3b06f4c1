"""Leading behaviour of the softmax expectations, each with the order of its error; the exact values are elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from analysis.predict.arguments import standard_deviations, whole_numbers
from analysis.vocabulary.names import ExpandedName

APERY = float(special.zeta(3))


@dataclass(frozen=True)
class Asymptotic:
    """
    An asymptotic value and what it leaves out.

    Attributes
    ----------
    value : float
    error_order : str
        In σ, for fixed n_keys: "σ¹²" means that the error is O(σ¹²) as σ → 0.
    next_term : float
        The first term left out where its coefficient is known, else NaN: an estimate of the error while it is small.
    """

    value: float
    error_order: str
    next_term: float


# Coefficients of s^k in E log Σ exp z - log n, s = σ²: a power of n below, a polynomial in n (highest power first)
# times n - 1 above, and the common divisor.
_LOGSUMEXP_SERIES = (
    (1, (1,), 2),
    (2, (-1,), 4),
    (3, (-1, 6), 12),
    (4, (-1, 30, -90), 48),
    (5, (-1, 114, -1236, 2520), 240),
    (6, (-1, 390, -11370, 72360, -113400), 1440),
)


@np.errstate(all="ignore")
def high_temperature(quantity: ExpandedName, n_keys: int, sigma: float) -> Asymptotic:
    """
    Expand in σ², for small σ at fixed n_keys.

    Parameters
    ----------
    quantity : {"logsumexp", "entropy", "jacobian_trace", "power_sum_2", "jacobian_frobenius_squared"}
    n_keys : int
        At least 1.
    sigma : float
        Standard deviation of the scores, >= 0.

    Returns
    -------
    Asymptotic
        logsumexp and entropy through σ¹⁰, trace and power sum through σ⁸, error one power of σ² further (its term is
        `next_term`); ‖J‖_F² through σ².

    Raises
    ------
    ValueError
        For another quantity, or bad n_keys or sigma.

    Notes
    -----
    E log Σ exp z = log n + s(n-1)/(2n) - s²(n-1)/(4n²) - s³(n-1)(n-6)/(12n³) - ..., s = σ². The others follow:
    E tr J = 2 d/ds and E H = (1 - 2s d/ds) of it. The series diverges; it is an expansion, not a sum.

    Source: cumulants of the mean of exp z.
    """
    n, s = _cell(n_keys, sigma)
    if s > 1e50:
        raise ValueError(f"sigma must be small for an expansion at high temperature: got {sigma}")
    if quantity == "jacobian_frobenius_squared":
        return Asymptotic((n - 1) / n**2 + s * (n - 1) * (n - 4) / n**3, "σ⁴", math.nan)
    factors = {
        "logsumexp": lambda k: s**k,
        "entropy": lambda k: (1 - 2 * k) * s**k,
        "jacobian_trace": lambda k: 2 * k * s ** (k - 1),
        "power_sum_2": lambda k: -2 * k * s ** (k - 1),
    }
    if quantity not in factors:
        raise _unknown(quantity, [*factors, "jacobian_frobenius_squared"])
    start = {"logsumexp": math.log(n), "entropy": math.log(n), "power_sum_2": 1.0}.get(quantity, 0.0)
    terms = [
        (n - 1) * float(np.polyval(above, n)) / (divisor * n**k) * factors[quantity](k)
        for k, above, divisor in _LOGSUMEXP_SERIES
    ]
    order = "σ¹²" if quantity in ("logsumexp", "entropy") else "σ¹⁰"
    return Asymptotic(start + math.fsum(terms[:-1]), order, terms[-1])


class NormalMaximum(NamedTuple):
    """
    Constants of the largest of n standard normals, of which the low-temperature expansions are made.

    Attributes
    ----------
    mean : float
        C_n, the expected maximum.
    second : float
        T_n = n(n-1)(n-2) ∫ φ³Φⁿ⁻³, which is 2(E max² - 1).
    third : float
        The coefficient of σ⁻³ in E log Σ exp z.
    gap : float
        g_n, the median distance between the largest and the second largest.
    """

    mean: float
    second: float
    third: float
    gap: float


@np.errstate(all="ignore")
def normal_maximum(n_keys: int) -> NormalMaximum:
    """
    Return the constants of the largest of n_keys standard normals.

    Parameters
    ----------
    n_keys : int
        At least 2.

    Returns
    -------
    NormalMaximum
        Relative error about 1e-14.

    Raises
    ------
    ValueError
        For n_keys < 2.

    Notes
    -----
    C_n = n(n-1) ∫ φ²Φⁿ⁻² (integration by parts; C₂ = 1/√π). The median gap solves n ∫ φ(x) Φ(x - g)ⁿ⁻¹ dx = 1/2.

    Source: order statistics of the normal law, David and Nagaraja (2003).
    """
    n = float(whole_numbers(n_keys, "n_keys")[()])
    if n < 2:
        raise ValueError(f"n_keys must be at least 2 here: got {n_keys}")
    step = 0.2 / math.sqrt(1 + math.log(n))
    reach = math.sqrt(2 * (40 + math.log(n)))
    x = step * np.arange(-math.ceil(8.8 / step), math.ceil(reach / step) + 1)
    density, log_cdf = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi), special.log_ndtr(x)
    pairs, triples = step * n * (n - 1), step * n * (n - 1) * (n - 2)
    mean = pairs * float(np.exp((n - 2) * log_cdf) @ density**2)
    second = triples * float(np.exp((n - 3) * log_cdf) @ density**3) if n > 2 else 0.0
    # From E max(σZ + Gumbel) with the cumulants π²/6 and π⁴/15 of the Gumbel law, to fourth order in 1/σ.
    fourth = step * n * float(np.exp((n - 1) * log_cdf) @ ((x**3 - 3 * x) * density))
    square = pairs / 2 * float(np.exp((n - 2) * log_cdf) @ (x * density) ** 2)
    third = math.pi**4 * (fourth / 160 - square / 144)

    def ahead(gap: float) -> float:
        return step * n * float(np.exp((n - 1) * special.log_ndtr(x - gap)) @ density) - 0.5

    return NormalMaximum(mean, second, third, float(optimize.brentq(ahead, 0.0, 3.0, xtol=1e-15)))


@np.errstate(all="ignore")
def low_temperature(quantity: ExpandedName, n_keys: int, sigma: float) -> Asymptotic:
    """
    Expand in 1/σ, for large σ at fixed n_keys: what unscaled attention (σ ≈ √d_k) does.

    Parameters
    ----------
    quantity : {"logsumexp", "entropy", "jacobian_trace", "power_sum_2", "jacobian_frobenius_squared", "max_weight"}
    n_keys : int
        At least 2.
    sigma : float
        Standard deviation of the scores, > 0; sensible for σ well above √(2 log n_keys).

    Returns
    -------
    Asymptotic

    Raises
    ------
    ValueError
        For another quantity, n_keys < 2 or sigma not > 0.

    Notes
    -----
    With C, T the constants of `normal_maximum` and a₃ its `third`:
    E log Σ exp z = Cσ + Cπ²/(12σ) + ζ(3)T/(6σ²) + a₃/σ³ + ...
    E H = π²C/(6σ) + ζ(3)T/(2σ²) + 4a₃/σ³ + ...,  E tr J = C/σ - π²C/(12σ³) - ζ(3)T/(3σ⁴) - 3a₃/σ⁵ + ...
    E‖J‖_F² = C/(3σ) - T/(6σ²) + O(σ⁻³),  E max p = 1 - (log 2) C/σ + O(σ⁻²).

    Source: log Σ exp z + Gumbel has the law of max(z + Gumbel); its cumulants expand the maximum.
    """
    c, t, a3, _ = normal_maximum(n_keys)
    _, s = _cell(n_keys, sigma)
    if s == 0:
        raise ValueError("sigma must be > 0 for an expansion in 1/σ: got 0")
    x = float(sigma)
    zeta = APERY * t
    trace = c / x - math.pi**2 * c / (12 * x**3) - zeta / (3 * x**4)
    values = {
        "logsumexp": (c * x + math.pi**2 * c / (12 * x) + zeta / (6 * s), "σ⁻³", a3 / x**3),
        "entropy": (math.pi**2 * c / (6 * x) + zeta / (2 * s), "σ⁻³", 4 * a3 / x**3),
        "jacobian_trace": (trace, "σ⁻⁵", -3 * a3 / x**5),
        "power_sum_2": (1 - trace, "σ⁻⁵", 3 * a3 / x**5),
        "jacobian_frobenius_squared": (c / (3 * x) - t / (6 * s), "σ⁻³", math.nan),
        "max_weight": (1 - math.log(2) * c / x, "σ⁻²", math.nan),
    }
    if quantity not in values:
        raise _unknown(quantity, list(values))
    return Asymptotic(*values[quantity])


@np.errstate(all="ignore")
def random_energy(quantity: ExpandedName, n_keys: int, sigma: float) -> Asymptotic:
    """
    Give the limit of many keys with σ/σ_c fixed, σ_c = √(2 log n): Derrida's random energy model.

    Parameters
    ----------
    quantity : {"logsumexp", "entropy", "jacobian_trace", "power_sum_2", "jacobian_frobenius_squared"}
    n_keys : int
        At least 2.
    sigma : float
        Standard deviation of the scores, >= 0, not equal to σ_c.

    Returns
    -------
    Asymptotic
        Without a known next term. The limit is reached so slowly that no transition is visible at practical n_keys:
        the entropy at σ_c is still a fifth of log n at n = 10¹².

    Raises
    ------
    ValueError
        For another quantity, n_keys < 2, or bad sigma.

    Notes
    -----
    Below σ_c: E H ≈ log n - σ²/2, E log Σ exp z ≈ log n + σ²/2, and to exponential order E Σp² ≈ exp(σ²)/n up to σ_c/2,
    where a few weights begin to carry the sum, then exp(-(σ_c - σ)²). Above, the weights tend to a Poisson-Dirichlet
    law with α = σ_c/σ:
    E tr J → α, E H → ψ(1) - ψ(1 - α), E‖J‖_F² → α(1 - α)/3; and E log Σ exp z ≈ σσ_c.

    Source: Derrida (1981), Phys. Rev. B 24, 2613; Pitman and Yor (1997), Ann. Probab. 25, 855.
    """
    n, s = _cell(n_keys, sigma)
    if n < 2:
        raise ValueError(f"n_keys must be at least 2 here: got {n_keys}")
    log_n = math.log(n)
    critical = math.sqrt(2 * log_n)
    below = float(sigma) < critical
    pairs = math.exp(s - log_n if 2 * float(sigma) < critical else -((critical - float(sigma)) ** 2))
    alpha = 1.0 if below else critical / float(sigma)
    values = {
        "logsumexp": log_n + s / 2 if below else float(sigma) * critical,
        "entropy": log_n - s / 2 if below else float(special.psi(1) - special.psi(1 - alpha)),
        "jacobian_trace": 1 - pairs if below else alpha,
        "power_sum_2": pairs if below else 1 - alpha,
        "jacobian_frobenius_squared": pairs if below else alpha * (1 - alpha) / 3,
    }
    if quantity not in values:
        raise _unknown(quantity, list(values))
    return Asymptotic(values[quantity], "o(log n_keys)" if quantity in ("logsumexp", "entropy") else "o(1)", math.nan)


def _cell(n_keys: int, sigma: float) -> tuple[float, float]:
    """Return n and σ² of one cell."""
    n, x = float(whole_numbers(n_keys, "n_keys")[()]), float(standard_deviations(sigma)[()])
    return n, x**2


def _unknown(quantity: str, known: list[str]) -> ValueError:
    return ValueError(f"quantity must be one of {', '.join(known)}: got {quantity!r}")
