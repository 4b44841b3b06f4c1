"""The exact value of a study's estimate beside a mechanism: a sink, a bias, a soft-cap, cosines, another normalizer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from analysis.predict.of_quantity import expectation_of
from analysis.predict.row_sums import expected_row_sum, row_sum_variance
from analysis.vocabulary.laws import Law
from analysis.vocabulary.mechanism import cosine_factor
from analysis.vocabulary.setting import Setting

# Under a causal mask every row is an integral, of the largest weight a double one: above these no value is quick.
CAUSAL_ROWS = 1024
CAUSAL_MAX_WEIGHT_ROWS = 16


def as_cosine(setting: Setting, qk_norm: str) -> Setting:
    """Return the setting of the same scores as cosines: the product of normed vectors is one, times a factor."""
    return replace(
        setting,
        score="cosine",
        scale=setting.scale * cosine_factor(qk_norm, setting.d_k),
        mechanism=replace(setting.mechanism, qk_norm=None),
    )


def beside_mechanism(setting: Setting, statistic: str | float) -> float | None:
    """
    Return the exact value of a statistic of a row, or None where no exact value is known.

    Parameters
    ----------
    setting : Setting
        Of a record that reads more than one score, without qk_norm.
    statistic : str or float

    Returns
    -------
    float or None

    Notes
    -----
    Keys are Gaussian of mean 0 and independent of the query and of one another: what correlated keys share, or what a
    mean makes of them, shifts a row alike, which a sink, a soft-cap or a sigmoid sees. Then scores given q are
    independent N(0, (scale·σ_k·‖q‖)²), for queries that are Gaussian of mean 0 or Rademacher; cosines with keys in
    independent directions have one law for every query that is never 0.
    """
    record, what = setting.record, setting.mechanism
    assert record is not None
    if callable(setting.laws) or setting.score not in ("dot", "cosine"):
        return None
    query, key = setting.laws
    if setting.alignment or setting.key_correlation or not (is_normal(key) and key.mean == 0):
        return None
    scores = _scores(setting, query, key)
    if scores is None:
        return None
    try:
        if what.normalizer != "softmax":
            return _row_sum(setting, statistic, scores)
        if record.exact is None or statistic != record.exact.statistic:
            return None
        return _row(setting, scores)
    except ValueError:  # the arguments are sound: the expectation is infinite, or has no exact value here
        return None


def is_normal(law: Law) -> bool:
    """Recognise SciPy's own frozen norm too; a user's class of that name carries a fingerprint behind its arguments."""
    return law.name == "normal" or (law.name.startswith("norm(") and law.name.endswith(")"))


def _scores(setting: Setting, query: Law, key: Law) -> dict[str, Any] | None:
    """Return what the expectations call the law of a row's scores; None where they know none."""
    d_k, scale = setting.d_k, setting.scale
    gaussian = is_normal(query) and query.mean == 0
    if setting.score == "cosine":
        return {"score": "cosine", "d_k": d_k, "scale": abs(scale)} if not query.zero_probability else None
    width = abs(scale) * math.sqrt(key.variance)
    if gaussian:
        return {"d_k": d_k, "scale": width * math.sqrt(query.variance)}
    return {"sigma": width * math.sqrt(d_k)} if query.name == "rademacher" else None


def _row(setting: Setting, scores: dict[str, Any]) -> float | None:
    record, what, n_keys = setting.record, setting.mechanism, setting.n_keys
    assert record is not None
    assert record.exact is not None
    where = {**scores, "softcap": setting.softcap, "sink": what.sink, "bias": what.bias_of(n_keys)}
    if setting.is_causal:
        most = CAUSAL_MAX_WEIGHT_ROWS if record.name == "max_weight" else CAUSAL_ROWS
        if record.exact.statistic != "mean" or n_keys > most:
            return None
        where["is_causal"] = True
    by_query = record.reads == "query_gradient"
    if by_query:
        query = setting.laws[0]  # type: ignore[index]  # no callable comes here
        if not is_normal(query) or query.mean != 0:
            return None
    value = float(expectation_of(record)(n_keys, **{name: given for name, given in where.items() if given is not None}))
    if by_query:  # in units of 1/σ_q
        value /= query.variance
    return value if record.exact.of is None else float(record.exact.of(value, n_keys))


def _row_sum(setting: Setting, statistic: str | float, scores: dict[str, Any]) -> float | None:
    moment = {"mean": expected_row_sum, "variance": row_sum_variance}.get(str(statistic))
    plain = setting.score == "dot" and not (setting.softcap or setting.is_causal or setting.mechanism.bias)
    if moment is None or not plain or setting.record is None or setting.record.name != "row_sum":
        return None
    what: Any = {"normalizer": setting.mechanism.normalizer, "normalizer_bias": setting.mechanism.normalizer_bias}
    return float(moment(setting.n_keys, **what, **scores))
