"""What an exact value says, in words: the lines that `attnsym predict` prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.predict.arguments import standard_deviations
from analysis.predict.exact import (
    expected_entropy,
    expected_jacobian_frobenius_squared,
    expected_jacobian_trace,
    expected_logsumexp,
    expected_max_weight,
    expected_power_sum,
    expected_query_gradient_squared,
)
from analysis.predict.moments import score_moments
from analysis.predict.routes import Values
from analysis.predict.score_law import score_distribution
from analysis.vocabulary.scale import resolve_scale, scale_of_one_score


@dataclass(frozen=True)
class Predictable:
    """
    A quantity that the command line predicts.

    Attributes
    ----------
    formula : str
        What is averaged.
    function : callable
        (n_keys, sigma= or d_k= and scale=, method=) -> the value.
    meaning : callable
        (value, n_keys) -> a phrase that puts the value between its limits.
    """

    formula: str
    function: Callable[..., Values]
    meaning: Callable[[float, int], str]


@dataclass(frozen=True)
class Prediction:
    """One predicted value with where it holds, as `attnsym predict --json` prints it."""

    quantity: str
    formula: str
    value: float
    meaning: str
    n_keys: int | None
    d_k: int | None
    scale: str | None
    sigma: float | None
    method: str


def predictions(
    quantity: str,
    *,
    n_keys: list[int] | None = None,
    d_k: list[int] | None = None,
    scale: list[str] | None = None,
    sigma: list[float] | None = None,
    method: str = "quadrature",
) -> list[Prediction]:
    """
    Predict one quantity over a grid of settings.

    Parameters
    ----------
    quantity : str
        A key of `PREDICTABLE`.
    n_keys : list of int, optional
        Not needed for "score_variance" alone, unless a scale depends on it.
    d_k, scale : list, optional
        Dimensions of Gaussian query and keys, and scales as `resolve_scale` reads them (1/√d_k without them).
    sigma : list of float, optional
        Instead of d_k and scale: standard deviations of iid Gaussian scores.
    method : {"quadrature", "direct"}, optional

    Returns
    -------
    list of Prediction
        In the order d_k (or sigma), n_keys, scale.

    Raises
    ------
    ValueError
        For an unknown quantity and whatever the expectations refuse.
    """
    if quantity not in PREDICTABLE:
        raise ValueError(f"QUANTITY must be one of {', '.join(PREDICTABLE)}: got {quantity!r}")
    if sigma is not None and (d_k is not None or scale is not None):
        raise ValueError("give either --sigma or --d-k with --scale: got both")
    if scale is not None and not scale:
        raise ValueError("--scale is empty: name at least one, such as sqrt or unscaled")
    if sigma is None and d_k is None:
        raise ValueError("give --d-k (with --scale), or --sigma, the standard deviation of the scores: got neither")
    if sigma is not None and quantity == "query_gradient_squared":
        raise ValueError(
            "query_gradient_squared needs --d-k: the gradient with respect to q depends on the keys' length"
        )
    if n_keys is None and quantity != "score_variance":
        raise ValueError(f"{quantity} needs --n-keys, the number of keys: got none")
    wheres: list[dict[str, Any]] = [{"sigma": x} for x in sigma or []]
    wheres += [{"d_k": d, "scale": s} for d in d_k or [] for s in scale or ["sqrt"]]
    lengths: Sequence[int | None] = [None] if n_keys is None else n_keys
    return [_predict(quantity, n, where, method) for where in wheres for n in lengths]


def _predict(quantity: str, n_keys: int | None, where: dict[str, Any], method: str) -> Prediction:
    known = PREDICTABLE[quantity]
    value = float(known.function(n_keys, **where, method=method))
    place = {"d_k": None, "scale": None, "sigma": None} | where
    return Prediction(quantity, known.formula, value, known.meaning(value, n_keys or 1), n_keys, method=method, **place)


def _score_variance(
    n_keys: int | None, *, d_k: int = 1, scale: Any = None, sigma: float | None = None, method: str
) -> float:
    """Give Var(scale·kᵀq); the second route is the second moment of its exact law."""
    if sigma is not None:
        return float(standard_deviations(sigma)) ** 2
    if method == "direct":
        factor = scale_of_one_score(resolve_scale(scale), d_k, n_keys)
        return float(score_distribution(d_k, factor).var()) if factor else 0.0
    return score_moments(d_k, scale=scale, n_keys=n_keys).variance


def _deviation(value: float, n: int) -> str:
    return f"standard deviation {math.sqrt(value):.6g}; softmax saturates as it grows beyond √(2 log n_keys)"


def _entropy(value: float, n: int) -> str:
    if n == 1:
        return "one key has no entropy"
    return f"{value / math.log(n):.2%} of log n_keys; as spread as {math.exp(value):.4g} equal weights"


def _logsumexp(value: float, n: int) -> str:
    return f"{value - math.log(n):.6g} above log n_keys, its value for scores of 0"


def _power_sum_2(value: float, n: int) -> str:
    return f"{1 / value:.4g} equal weights would give it; 1/n_keys if uniform, 1 if one-hot"


def _power_sum_3(value: float, n: int) -> str:
    return f"{value * n**2:.4g} times 1/n_keys², its value for equal weights; 1 if one-hot"


def _trace(value: float, n: int) -> str:
    return (
        f"{value * n / (n - 1):.2%} of 1 - 1/n_keys, its value for equal weights" if n > 1 else "one key: no gradient"
    )


def _frobenius(value: float, n: int) -> str:
    return f"root mean square of ‖J‖_F, and of ‖J g‖ for g ~ N(0, I): {math.sqrt(value):.4g}"


def _max_weight(value: float, n: int) -> str:
    return f"{value * n:.4g} times 1/n_keys, its value for equal weights"


def _query_gradient(value: float, n: int) -> str:
    return f"root mean square of ‖∂(gᵀp)/∂q‖ for g ~ N(0, I): {math.sqrt(value):.4g}"


PREDICTABLE = {
    "score_variance": Predictable("Var(scale·kᵀq)", _score_variance, _deviation),
    "entropy": Predictable("E[-Σ p log p], nats", expected_entropy, _entropy),
    "logsumexp": Predictable("E log Σ exp z", expected_logsumexp, _logsumexp),
    "power_sum_2": Predictable("E Σ p²", lambda n, **where: expected_power_sum(2, n, **where), _power_sum_2),
    "power_sum_3": Predictable("E Σ p³", lambda n, **where: expected_power_sum(3, n, **where), _power_sum_3),
    "jacobian_trace": Predictable("E tr J, J = diag(p) - p pᵀ", expected_jacobian_trace, _trace),
    "jacobian_frobenius_squared": Predictable("E ‖J‖_F²", expected_jacobian_frobenius_squared, _frobenius),
    "max_weight": Predictable("E max p", expected_max_weight, _max_weight),
    "query_gradient_squared": Predictable("E ‖∂(gᵀp)/∂q‖²", expected_query_gradient_squared, _query_gradient),
}
