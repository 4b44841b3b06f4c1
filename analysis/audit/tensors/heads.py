"""One head: its rows, their standard errors, the predictions and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors import verdicts
from analysis.audit.tensors.rows import Components, HeadAudit
from analysis.audit.tensors.score_rows import ScoreRows, Visible, score_rows, working_type
from analysis.audit.tensors.spread import Spread, spread

Array = NDArray[Any]

DEAD_ROW = 1e-3
MIN_GROUPS = 8
_NAN = float("nan")


@dataclass(frozen=True)
class HeadItem:
    """One head in one batch item, padding already cut away; `visible` and `bias` as for `score_rows`."""

    query: Array
    key: Array
    value: Array | None
    padded_rows: int
    visible: Visible | None = None
    bias: Callable[[slice], Array | None] | None = None


@dataclass(frozen=True)
class HeadPlace:
    """Where a head stands and how its scores are made."""

    layer: str
    head: int
    key_head: int
    d_k: int
    n_keys: int
    scale: float
    softcap: float | None


def audit_head(place: HeadPlace, items: list[HeadItem], predict: Callable[[float, Array], Array]) -> HeadAudit:
    """
    Return the row of one head.

    Parameters
    ----------
    place : HeadPlace
    items : list of HeadItem
        One per batch item.
    predict : callable
        (sigma, n_keys array) -> expected entropy of iid Gaussian scores, in nats.
    """
    measured, rows = measure_head(place, items)
    used = [(r.visible >= 2) & r.finite for r in measured]
    counts: dict[str, Any] = {
        "rows": int(sum(u.sum() for u in used)),
        "rows_padded": sum(item.padded_rows for item in items),
        "rows_short": int(sum((r.visible < 2).sum() for r in measured)),
        "rows_nonfinite": int(sum(((r.visible >= 2) & ~r.finite).sum() for r in measured)),
    }
    if not counts["rows"]:
        return _nothing(place, counts)
    grouped = _groups([int(u.sum()) for u in used])
    return _report(place, counts, rows, grouped, _account(items, used), _values(items), predict)


def measure_head(place: HeadPlace, items: list[HeadItem]) -> tuple[list[ScoreRows], ScoreRows]:
    """Return the rows of every batch item, and joined the rows that count: two visible keys or more, all finite."""
    measured = [_measure(place, item) for item in items]
    return measured, ScoreRows.joined([_select(rows, (rows.visible >= 2) & rows.finite) for rows in measured])


def _measure(place: HeadPlace, item: HeadItem) -> ScoreRows:
    if item.key.shape[0] == 0:
        none = np.zeros(len(item.query))
        return ScoreRows(**(dict.fromkeys(ScoreRows.__dataclass_fields__, none) | {"finite": none.astype(bool)}))
    dtype = working_type(item.query, item.key, place.scale)
    query, key = item.query.astype(dtype, copy=False), item.key.astype(dtype, copy=False)
    return score_rows(query, key, scale=place.scale, softcap=place.softcap, visible=item.visible, bias=item.bias)


def _select(rows: ScoreRows, keep: Array) -> ScoreRows:
    return ScoreRows(*(getattr(rows, name)[keep] for name in ScoreRows.__dataclass_fields__))


def _groups(sizes: list[int]) -> tuple[Array, str]:
    """Label every row by batch item, or by contiguous token block where there are fewer than eight items."""
    filled = [n for n in sizes if n]
    if len(filled) >= MIN_GROUPS:
        return np.repeat(np.arange(len(filled)), filled), "batch item"
    blocks = -(-MIN_GROUPS // len(filled))
    labels, start = [], 0
    for n in filled:
        labels.append(start + np.arange(n) * min(blocks, n) // n)
        start += min(blocks, n)
    return np.concatenate(labels), "token block"


def _standard_error(values: Array, groups: Array) -> float:
    """Return the standard error of the mean over rows when whole groups are the independent draws (ratio estimator)."""
    size = np.bincount(groups)
    if len(size) < 2:
        return _NAN
    deviations = np.bincount(groups, values - values.mean())
    return float(np.sqrt(len(size) / (len(size) - 1) * (deviations**2).sum()) / len(values))


def _account(items: list[HeadItem], used: list[Array]) -> Spread | None:
    queries, keys = [], []
    for item, keep in zip(items, used, strict=True):
        good = np.isfinite(item.key.astype(np.float32, copy=False)).all(axis=1)
        if keep.any() and good.sum() > 1:
            queries.append(item.query[keep])
            keys.append(item.key[good])
    return spread(queries, keys) if queries else None


def _values(items: list[HeadItem]) -> tuple[float | None, float | None]:
    values = [item.value.astype(np.float64) for item in items if item.value is not None and len(item.value)]
    if not values:
        return None, None
    norm = float(np.sqrt(np.concatenate([np.vecdot(v, v) for v in values]).mean()))
    first = float(np.mean([np.linalg.norm(v[0]) for v in values]))
    return norm, first / norm if norm > 0 else _NAN


def _report(
    place: HeadPlace,
    counts: dict[str, Any],
    rows: ScoreRows,
    grouped: tuple[Array, str],
    account: Spread | None,
    values: tuple[float | None, float | None],
    predict: Callable[[float, Array], Array],
) -> HeadAudit:
    measured = _row_fields(place, rows, grouped[0], predict)
    spread_fields = _account_fields(account, place.scale)
    word = verdicts.verdict(
        rows=counts["rows"],
        nonfinite=counts["rows_nonfinite"],
        dead_row_fraction=measured["dead_row_fraction"],
        jacobian_trace=measured["jacobian_trace"],
        entropy_ratio=measured["entropy_ratio"],
        predicted=measured["predicted_entropy_ratio"],
        standard_error=measured["entropy_ratio_standard_error"],
    )
    reason = verdicts.cause(
        near_uniform=word == "near uniform",
        within_row_variance=measured["within_row_variance"],
        **{name: spread_fields[name] for name in _CAUSE_FIELDS},
    )
    known = {**_place_fields(place), **counts, **measured, **spread_fields}
    known |= {"value_norm": values[0], "first_value_norm_ratio": values[1]}
    known |= {"groups": int(grouped[0].max()) + 1, "grouping": grouped[1], "verdict": word, "cause": reason}
    return HeadAudit(**known)


def _row_fields(
    place: HeadPlace, rows: ScoreRows, groups: Array, predict: Callable[[float, Array], Array]
) -> dict[str, float]:
    """Return what follows from the rows alone, named as in `HeadAudit`."""
    m, pairs = rows.visible, rows.visible.sum()
    pooled_mean = (m * rows.raw_mean).sum() / pairs
    pooled = float((m * (rows.raw_variance + (rows.raw_mean - pooled_mean) ** 2)).sum() / pairs)
    ratios = rows.entropy / np.log(m)
    sigma = float(np.sqrt((rows.variance * m / (m - 1)).mean()))  # unbiased: Gaussian scores of that σ vary as these do
    square = float((rows.variance**2).mean())
    whole = float((m * (rows.raw_variance + rows.raw_mean**2)).sum())
    inside = float((m * rows.raw_variance).sum())
    return {
        "score_variance": pooled,
        "score_variance_ratio": pooled / place.d_k,
        "within_row_variance": float(rows.variance.mean()),
        "within_row_variance_standard_error": _standard_error(rows.variance, groups),
        "excess_kurtosis": float(rows.fourth.mean()) / square - 3.0 if square > 0 else _NAN,
        "entropy": float(rows.entropy.mean()),
        "entropy_ratio": float(ratios.mean()),
        "entropy_ratio_standard_error": _standard_error(ratios, groups),
        "predicted_entropy_ratio": float((predict(sigma, m) / np.log(m)).mean()) if np.isfinite(sigma) else _NAN,
        "jacobian_trace": float(rows.jacobian_trace.mean()),
        "jacobian_trace_standard_error": _standard_error(rows.jacobian_trace, groups),
        "dead_row_fraction": float((rows.jacobian_trace < DEAD_ROW).mean()),
        "largest_score": float(rows.largest.max()),
        "first_key_share": float(rows.first_share.mean()),
        "row_mean_share": 1.0 - inside / whole if whole > 0 else _NAN,
    }


_CAUSE_FIELDS = (
    "factor_norm", "factor_channel", "factor_alignment", "shared_query_share", "largest_channel",
    "largest_channel_share",
)  # fmt: skip
_PLAIN_SPREAD = (
    "effective_dimension", "query_effective_dimension", "key_effective_dimension", "query_norm", "key_norm",
    "query_mean_share", "key_mean_share", "shared_query_share", "largest_channel", "largest_channel_share",
    "factor_mean", "factor_channel", "factor_alignment", "components",
)  # fmt: skip
_NO_COMPONENTS = Components((), (), (), ())


def _account_fields(account: Spread | None, scale: float) -> dict[str, Any]:
    if account is None:
        empty = dict.fromkeys(_PLAIN_SPREAD, _NAN) | {"largest_channel": -1, "components": _NO_COMPONENTS}
        scaled = ("predicted_variance_components", "predicted_variance_covariances", "factor_norm")
        return empty | dict.fromkeys(scaled, _NAN)
    return {name: getattr(account, name) for name in _PLAIN_SPREAD} | {
        "predicted_variance_components": scale**2 * account.from_components,
        "predicted_variance_covariances": scale**2 * account.from_covariances,
        "factor_norm": scale**2 * account.factor_norm,
    }


def _place_fields(place: HeadPlace) -> dict[str, Any]:
    return {name: getattr(place, name) for name in ("layer", "head", "key_head", "d_k", "n_keys", "scale")}


def _nothing(place: HeadPlace, counts: dict[str, Any]) -> HeadAudit:
    word = "not finite" if counts["rows_nonfinite"] else "no usable rows"
    known = {**_place_fields(place), **counts, **_account_fields(None, place.scale)}
    known |= {"value_norm": None, "first_value_norm_ratio": None, "groups": 0, "grouping": "-"}
    known |= {"verdict": word, "cause": None}
    return HeadAudit(**(dict.fromkeys(HeadAudit.__dataclass_fields__, _NAN) | known))
