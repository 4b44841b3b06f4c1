"""What an audit of tensors reports: one frozen row per head, one per layer."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.audit.tensors.account import Account
from analysis.audit.tensors.columns import LAYER_MEANS
from analysis.audit.tensors.layers import HeadPlace
from analysis.audit.tensors.row_means import RowCounts, RowMeans


@dataclass(frozen=True, kw_only=True)
class HeadAudit(Account, RowMeans, RowCounts, HeadPlace):  # fields stand in the order of a record, last base first
    """
    One head of one layer. Means run over the query rows that count; NaN where nothing counts.

    Every variance is a population variance: it divides by the number of visible keys m (of pairs, for `score_variance`)
    and not by m − 1. Scores that are iid with variance σ² have a mean `within_row_variance` of σ²(1 − E[1/m]), not σ².
    The predictions beside it use the same definition; `predicted_entropy_ratio` takes the unbiased m/(m − 1) of it.

    Left out and counted: `rows_padded` (padded queries), `rows_short` (fewer than two visible keys) and
    `rows_nonfinite` (a NaN or infinite score). "Score" alone means what enters softmax.

    Attributes
    ----------
    layer, head, key_head : the layer's name, the query head and the key head that it reads.
    d_k, n_keys, scale : components, keys (padding included) and the factor on kᵀq.
    rows, rows_padded, rows_short, rows_nonfinite : numbers of query rows.
    score_variance : variance of kᵀq, unscaled, over all visible pairs; `score_variance_ratio` is that over d_k, 1 for
        independent components of variance 1.
    within_row_variance : population variance of the scores over one query's visible keys, averaged over queries;
        softmax sees nothing else of the scores' size.
    predicted_variance_components : scale²·Σᵢ E[qᵢ²]·Var(kᵢ), its value were the components independent.
    predicted_variance_covariances : scale²·tr(C_q C_k), C_q = E[q qᵀ] and C_k the keys' covariance within an item.
    excess_kurtosis : of the scores within rows; 0 for Gaussian ones.
    entropy, entropy_ratio : mean entropy in nats, and mean of entropy / log(visible keys).
    predicted_entropy_ratio : the exact expectation for Gaussian scores of the measured variance.
    jacobian_trace, dead_row_fraction : mean tr J = 1 − Σ p², and the share of rows with tr J < 1e-3.
    largest_score, largest_signed_score : largest absolute score, and the largest with its sign: softmax and its
        overflow see the second.
    first_key_share : mean weight on the first real key.
    effective_dimension : (tr M)²/tr(M²), M = C_q C_k: the number of independent products that the scores amount to;
        the same for C_q and C_k alone. At most the number of tokens.
    query_norm, key_norm : rms ‖q‖ and ‖k‖; √d_k for components of variance 1.
    query_mean_share, key_mean_share : ‖E q‖²/E‖q‖² and the same of k.
    shared_query_share : part of the within-row variance that E[q] alone makes, the same ranking of keys in every row.
    row_mean_share : part of E[score²] that is common to a row's keys, which softmax ignores.
    top_key, top_key_share, top_query, top_query_share : the key (position among real tokens) that carries most of the
        predicted variance and its part, the largest of every batch item; the same of the queries.
    factor_scale, factor_top_key, factor_top_query, factor_mean, factor_norm, factor_channel, factor_alignment : what
        multiplies to the predicted variance: scale²·d_k, a key or a query that stands out (1 where none does), the
        queries' shared mean, norms of what is left (keys about their mean), unequal channels, correlated components.
    largest_channel, largest_channel_share : the component without which least is left, and the part that goes with it.
    without_channel : factors of what is left then.
    components : means and variances of every component.
    value_norm, first_value_norm_ratio : rms ‖v‖, and ‖v‖ of the first key over it; None without values.
    groups, grouping : the number and kind ("batch item" or "token block") of the groups behind standard errors. Rows
        share their keys, so that token blocks of one text give a lower bound.
    verdict, cause, cause_factor : in words, see `analysis.audit.tensors.verdicts`, and the factor on the variance that
        the cause names; None and NaN of scores of ordinary size.
    """

    verdict: str
    cause: str | None
    cause_factor: float
    value_norm: float | None
    first_value_norm_ratio: float | None


@dataclass(frozen=True)
class LayerAudit:
    """One layer: means over its heads, the largest score, and how many heads are wide, saturated or near uniform."""

    layer: str
    heads: int
    rows: int
    score_variance_ratio: float
    within_row_variance: float
    entropy_ratio: float
    predicted_entropy_ratio: float
    jacobian_trace: float
    dead_row_fraction: float
    largest_score: float
    first_key_share: float
    heads_above_four: int
    heads_saturated: int
    heads_near_uniform: int


def summarise(layer: str, heads: tuple[HeadAudit, ...]) -> LayerAudit:
    """Return a layer's row. NaN heads (no usable row) are left out of the means."""
    counted = [head for head in heads if head.rows]

    def mean(name: str) -> float:
        return sum(getattr(head, name) for head in counted) / len(counted) if counted else float("nan")

    return LayerAudit(
        layer=layer,
        heads=len(heads),
        rows=sum(head.rows for head in heads),
        largest_score=max((head.largest_score for head in counted), default=float("nan")),
        heads_above_four=sum(head.within_row_variance > 4 for head in counted),
        heads_saturated=sum(head.verdict == "saturated" for head in heads),
        heads_near_uniform=sum(head.verdict == "near uniform" for head in heads),
        **{name: mean(name) for name in LAYER_MEANS},
    )
