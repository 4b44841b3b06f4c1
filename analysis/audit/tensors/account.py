"""Where a head's score variance comes from: second moments of its queries and keys, factor by factor."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors.tokens import Side, Top, query_side, top_key, top_query

Array = NDArray[Any]

_NAN = float("nan")


@dataclass(frozen=True)
class Components:
    """Mean and variance (population, within a batch item for keys) of each of the d_k components."""

    query_means: tuple[float, ...] = ()
    query_variances: tuple[float, ...] = ()
    key_means: tuple[float, ...] = ()
    key_variances: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Account:
    """Predictions and factors of the within-row variance; see `HeadAudit` for each."""

    predicted_variance_components: float = _NAN
    predicted_variance_covariances: float = _NAN
    effective_dimension: float = _NAN
    query_effective_dimension: float = _NAN
    key_effective_dimension: float = _NAN
    query_norm: float = _NAN
    key_norm: float = _NAN
    query_mean_share: float = _NAN
    key_mean_share: float = _NAN
    shared_query_share: float = _NAN
    top_key: int = -1
    top_key_share: float = _NAN
    top_query: int = -1
    top_query_share: float = _NAN
    largest_channel: int = -1
    largest_channel_share: float = _NAN
    factor_scale: float = _NAN
    factor_top_key: float = _NAN
    factor_top_query: float = _NAN
    factor_mean: float = _NAN
    factor_norm: float = _NAN
    factor_channel: float = _NAN
    factor_alignment: float = _NAN
    components: Components = field(default=Components(), repr=False)
    without_channel: WithoutChannel | None = field(default=None, repr=False)


@dataclass(frozen=True)
class WithoutChannel:
    """What is left once the component that carries most is out: by what the variance falls, and the other factors."""

    factor: float
    norm: float
    alignment: float


def account(queries: list[Array], keys: list[Array], scale: float) -> Account:
    """
    Return the second-moment account of one head.

    Parameters
    ----------
    queries, keys : list of ndarray
        Per batch item (n, d_k), only rows that count, all finite.
    scale : float
        The factor on kᵀq.

    Notes
    -----
    For queries drawn apart from the keys, E[Var(q·k over one item's keys)] = tr(C_q C_k) with C_q = E[q qᵀ] and C_k the
    population covariance within an item, averaged over items by their number of queries. The keys' mean is out from the
    start, since softmax does not see it. With V = scale²·tr(C_q C_k), each factor says what V falls by when its cause
    is taken away, one after the other:

    scale²·d_k (against 1/√d_k) × the key, then the query that stands out (see `tokens`) × the queries' shared mean
    × norms tr Q·tr K/d_k² × unequal channels d_k·Σ Qᵢᵢ Kᵢᵢ/(tr Q·tr K) × alignment tr(Q K)/Σ Qᵢᵢ Kᵢᵢ,

    with K and Q the covariances of what is left. All but the split of the last two is free of the basis; Q is the
    unbiased covariance (n − 1), so that few queries are no shared mean.
    """
    q, k = query_side(queries), Side.of(keys, [len(x) for x in queries])
    key_token = top_key(k, q.second)
    query_token = top_query(q, key_token.rest.covariance)
    found = account_of_moments(q, k, scale)
    return replace(found, **_tokens(key_token, query_token), **_factors(query_token.rest, key_token.rest))


def account_of_moments(q: Side, k: Side, scale: float, before: tuple[Array, Array] | None = None) -> Account:
    """
    Return the account of second moments, no token told from the others.

    `before` is for queries and keys that turn: what stays of tr(Q K) when a component is set to zero in both before
    that, and the variances of the keys' components there.
    """
    total = _trace(q.second, k.covariance)
    return Account(
        predicted_variance_components=scale * scale * float(np.diag(q.second) @ np.diag(k.covariance)),
        predicted_variance_covariances=scale * scale * total,
        factor_scale=scale * scale * len(q.mean),
        **_sizes(q, k, total),
        **_factors(q, k, before),
    )


def _sizes(q: Side, k: Side, total: float) -> dict[str, Any]:
    product = q.second @ k.covariance
    query_square, key_variance = float(np.trace(q.second)), float(np.trace(k.covariance))
    key_square = float(np.trace(k.second))
    return {
        "effective_dimension": _ratio(total * total, float(np.vdot(product, product.T))),
        "query_effective_dimension": _ratio(query_square**2, float(np.vdot(q.second, q.second))),
        "key_effective_dimension": _ratio(key_variance**2, float(np.vdot(k.covariance, k.covariance))),
        "query_norm": math.sqrt(query_square),
        "key_norm": math.sqrt(key_square),
        "query_mean_share": _ratio(float(q.mean @ q.mean), query_square),
        "key_mean_share": _ratio(float(k.mean @ k.mean), key_square),
        "shared_query_share": _ratio(float(q.mean @ k.covariance @ q.mean), total),
        "components": Components(
            tuple(q.mean.tolist()),
            tuple((np.diag(q.second) - q.mean**2).tolist()),
            tuple(k.mean.tolist()),
            tuple(np.diag(k.covariance).tolist()),
        ),
    }


def _tokens(key: Top, query: Top) -> dict[str, Any]:
    return {
        "top_key": key.place,
        "top_key_share": key.share,
        "factor_top_key": key.factor,
        "top_query": query.place,
        "top_query_share": query.share,
        "factor_top_query": query.factor,
    }


def _factors(q: Side, k: Side, before: tuple[Array, Array] | None = None) -> dict[str, Any]:
    """Return the factors of what is left of the tokens, the queries' mean taken out."""
    n, d_k = q.count, len(q.mean)
    spread = q.second if n == 1 else q.covariance * (n / (n - 1) if n else 1.0)  # unbiased where they are of a sample
    shared, total = _trace(q.second, k.covariance), _trace(spread, k.covariance)
    q_own, k_own = np.diag(spread), np.diag(k.covariance)
    q_sum, k_sum, channels = float(q_own.sum()), float(k_own.sum()), float(q_own @ k_own)
    # what stays of tr(Q K) when a component is set to zero in both
    rest, k_apart = before or (total - 2 * np.vecdot(spread, k.covariance) + q_own * k_own, k_own)
    largest = int(np.argmin(rest))
    without = None
    if d_k > 1:
        left, q_left, k_left = float(rest[largest]), q_sum - float(q_own[largest]), k_sum - float(k_apart[largest])
        without = WithoutChannel(
            _ratio(total * (d_k - 1), left * d_k),
            q_left * k_left / (d_k - 1) ** 2,
            _ratio(left * (d_k - 1), q_left * k_left),
        )
    return {
        "factor_mean": _ratio(shared, total),
        "factor_norm": q_sum * k_sum / d_k**2,
        "factor_channel": _ratio(channels * d_k, q_sum * k_sum),
        "factor_alignment": _ratio(total, channels),
        "largest_channel": largest,
        "largest_channel_share": 1 - _ratio(float(rest[largest]), total),
        "without_channel": without,
    }


def _trace(a: Array, b: Array) -> float:
    return float(np.vdot(a, b))


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else _NAN
