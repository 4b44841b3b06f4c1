"""Moments of one score scale·kᵀq for components of any law, and the variance that softmax sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from analysis.predict.arguments import whole_numbers
from analysis.vocabulary.laws import Law, law_pair
from analysis.vocabulary.scale import ScaleLike, resolve_scale, scale_of_one_score

LARGEST_SCALE = 1e75  # of which the fourth power is a float


@dataclass(frozen=True)
class ScoreMoments:
    """
    Exact moments of a score s = scale·kᵀq with iid components of q, iid components of k, q and k independent.

    Attributes
    ----------
    mean, variance : float
        E s and Var s.
    fourth_moment, fourth_central_moment : float
        E s⁴ and E(s - E s)⁴.
    skewness, excess_kurtosis : float
        E(s - E s)³/Var^(3/2), and E(s - E s)⁴/Var² - 3; NaN where the variance is 0.
    score_correlation : float
        Corr(s₁, s₂) of two keys that share the query; not 0 where the components of k have a mean.
    squared_score_correlation : float
        Corr(s₁², s₂²) of two keys that share the query: why entries of one score matrix are no independent replicates.
    softmax_variance : float
        Var(s₁ - s₂)/2, the variance that softmax sees: a shift common to all scores of a row does not change softmax.
    """

    mean: float
    variance: float
    fourth_moment: float
    fourth_central_moment: float
    skewness: float
    excess_kurtosis: float
    score_correlation: float
    squared_score_correlation: float
    softmax_variance: float


def score_moments(
    d_k: int, *, scale: ScaleLike = None, n_keys: int | None = None, law: Any = "normal", key_correlation: float = 0.0
) -> ScoreMoments:
    """
    Return the exact moments of scale·kᵀq, from the moments of the components of q and k up to the fourth.

    Parameters
    ----------
    d_k : int
        At least 1.
    scale : {"sqrt", "unscaled"}, number, expression or callable, optional
        None is 1/√d_k.
    n_keys : int, optional
        Needed only for a scale that depends on it.
    law : str, frozen scipy.stats distribution, or a pair of them for query and key
        Named laws are standardised to mean 0 and variance 1, frozen ones are used as given.
    key_correlation : float, optional
        Componentwise correlation ρ >= 0 of the keys with one another; it enters the last three attributes only, and
        the one of squares is known for ρ = 0 alone (NaN otherwise).

    Returns
    -------
    ScoreMoments
        Infinite or NaN where a moment of the law is.

    Raises
    ------
    ValueError
        For d_k not a whole number >= 1, an unknown law, key_correlation outside [0, 1], or a scale that depends on
        n_keys when none is given.

    Notes
    -----
    Cumulants of a sum of d_k iid products add. With q = μ_q + a and k = μ_k + b:
    E s = c d_k μ_q μ_k,  Var s = c² d_k (σ_q²σ_k² + μ_q²σ_k² + μ_k²σ_q²),
    excess kurtosis (β_q β_k - 3)/d_k for means 0, β = E x⁴/(E x²)²,
    softmax variance c² d_k σ_k² (σ_q² + μ_q²)(1 - ρ): the rest of Var s is common to the row.
    Exact; assumes iid components with the moments used.

    Source: Bienaymé's identity and the additivity of cumulants.
    """
    dimension = int(whole_numbers(d_k, "d_k")[()])
    keys = None if n_keys is None else int(whole_numbers(n_keys, "n_keys")[()])
    factor = scale_of_one_score(resolve_scale(scale), dimension, keys)
    if abs(factor) > LARGEST_SCALE:
        raise ValueError(f"scale must leave moments that a float holds: got {factor:.3g}")
    if not 0 <= key_correlation <= 1:
        raise ValueError(f"key_correlation must be in [0, 1]: got {key_correlation}")
    query, key = law_pair(law)
    product = [_product_central_moment(query, key, order) for order in range(5)]
    mean = dimension * query.mean * key.mean
    second, third, fourth = _sum_central_moments(dimension, product)
    shared = dimension * key.variance * (query.variance + query.mean**2)
    common = dimension * key.mean**2 * query.variance + key_correlation * shared
    raw_fourth = fourth + (4 * mean * third + 6 * mean**2 * second + mean**4 if mean else 0.0)
    return ScoreMoments(
        mean=factor * mean,
        variance=factor**2 * second,
        fourth_moment=factor**4 * raw_fourth,
        fourth_central_moment=factor**4 * fourth,
        skewness=_ratio(third * math.copysign(1, factor), second**1.5),
        excess_kurtosis=_ratio(product[4] - 3 * product[2] ** 2, dimension * product[2] ** 2),
        score_correlation=_ratio(common, second),
        squared_score_correlation=_squared_correlation(dimension, query, key, mean, (second, third, fourth))
        if key_correlation == 0
        else math.nan,
        softmax_variance=factor**2 * (1 - key_correlation) * shared,
    )


def _product_central_moment(query: Law, key: Law, order: int) -> float:
    """Return E(qk - μ_q μ_k)ⁿ by expanding (μ_q b + μ_k a + a b)ⁿ in the central moments of a and b."""
    total = 0.0
    for i in range(order + 1):
        for j in range(order + 1 - i):
            count = math.comb(order, i) * math.comb(order - i, j)
            means = query.mean**i * key.mean**j
            if means:  # an infinite moment counts only where it occurs
                rest = order - i - j
                total += count * means * query.central_moment(j + rest) * key.central_moment(i + rest)
    return total


def _sum_central_moments(count: int, central: list[float]) -> tuple[float, float, float]:
    """Return the central moments 2 to 4 of a sum of `count` iid terms whose central moments are given."""
    second = count * central[2]
    return second, count * central[3], count * central[4] + 3 * count * (count - 1) * central[2] ** 2


def _squared_correlation(d: int, query: Law, key: Law, mean: float, central: tuple[float, float, float]) -> float:
    """Return Corr(s₁², s₂²): Cov is the variance of E[s²|q] = σ_k²Σq² + μ_k²(Σq)²."""
    second, third, fourth = central
    m1, m2, m3, m4 = (query.raw_moment(order) for order in range(1, 5))
    of_squares = d * (m4 - m2**2)
    covariance = key.variance**2 * of_squares
    if key.mean:
        moments = _sum_central_moments(d, [query.central_moment(order) for order in range(5)])
        covariance += 2 * key.variance * key.mean**2 * (of_squares + 2 * d * (d - 1) * m1 * (m3 - m1 * m2))
        covariance += key.mean**4 * _variance_of_square(d * m1, *moments)
    return _ratio(covariance, _variance_of_square(mean, second, third, fourth))


def _variance_of_square(mean: float, second: float, third: float, fourth: float) -> float:
    return 4 * mean**2 * second + 4 * mean * third + fourth - second**2


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan
