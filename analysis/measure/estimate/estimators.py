"""From accumulated replicates to an estimate, its standard error, its interval, and whether its tail can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.measure.estimate.accumulators import Moments, OrderStatistics, Sample

Statistic = str | float

MIN_REPLICATES = 600  # Student's t then exceeds 3 within 5 % of the normal rate
MAX_SKEWNESS = 0.03  # of the estimate: |z| > 3 then happens within 5 % of its nominal rate
MIN_TAIL_COUNT = 500  # values expected on the rarer side of a quantile
_QUANTILE_SE_WIDTH = 3.0


@dataclass(frozen=True)
class Estimate:
    """
    One statistic of one cell.

    Attributes
    ----------
    estimate, standard_error : float
        The estimate, and the estimated standard deviation of the estimator.
    interval : (float, float)
        Confidence interval.
    calibrated : bool
        Whether (estimate − truth) / standard_error may be read as a standard normal out to three deviations.
    """

    estimate: float
    standard_error: float
    interval: tuple[float, float]
    calibrated: bool


def estimate(sample: Sample, statistic: Statistic, confidence_level: float) -> Estimate:
    """
    Estimate one statistic from the accumulated replicates.

    Parameters
    ----------
    sample : Sample
        At least two replicates; with order statistics if a quantile is asked for.
    statistic : {"mean", "variance", "rms", "median"} or float
        A number in (0, 1) is that quantile. The variance has divisor n − 1; rms is √(mean of squares).
    confidence_level : float
        Of the interval, in (0, 1).

    Notes
    -----
    Every standard error is √(Var I / n) with I the influence of one replicate: x − m for the mean, (x − m)² − m₂ for
    the variance, hence √((m₄ − m₂²(n−3)/(n−1))/n), which is right whatever the kurtosis, and (x² − E x²)/(2 rms) for
    rms. Intervals: Student's t for the mean; Bonett's for the variance, on the logarithm [1]_, with degrees of freedom
    from the kurtosis; the logarithm for rms; order statistics with exact binomial coverage for quantiles.

    The tail is called calibrated where n is at least 600 and the skewness of the estimate, skew(I)/√n, is at most
    0.03. Hall's expansion of a studentised mean [2]_ then puts the rate of |z| > 3 within 5 % of .27 %. For a quantile
    500 values must be expected on its rarer side, and the density must not double over three standard errors.

    References
    ----------
    .. [1] D. G. Bonett, "Approximate confidence interval for standard deviation of nonnormal distributions",
       Computational Statistics & Data Analysis 50 (2006), 775-782.
    .. [2] P. Hall, "The Bootstrap and Edgeworth Expansion", Springer, 1992, section 2.6.
    """
    if statistic == "mean":
        return _mean(sample.moments, confidence_level)
    if statistic == "variance":
        return _variance(sample.moments, confidence_level)
    if statistic == "rms":
        return _rms(sample.moments, confidence_level)
    assert sample.ordered is not None
    return _quantile(sample.ordered, 0.5 if statistic == "median" else float(statistic), confidence_level)


def bernoulli_mean(moments: Moments, confidence_level: float) -> Estimate:
    """Estimate the mean of a 0/1 quantity, with the Clopper-Pearson interval: no events in n is not an error of 0."""
    from scipy.special import betaincinv

    base = _mean(moments, confidence_level)
    n, tail = moments.count, (1.0 - confidence_level) / 2.0
    events = round(base.estimate * n)
    low = 0.0 if events == 0 else float(betaincinv(events, n - events + 1, tail))
    high = 1.0 if events == n else float(betaincinv(events + 1, n - events, 1.0 - tail))
    return Estimate(base.estimate, base.standard_error, (low, high), base.calibrated)


def _mean(moments: Moments, level: float) -> Estimate:
    n = moments.count
    error = math.sqrt(moments.averages[2] / (n - 1))
    reach = _student(level, n - 1) * error
    return Estimate(moments.mean, error, (moments.mean - reach, moments.mean + reach), _calibrated(moments, "mean"))


def _variance(moments: Moments, level: float) -> Estimate:
    n, m2, m4 = moments.count, moments.averages[2], moments.averages[4]
    value = moments.central[2] / (n - 1)
    error = _root((m4 - m2 * m2 * (n - 3) / (n - 1)) / n)
    if value == 0.0:
        return Estimate(0.0, 0.0, (0.0, 0.0), False)
    kurtosis = m4 / m2 / m2
    correction = n / max(n - _normal(level), 1.0)  # Bonett's c, which centres the interval at small n
    # s² behaves like a χ² of as many degrees of freedom as its relative variance (κ − 1)/n asks for.
    quantile = _student(level, max(2.0 * n / (kurtosis - 1.0), 1.0)) if kurtosis > 1.0 else _normal(level)
    reach = quantile * correction * _root((kurtosis - (n - 3) / n) / (n - 1))
    interval = (correction * value * math.exp(-reach), correction * value * math.exp(min(reach, 700.0)))
    # Where (x − m)² hardly varies (x = ±1), the error is of order 1/n and its law is χ², not normal.
    first_order = kurtosis - 1.0 > MIN_REPLICATES / n
    return Estimate(value, error, interval, first_order and _calibrated(moments, "variance"))


def _rms(moments: Moments, level: float) -> Estimate:
    n, mean, m2 = moments.count, moments.mean, moments.averages[2]
    square = mean * mean + m2
    if square == 0.0:
        return Estimate(0.0, 0.0, (0.0, 0.0), False)
    value, relative = math.sqrt(square), _root(moments.expect(moments.influence("rms"), 2) / (n - 1)) / square
    reach = _student(level, n - 1) * relative / 2.0
    interval = (value * math.exp(-reach), value * math.exp(min(reach, 700.0)))
    return Estimate(value, value * relative / 2.0, interval, _calibrated(moments, "rms"))


def _quantile(ordered: OrderStatistics, p: float, level: float) -> Estimate:
    n = ordered.count
    below, above = quantile_ranks(n, p, level)
    # The error is read off the spacing of the order statistics some binomial deviations either side.
    spread = math.sqrt(n * p * (1.0 - p))
    width = min(_QUANTILE_SE_WIDTH, (n - 1) * min(p, 1.0 - p) / spread)
    rank = p * (n - 1)
    value = ordered.value(rank)
    left, right = value - ordered.value(rank - width * spread), ordered.value(rank + width * spread) - value
    interval = (ordered.value(below), ordered.value(above))
    # Where the density changes much over that width, or has too few values in it, the spacing is no standard error.
    smooth = min(left, right) > max(left, right) / 2.0 and n * min(p, 1.0 - p) >= MIN_TAIL_COUNT
    return Estimate(value, (left + right) / (2.0 * width), interval, smooth)


def quantile_ranks(n: int, p: float, level: float) -> tuple[int, int]:
    """
    Return the 0-based ranks of the order statistics that bracket the p-quantile with at least that probability.

    The lower is −1, or the upper n, where n replicates are too few for it.
    """
    tail = (1.0 - level) / 2.0
    return _binomial_cut(n, p, tail), n - 1 - _binomial_cut(n, 1.0 - p, tail)


def _binomial_cut(n: int, p: float, tail: float) -> int:
    """Return the greatest k with P(Binomial(n, p) ≤ k) ≤ tail, −1 if there is none."""
    from scipy.special import bdtr

    k, step = -1, 1 << (n.bit_length() - 1)
    while step:
        if k + step < n and float(bdtr(k + step, n, p)) <= tail:
            k += step
        step >>= 1
    return k


def _calibrated(moments: Moments, statistic: str) -> bool:
    """Judge the tail by the skewness of the estimate; an overflow on the way makes a NaN, which is no pass."""
    with np.errstate(all="ignore"):
        influence = moments.influence(statistic)
        variance = np.float64(moments.expect(influence, 2))
        skewness = abs(moments.expect(influence, 3)) / variance**1.5 / math.sqrt(moments.count)
    return bool(moments.count >= MIN_REPLICATES and variance > 0.0 and skewness <= MAX_SKEWNESS)


def _root(value: float) -> float:
    return math.sqrt(max(value, 0.0))  # a plug-in variance of 0 may round below it


def _normal(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1.0 + level) / 2.0))


def _student(level: float, degrees: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1.0 + level) / 2.0))
