"""The exact value that a study's estimate must meet, wherever one exists."""

from __future__ import annotations

import math
from typing import Any, Literal

from analysis.exact import (
    Values,
    expected_entropy,
    expected_jacobian_frobenius_squared,
    expected_jacobian_trace,
    expected_max_weight,
    expected_query_gradient_squared,
)
from analysis.laws import Law
from analysis.moments import law_pair, score_moments

Statistic = str | float

# Quantity and statistic -> the expectation, and whether its root is asked for.
_SOFTMAX: dict[tuple[str, str], tuple[Any, bool]] = {
    ("entropy", "mean"): (expected_entropy, False),
    ("jacobian_trace", "mean"): (expected_jacobian_trace, False),
    ("max_weight", "mean"): (expected_max_weight, False),
    ("jacobian_norm", "rms"): (expected_jacobian_frobenius_squared, True),
    # E‖J g‖² = E‖J‖_F² for g ~ N(0, I) independent of J.
    ("score_gradient_norm", "rms"): (expected_jacobian_frobenius_squared, True),
    ("query_gradient_norm", "rms"): (expected_query_gradient_squared, True),
}


def predict(
    quantity: str,
    statistic: Statistic,
    *,
    d_k: int,
    n_keys: int,
    scale: float,
    law: Any = "normal",
    alignment: float = 0.0,
    key_correlation: float = 0.0,
    score: Literal["dot", "cosine"] | str = "dot",
    softcap: float | None = None,
    is_causal: bool = False,
) -> float | None:
    """
    Return the exact value of a statistic of a quantity of random attention, or None where no exact value is known.

    Parameters
    ----------
    quantity, statistic
        As in `run_study`: "score", "entropy", ...; "mean", "variance", "rms", "median" or a level in (0, 1).
    d_k, n_keys : int
        At least 1; `n_keys` is not used for "score".
    scale : float
        The factor itself, finite.
    law
        One law, or a pair for query and key, as `resolve_law` takes them; anything else has no prediction.
    alignment : float
        Componentwise correlation of q with each k.
    key_correlation : float
        Componentwise correlation of the keys with one another.
    score, softcap, is_causal
        Predictions are for the dot product without soft-cap and mask (and for the moments of a cosine score).

    Returns
    -------
    float or None
        Never an approximation.

    Notes
    -----
    For softmax quantities q and k are Gaussian and q has mean 0: conditionally on q the scores are iid Gaussian up to a
    shift of the whole row, which softmax removes. A mean of k, the part of the keys that is common to all of them
    (key_correlation ρ) are such shifts, so that the scale acts as scale·σ_q·σ_k·√(1-ρ).
    """
    laws = _resolved(law)
    if laws is None or softcap is not None:
        return None
    if quantity == "score":
        return _score(statistic, d_k, scale, laws, alignment, key_correlation, score)
    if score != "dot" or is_causal or not isinstance(statistic, str) or (quantity, statistic) not in _SOFTMAX:
        return None
    query, key = laws
    if not (_is_normal(query) and _is_normal(key) and query.mean == 0 and alignment == 0):
        return None
    function, root = _SOFTMAX[quantity, statistic]
    effective = scale * math.sqrt(query.variance * key.variance * (1 - key_correlation))
    value: Values = function(n_keys, d_k=d_k, scale=effective)
    if quantity == "query_gradient_norm":  # the gradient of q is in units of 1/σ_q
        value = value / query.variance
    return math.sqrt(float(value)) if root else float(value)


def _resolved(law: Any) -> tuple[Law, Law] | None:
    try:
        return law_pair(law)
    except ValueError:
        return None


def _is_normal(law: Law) -> bool:
    """Recognise SciPy's own frozen norm too; a user's class of that name carries a fingerprint behind its arguments."""
    return law.name == "normal" or (law.name.startswith("norm(") and law.name.endswith(")"))


def _score(
    statistic: Statistic,
    d_k: int,
    scale: float,
    laws: tuple[Law, Law],
    alignment: float,
    key_correlation: float,
    score: str,
) -> float | None:
    """Give mean, variance and rms of one score; a shared part of the keys leaves standardised moments as they are."""
    if score != "dot" or alignment != 0:
        return None
    if key_correlation and not all(law.mean == 0 for law in laws):
        return None
    moments = score_moments(d_k, scale=scale, law=laws)
    values = {
        "mean": moments.mean,
        "variance": moments.variance,
        "rms": math.hypot(moments.mean, moments.variance**0.5),
    }
    value = values.get(statistic) if isinstance(statistic, str) else None
    return value if value is not None and math.isfinite(value) else None
