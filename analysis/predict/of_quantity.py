"""The function behind a quantity's exact value, by the name that its record gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analysis.predict import exact
from analysis.predict.arguments import standard_deviations
from analysis.predict.routes import Values
from analysis.predict.row_sums import expected_row_sum, row_sum_variance
from analysis.predict.score_law import score_distribution
from analysis.predict.score_moments import score_moments
from analysis.vocabulary.quantity import Exact, Quantity
from analysis.vocabulary.scale import resolve_scale, scale_of_one_score


def exact_of(quantity: Quantity) -> Exact:
    """Return what is known exactly of a quantity; ValueError where nothing is."""
    if quantity.exact is None:
        raise ValueError(f"{quantity.name} has no exact value: a study measures it")
    return quantity.exact


def expectation_of(quantity: Quantity) -> Callable[..., Values]:
    """
    Return the expectation that a quantity's exact value is made from.

    Returns
    -------
    callable (n_keys, *, sigma=None, d_k=None, scale=None, ...) -> float or ndarray
        The function of `analysis.predict.exact` with the record's own arguments before; `value_of` goes on from it.

    Raises
    ------
    ValueError
        For a quantity without an exact value, or one that names a function which is not there.
    """
    known = exact_of(quantity)
    own: dict[str, Any] = {
        "score_variance": score_variance,
        "expected_row_sum": expected_row_sum,
        "row_sum_variance": row_sum_variance,
    }
    function: Any = own.get(known.expectation) or getattr(exact, known.expectation, None)
    if function is None:
        raise ValueError(f"quantity {quantity.name!r}: analysis.predict has no expectation {known.expectation!r}")
    return lambda n_keys, **where: function(*known.arguments, n_keys, **where)


def value_of(quantity: Quantity) -> Callable[..., Values]:
    """Return the exact value of a quantity's statistic as a function, called as `expectation_of` says."""
    known, expectation = exact_of(quantity), expectation_of(quantity)
    if known.of is None:
        return expectation
    of = known.of

    def value(n_keys: Any, **where: Any) -> Values:
        result: Values = of(expectation(n_keys, **where), n_keys)
        return result

    return value


def score_variance(
    n_keys: int | None, *, d_k: int = 1, scale: Any = None, sigma: float | None = None, method: str = "quadrature"
) -> float:
    """Return Var(scale·kᵀq) of Gaussian vectors; the second route is the second moment of its exact law."""
    if sigma is not None:
        return float(standard_deviations(sigma)) ** 2
    if abs(scale_of_one_score(resolve_scale(scale), d_k, n_keys)) > 1e100:
        raise ValueError(f"scale must be at most 1e+100 in size here: got {scale}")
    if method == "direct":
        factor = scale_of_one_score(resolve_scale(scale), d_k, n_keys)
        return float(score_distribution(d_k, factor).var()) if factor else 0.0
    return score_moments(d_k, scale=scale, n_keys=n_keys).variance
