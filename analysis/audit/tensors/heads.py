"""One head: its rows, the account of its variance, the verdict and the cause."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors import verdicts
from analysis.audit.tensors.account import Account, account
from analysis.audit.tensors.layers import HeadItem, HeadPlace, counted, measure_head
from analysis.audit.tensors.row_means import RowCounts, RowMeans, row_means
from analysis.audit.tensors.rows import HeadAudit

Array = NDArray[Any]


def audit_head(place: HeadPlace, items: list[HeadItem], predict: Callable[[float, Array], Array]) -> HeadAudit:
    """
    Return the record of one head.

    Parameters
    ----------
    place : HeadPlace
    items : list of HeadItem
        One per batch item.
    predict : callable
        (sigma, n_keys array) -> expected entropy of iid Gaussian scores, in nats.
    """
    measured = measure_head(place, items)
    counts = RowCounts.of(measured, items)
    if not counts.rows:
        word = "not finite" if counts.rows_nonfinite else "no usable rows"
        return _record(place, counts, RowMeans(), Account(), word, None, (None, None))
    used = [(rows.visible >= 2) & rows.finite for rows in measured]
    means = row_means(place.d_k, counted(measured), [int(keep.sum()) for keep in used], predict)
    found = _account(items, used, place.scale)
    word = verdicts.verdict(
        rows=counts.rows,
        nonfinite=counts.rows_nonfinite,
        dead_row_fraction=means.dead_row_fraction,
        jacobian_trace=means.jacobian_trace,
        entropy_ratio=means.entropy_ratio,
        predicted=means.predicted_entropy_ratio,
        standard_error=means.entropy_ratio_standard_error,
    )
    near_uniform, variance = word == "near uniform", means.within_row_variance
    reason = verdicts.cause(found, place.d_k, near_uniform=near_uniform, within_row_variance=variance)
    return _record(place, counts, means, found, word, reason, _values(items))


def _record(
    place: HeadPlace,
    counts: RowCounts,
    means: RowMeans,
    found: Account,
    word: str,
    reason: verdicts.Cause | None,
    values: tuple[float | None, float | None],
) -> HeadAudit:
    parts = {
        field.name: getattr(part, field.name)
        for part in (place, counts, means, found)
        for field in dataclasses.fields(part)
    }
    return HeadAudit(
        **parts,
        verdict=word,
        cause=None if reason is None else reason.words,
        cause_factor=float("nan") if reason is None else reason.factor,
        value_norm=values[0],
        first_value_norm_ratio=values[1],
    )


def _account(items: list[HeadItem], used: list[Array], scale: float) -> Account:
    queries, keys = [], []
    for item, keep in zip(items, used, strict=True):
        good = np.isfinite(item.key.astype(np.float32, copy=False)).all(axis=1)
        if keep.any() and good.sum() > 1:
            queries.append(item.query[keep])
            keys.append(item.key[good])
    return account(queries, keys, scale) if queries else Account()


def _values(items: list[HeadItem]) -> tuple[float | None, float | None]:
    values = [item.value.astype(np.float64) for item in items if item.value is not None and len(item.value)]
    if not values:
        return None, None
    norm = float(np.sqrt(np.concatenate([np.vecdot(v, v) for v in values]).mean()))
    first = float(np.mean([np.linalg.norm(v[0]) for v in values]))
    return norm, first / norm if norm > 0 else float("nan")
