"""What a head's rows come to: means over rows, their standard errors, and the entropy expected of such scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors.layers import HeadItem
from analysis.audit.tensors.score_rows import ScoreRows
from analysis.vocabulary.row_formulas import DEAD_TRACE

Array = NDArray[Any]

MIN_GROUPS = 8
_NAN = float("nan")


@dataclass(frozen=True, kw_only=True)
class RowCounts:
    """Query rows that count, and those left out by reason; see `HeadAudit`."""

    rows: int
    rows_padded: int
    rows_short: int
    rows_nonfinite: int

    @classmethod
    def of(cls, measured: list[ScoreRows], items: list[HeadItem]) -> RowCounts:
        """Count the rows of every batch item."""
        return cls(
            rows=sum(int(((r.visible >= 2) & r.finite).sum()) for r in measured),
            rows_padded=sum(item.padded_rows for item in items),
            rows_short=sum(int((r.visible < 2).sum()) for r in measured),
            rows_nonfinite=sum(int(((r.visible >= 2) & ~r.finite).sum()) for r in measured),
        )


@dataclass(frozen=True, kw_only=True)
class RowMeans:
    """Statistics of a head over the rows that count; see `HeadAudit`."""

    score_variance: float = _NAN
    score_variance_ratio: float = _NAN
    within_row_variance: float = _NAN
    within_row_variance_standard_error: float = _NAN
    excess_kurtosis: float = _NAN
    entropy: float = _NAN
    entropy_ratio: float = _NAN
    entropy_ratio_standard_error: float = _NAN
    predicted_entropy_ratio: float = _NAN
    jacobian_trace: float = _NAN
    jacobian_trace_standard_error: float = _NAN
    dead_row_fraction: float = _NAN
    largest_score: float = _NAN
    largest_signed_score: float = _NAN
    first_key_share: float = _NAN
    row_mean_share: float = _NAN
    groups: int = 0
    grouping: str = "-"


def row_means(d_k: int, rows: ScoreRows, sizes: list[int], predict: Callable[[float, Array], Array]) -> RowMeans:
    """
    Return the statistics of at least one row.

    Parameters
    ----------
    d_k : int
    rows : ScoreRows
        The rows that count, batch items one after the other.
    sizes : list of int
        How many of them each batch item gave.
    predict : callable
        (sigma, n_keys array) -> expected entropy of iid Gaussian scores, in nats.
    """
    groups, grouping = _groups(sizes)
    m, pairs = rows.visible, rows.visible.sum()
    pooled_mean = (m * rows.raw_mean).sum() / pairs
    pooled = float((m * (rows.raw_variance + (rows.raw_mean - pooled_mean) ** 2)).sum() / pairs)
    ratios = rows.entropy / np.log(m)
    sigma = float(np.sqrt((rows.variance * m / (m - 1)).mean()))  # unbiased: Gaussian scores of that σ vary as these do
    square = float((rows.variance**2).mean())
    whole = float((m * (rows.raw_variance + rows.raw_mean**2)).sum())
    inside = float((m * rows.raw_variance).sum())
    return RowMeans(
        score_variance=pooled,
        score_variance_ratio=pooled / d_k,
        within_row_variance=float(rows.variance.mean()),
        within_row_variance_standard_error=_standard_error(rows.variance, groups),
        excess_kurtosis=float(rows.fourth.mean()) / square - 3.0 if square > 0 else _NAN,
        entropy=float(rows.entropy.mean()),
        entropy_ratio=float(ratios.mean()),
        entropy_ratio_standard_error=_standard_error(ratios, groups),
        predicted_entropy_ratio=float((predict(sigma, m) / np.log(m)).mean()) if np.isfinite(sigma) else _NAN,
        jacobian_trace=float(rows.jacobian_trace.mean()),
        jacobian_trace_standard_error=_standard_error(rows.jacobian_trace, groups),
        dead_row_fraction=float((rows.jacobian_trace < DEAD_TRACE).mean()),
        largest_score=float(rows.largest.max()),
        largest_signed_score=float(rows.highest.max()),
        first_key_share=float(rows.first_share.mean()),
        row_mean_share=1.0 - inside / whole if whole > 0 else _NAN,
        groups=int(groups.max()) + 1,
        grouping=grouping,
    )


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
