"""The exact law of one score scale·kᵀq of Gaussian vectors, as a scipy.stats distribution."""

from __future__ import annotations

import math
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from analysis.predict.arguments import whole_numbers
from analysis.vocabulary.scale import ScaleLike, resolve_scale, scale_of_one_score

Array = NDArray[np.float64]

# Parts of an integrand below e^-45 of its peak are dropped; on what is left the trapezoid is at rounding with steps of
# 0.1 in log r (the integrand is analytic for |Im log r| < π/4) or 0.4 of the width of its peak.
DROP = 45.0
LOG_STEP = 0.1
PEAK_STEP = 0.4
NEWTON_STEPS = 100


def score_distribution(d_k: int, scale: ScaleLike = None) -> Any:
    """
    Return the law of scale·kᵀq for independent q, k ~ N(0, I_{d_k}), frozen.

    Parameters
    ----------
    d_k : int
        At least 1.
    scale : {"sqrt", "unscaled"}, number, expression in d_k, or callable, optional
        None is 1/√d_k. Its sign does not matter: the law is symmetric.

    Returns
    -------
    frozen distribution
        With the methods of scipy.stats: pdf, logpdf, cdf, sf, logsf, ppf, isf, mean, var, stats, moment, rvs, ...

    Raises
    ------
    ValueError
        For d_k not a whole number >= 1, a scale of 0 (the score is then the constant 0), or one that depends on n_keys.

    Notes
    -----
    The variance-gamma law with density |x|^ν K_ν(|x|)/(√π Γ(d/2) 2^ν), ν = (d - 1)/2, at scale 1: a normal mixture over
    ‖q‖ ~ chi(d), mgf (1 - t²)^(-d/2) for |t| < 1, variance d, excess kurtosis 6/d. At d = 1 the density is K₀(|x|)/π,
    infinite at 0; at d = 2 it is the Laplace law. Evaluated from the mixture, where K_ν would overflow; relative errors
    of pdf and sf of some 1e-13, far into the tails (logpdf and logsf where they underflow).

    Source: Kotz, Kozubowski and Podgórski, The Laplace Distribution and Generalizations (2001), chapter 4.
    """
    dimension = int(whole_numbers(d_k, "d_k")[()])
    factor = scale_of_one_score(resolve_scale(scale), dimension, None)
    if factor == 0:
        raise ValueError("scale must not be 0 here: the score would be the constant 0, which has no density")
    return score_law(dimension, scale=abs(factor))


_FAR = 1e8
_quiet = np.errstate(all="ignore")  # densities and tails underflow where they are 0, and SciPy divides by the scale


class ScoreLaw(stats.rv_continuous):
    """The variance-gamma law of kᵀq: its shape parameter is d_k; `score_distribution` freezes it."""

    def _argcheck(self, *shape: Any) -> Any:
        (d,) = shape
        return (d >= 1) & (d == np.floor(d))

    def _logpdf(self, x: Any, *shape: Any) -> Any:
        return _by_dimension(_log_density, np.abs(x), *shape)

    def _pdf(self, x: Any, *shape: Any) -> Any:
        return np.exp(self._logpdf(x, *shape))

    def _logsf(self, x: Any, *shape: Any) -> Any:
        tail = _by_dimension(_log_tail, np.abs(x), *shape)
        return np.where(x >= 0, tail, np.log1p(-np.exp(tail)))

    def _sf(self, x: Any, *shape: Any) -> Any:
        tail = np.exp(_by_dimension(_log_tail, np.abs(x), *shape))
        return np.where(x >= 0, tail, 1 - tail)

    def _logcdf(self, x: Any, *shape: Any) -> Any:
        return self._logsf(-x, *shape)

    def _cdf(self, x: Any, *shape: Any) -> Any:
        return self._sf(-x, *shape)

    def _ppf(self, q: Any, *shape: Any) -> Any:
        return -self._isf(q, *shape)

    def _isf(self, q: Any, *shape: Any) -> Any:
        sign = np.where(q <= 0.5, 1.0, -1.0)
        return sign * _by_dimension(_tail_quantile, np.minimum(q, 1 - q), *shape)

    def _stats(self, *shape: Any, **_: Any) -> Any:
        d = np.asarray(shape[0], dtype=np.float64)
        return np.zeros_like(d), d, np.zeros_like(d), 6 / d

    def _munp(self, n: Any, *shape: Any) -> Any:
        d, order = np.asarray(shape[0], dtype=np.float64), int(n)
        if order % 2:
            return np.zeros_like(d)
        # E Zⁿ · E‖q‖ⁿ = (n - 1)!! · d (d + 2) ... (d + n - 2)
        return math.prod(range(1, order, 2)) * math.prod(d + j for j in range(0, order, 2))

    def _rvs(self, *shape: Any, size: Any = None, random_state: Any = None) -> Any:
        return np.sqrt(random_state.chisquare(shape[0], size)) * random_state.standard_normal(size)


for _name in (
    "pdf", "logpdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf", "mean", "median", "var", "std", "stats", "moment",
    "entropy", "expect", "interval", "rvs",
):  # fmt: skip
    setattr(ScoreLaw, _name, _quiet(getattr(stats.rv_continuous, _name)))

score_law = ScoreLaw(name="score_law", shapes="d")


def _by_dimension(function: Any, x: Any, d: Any) -> Array:
    """Call function(x, d) with one scalar d at a time."""
    x, d = np.broadcast_arrays(np.asarray(x, dtype=np.float64), d)
    result = np.empty(x.shape)
    for dimension in np.unique(d):
        chosen = d == dimension
        result[chosen] = function(x[chosen], float(dimension))
    return result


def _far_too(near: Any) -> Any:
    """
    Extend the log density, or the log tail, beyond what the integral resolves, by its leading term.

    K_ν(x) is √(π/(2x))·e⁻ˣ(1 + O(ν²/x)), the tail is the density times 1 + O(d/x), and the logarithm is near -x: beyond
    x = 1e8·d rounding leaves nothing else.
    """

    @wraps(near)
    def everywhere(x: Array, d: float) -> Array:
        result = np.full(x.shape, -np.inf)
        far = (x > _FAR * d) & np.isfinite(x)
        result[far] = (d / 2 - 1) * np.log(x[far]) - x[far] - math.lgamma(d / 2) - d / 2 * math.log(2)
        result[x <= _FAR * d] = near(x[x <= _FAR * d], d)
        result[np.isnan(x)] = np.nan
        return result

    return everywhere


@_far_too
def _log_density(x: Array, d: float) -> Array:
    """Return log of the density at x >= 0."""
    if d == 1:
        with np.errstate(divide="ignore"):  # K₀ is infinite at 0
            return np.asarray(np.log(special.kve(0, x)) - x - math.log(math.pi))
    y = x / math.sqrt(d)
    return _log_mixture(y, d, d - 1, lambda ratio: -(ratio**2) / 2) - math.log(2 * math.pi * d) / 2


@_far_too
def _log_tail(x: Array, d: float) -> Array:
    """Return log P(X > x) at x >= 0."""
    return _log_mixture(x / math.sqrt(d), d, d, lambda ratio: special.log_ndtr(-ratio))


def _log_mixture(y: Array, d: float, power: float, log_kernel: Any) -> Array:
    """
    Return log ∫ e^(power·t - d(e^(2t) - 1)/2) · kernel(y e⁻ᵗ) dt minus that of the chi weight (power d, kernel 1).

    t = log(r/√d). The kernel is at most exp(-(y e⁻ᵗ)²/2), so that the exponent power·t - d e^(2t)/2 - y² e^(-2t)/2,
    which is concave, tells where the integrand matters.
    """
    y = y[:, None]
    square = (power + np.sqrt(power**2 + 4 * d * y**2)) / (2 * d)  # e^(2t) at the peak
    peak = np.log(square) / 2

    def below_peak(s: Array) -> Array:
        """Exponent at peak + s, minus that at the peak."""
        return power * s - (d * square / 2) * np.expm1(2 * s) - (y**2 / square / 2) * np.expm1(-2 * s)

    low, high = _drop(below_peak, -1.0, power), _drop(below_peak, 1.0, power)
    width = 1 / np.sqrt(2 * d * square + 2 * y**2 / square)
    steps = math.ceil(float(np.max((high - low) / np.minimum(LOG_STEP, PEAK_STEP * width), initial=1.0)))
    s = low + (high - low) * (np.arange(steps + 1) / steps)
    t = peak + s
    exponent = power * t - (d / 2) * np.expm1(2 * t) + log_kernel(y * np.exp(-t))
    total = special.logsumexp(exponent, axis=1) + np.log((high - low)[:, 0] / steps)
    result: Array = np.asarray(total - _log_chi_norm(d), dtype=np.float64)
    return result


def _drop(below_peak: Any, sign: float, power: float) -> Array:
    """Bisect for where the exponent is DROP below its peak, on one side of it."""
    far = sign * (DROP / power + 2.0) if sign < 0 else sign * 3.0
    inside = np.zeros_like(below_peak(np.zeros((1, 1))))
    outside: Array = np.full_like(inside, far)
    for _ in range(40):
        middle = (inside + outside) / 2
        within = below_peak(middle) > -DROP
        inside, outside = np.where(within, middle, inside), np.where(within, outside, middle)
    return outside


def _log_chi_norm(d: float) -> float:
    """Return log ∫ e^(d t - d(e^(2t) - 1)/2) dt = log[Γ(d/2) (2e/d)^(d/2)/2]; by Stirling where Γ would cost digits."""
    z = d / 2
    if z < 32:
        return float(special.gammaln(z)) + z - z * math.log(z) - math.log(2)
    remainder = 1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5) - 1 / (1680 * z**7)
    return math.log(2 * math.pi / z) / 2 + remainder - math.log(2)


def _tail_quantile(p: Array, d: float) -> Array:
    """Solve log P(X > x) = log p, p <= 1/2, by Newton's method inside a bracket."""
    with np.errstate(divide="ignore"):
        goal = np.log(p)
    low, high = np.zeros_like(p), np.full_like(p, math.sqrt(d))
    solvable = np.isfinite(goal)
    while np.any(beyond := solvable & (_log_tail(high, d) > goal)):
        high[beyond] *= 2
    x = high / 2
    for _ in range(NEWTON_STEPS):
        tail = _log_tail(x, d)
        low, high = np.where(tail > goal, x, low), np.where(tail > goal, high, x)
        step = (tail - goal) / np.exp(_log_density(x, d) - tail)
        moved = x + step
        inside = (moved > low) & (moved < high)
        moved = np.where(inside, moved, (low + high) / 2)
        if np.all(np.abs(moved - x) <= 4e-16 * np.abs(x)):
            break
        x = moved
    return np.where(solvable, np.where(p == 0.5, 0.0, x), np.inf)
