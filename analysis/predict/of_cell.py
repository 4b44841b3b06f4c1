"""The exact value that a study's estimate must meet, wherever one exists."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from analysis.predict.beside_mechanism import as_cosine, beside_mechanism, is_normal
from analysis.predict.of_quantity import expectation_of
from analysis.vocabulary.laws import Law
from analysis.vocabulary.quantity import Quantity
from analysis.vocabulary.setting import Setting

# One double integral for each row of a causal mask: above this all rows stand under one integral.
_CAUSAL_MAX_WEIGHT_ROWS = 64


def predict(setting: Setting, statistic: str | float) -> float | None:
    """
    Return the exact value of a statistic of a quantity of random attention, or None where no exact value is known.

    Parameters
    ----------
    setting : Setting
        What is drawn and looked at; a callable quantity or law, or a score with a soft-cap, has no prediction. Beside
        a mechanism, a soft-cap or cosines a row has one where `beside_mechanism` says so. Under a causal mask the
        quantity is the mean over rows, and the prediction averages 1 to `n_keys` keys.
    statistic : {"mean", "variance", "rms", "median"} or float
        A number in (0, 1) is that quantile.

    Returns
    -------
    float or None
        Never an approximation.

    Notes
    -----
    For softmax quantities keys are Gaussian, and queries too (of mean 0) or Rademacher, so that ‖q‖ has a known law:
    given q the scores are then iid Gaussian up to a shift of the whole row, which softmax removes. A mean of k, what
    the keys share and their part along q are such shifts: the scale acts as scale·σ_q·σ_k·√(1 - key_correlation).
    A quantity of the scores themselves sees the shift, whose mean is E s: log Σ exp moves by as much. With n_keys = 1
    every softmax quantity is a constant, for any law and score.

    A cosine score of independent q and k has mean 0 and variance P(q ≠ 0) P(k ≠ 0)/d_k (1/d_k without atoms at 0) where
    the iid components of q, or those of k, are symmetric about 0, whatever the other's law: then E uuᵀ = P(q ≠ 0) I/d_k
    for u = q/‖q‖ (0 for q = 0), by the sign flip and exchange of components. Symmetric are the named laws but
    "exponential", and SciPy's norm of mean 0. The median of a score is then 0 too; predicted where it is the only one:
    not for the odd-dimensional product of Rademacher vectors, or a one-dimensional cosine, which are never 0.
    """
    if setting.mechanism.qk_norm is not None:
        setting = as_cosine(setting, setting.mechanism.qk_norm)
    record, scale = setting.record, setting.scale
    if record is None:
        return None
    if setting.n_keys == 1 and record.is_constant_for_one_key and not setting.mechanism.settings:
        return record.at_statistic(statistic, 1)
    if record.reads != "score" and (setting.mechanism.settings or setting.softcap or setting.score == "cosine"):
        return beside_mechanism(setting, statistic)
    if callable(setting.laws) or setting.softcap is not None:
        return None
    query, key = setting.laws
    if record.reads == "score":
        if scale == 0:
            return 0.0
        if not isinstance(statistic, str) or statistic == "median":
            return _score_quantile(setting, statistic, query, key)
        value = _score(setting, statistic, query, key)
        return None if value is None else value * (scale**2 if statistic == "variance" else _sign(statistic, scale))
    if setting.score != "dot" or record.exact is None or statistic != record.exact.statistic or not is_normal(key):
        return None
    value = _softmax(setting, record, query, scale * math.sqrt(key.variance * (1 - setting.key_correlation)))
    if value is None or record.reads != "scores":
        return value
    return value + scale * aligned_moments(setting.d_k, query, key, setting.alignment)[0]


def _softmax(setting: Setting, quantity: Quantity, query: Law, scale: float) -> float | None:
    """Evaluate at the law of ‖q‖ that the query has; `scale` already holds what the keys do to it."""
    assert quantity.exact is not None
    d_k, n_keys = setting.d_k, setting.n_keys
    rows: Any = n_keys
    function = expectation_of(quantity)
    if setting.is_causal:
        if quantity.exact.statistic != "mean":  # the mean over rows says nothing of their root mean square
            return None
        if quantity.exact.expectation == "expected_max_weight" and n_keys > _CAUSAL_MAX_WEIGHT_ROWS:
            function = partial(function, is_causal=True)
        else:
            rows = np.arange(1, n_keys + 1)
    if query.name == "rademacher":
        if quantity.reads == "query_gradient":
            return None
        values = function(rows, sigma=abs(scale) * math.sqrt(d_k))
    elif is_normal(query) and query.mean == 0:
        values = function(rows, d_k=d_k, scale=scale * math.sqrt(query.variance))
        if quantity.reads == "query_gradient":  # in units of 1/σ_q
            values = values / query.variance
    else:
        return None
    mean = float(np.mean(values))
    return mean if quantity.exact.of is None else float(quantity.exact.of(mean, n_keys))


def _sign(statistic: str | float, scale: float) -> float:
    return abs(scale) if statistic == "rms" else scale


def _score(setting: Setting, statistic: Any, query: Law, key: Law) -> float | None:
    """Give mean, variance and rms of one unscaled score."""
    d_k = setting.d_k
    if setting.score == "cosine":
        isotropic = setting.alignment == 0 and (query.is_symmetric or key.is_symmetric)
        mean, variance = (0.0, _not_zero(query, d_k) * _not_zero(key, d_k) / d_k) if isotropic else (math.nan, math.nan)
    elif setting.score == "dot":
        mean, variance = aligned_moments(d_k, query, key, setting.alignment)
    else:
        return None
    value = {"mean": mean, "variance": variance, "rms": math.sqrt(mean**2 + variance)}.get(statistic, math.nan)
    return value if math.isfinite(value) else None


def _score_quantile(setting: Setting, statistic: str | float, query: Law, key: Law) -> float | None:
    """Give the median of a symmetric score, and any quantile of the dot product of Gaussian vectors of mean 0."""
    if setting.alignment:
        return None
    level = 0.5 if isinstance(statistic, str) else float(statistic)
    if level == 0.5 and _has_median_zero(setting.d_k, query, key, setting.score):
        return 0.0
    if setting.score != "dot" or not all(is_normal(law) and law.mean == 0 for law in (query, key)):
        return None
    width = abs(setting.scale) * math.sqrt(query.variance * key.variance)
    if width == 0:
        return 0.0
    from analysis.predict.score_law import score_distribution

    return float(score_distribution(setting.d_k, width).ppf(level))


def _has_median_zero(d_k: int, query: Law, key: Law, score: Any) -> bool:
    """Tell where 0 is the only median, for the score of independent vectors of which one is symmetric."""
    if score not in ("dot", "cosine"):
        return False
    if query.name == key.name == "rademacher":
        return d_k % 2 == 0  # it is 0 with a positive probability
    # Given the other vector, the score has a density that is positive around 0 (or, where that vector is 0, is 0).
    dense = any(law.is_symmetric and law.name != "rademacher" for law in (query, key))
    return dense and (score == "dot" or d_k > 1)


def _not_zero(law: Law, d_k: int) -> float:
    """Return the probability that a vector of d_k such components is not 0; the cosine with a vector 0 is 0."""
    return 1.0 - law.zero_probability**d_k


def aligned_moments(d_k: int, query: Law, key: Law, alignment: float) -> tuple[float, float]:
    """
    Return mean and variance of kᵀq where k = μ_k + a σ_k (q - μ_q)/σ_q + √(1 - a²) (κ - μ_k), κ independent of q.

    Parameters
    ----------
    d_k : int
    query, key : Law
        The laws of the components of q and κ.
    alignment : float
        a in [-1, 1].

    Returns
    -------
    mean, variance : float
        Infinite or NaN where the moments are that they need (the fourth of q where a is not 0).
    """
    q_variance, k_variance = query.variance, key.variance
    slope = alignment * math.sqrt(k_variance / q_variance) if alignment else 0.0
    own = 1 - alignment**2
    linear = query.mean * slope + key.mean
    variance = linear**2 * q_variance + own * k_variance * (query.mean**2 + q_variance)
    if slope:
        variance += 2 * linear * slope * query.central_moment(3)
        variance += slope**2 * (query.central_moment(4) - q_variance**2)
    return d_k * (query.mean * key.mean + slope * q_variance), d_k * variance
