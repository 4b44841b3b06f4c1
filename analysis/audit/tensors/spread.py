"""Where a head's score variance comes from: second moments of its queries and keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors.rows import Components

Array = NDArray[Any]


@dataclass(frozen=True)
class Spread:
    """Predictions and factors of the within-row variance at scale 1; see `HeadAudit` for each."""

    from_components: float
    from_covariances: float
    effective_dimension: float
    query_effective_dimension: float
    key_effective_dimension: float
    query_norm: float
    key_norm: float
    query_mean_share: float
    key_mean_share: float
    shared_query_share: float
    largest_channel: int
    largest_channel_share: float
    factor_norm: float
    factor_mean: float
    factor_channel: float
    factor_alignment: float
    components: Components


def spread(queries: list[Array], keys: list[Array]) -> Spread:
    """
    Return the second-moment account of one head.

    Parameters
    ----------
    queries, keys : list of ndarray
        Per batch item (n, d_k), only rows that count, all finite.

    Notes
    -----
    For queries drawn apart from the keys, E[Var(q·k over one item's keys)] = tr(C_q C_k) with C_q = E[q qᵀ] and C_k the
    population covariance within an item, averaged over items by their number of queries. It is the product
    d_k·E[q²]·E[k²] (norms) × E[Var k]/E[k²] (the keys' shared mean taken out) × channel inequality × alignment.
    """
    weights = np.array([len(q) for q in queries], np.float64)
    weights /= weights.sum()
    first, second = (np.array(m) for m in zip(*(_moments(q) for q in queries), strict=True))
    query_mean, c_q = np.tensordot(weights, first, 1), np.tensordot(weights, second, 1)
    means = np.array([k.mean(axis=0, dtype=np.float64) for k in keys])
    c_k = np.tensordot(weights, [_covariance(k, m) for k, m in zip(keys, means, strict=True)], 1)
    key_mean = weights @ means
    d_k, query_square, key_variance = c_q.shape[0], float(np.trace(c_q)), float(np.trace(c_k))
    key_square = key_variance + float(weights @ np.vecdot(means, means))
    channels = np.diag(c_q) * np.diag(c_k)
    product = c_q @ c_k
    total, independent = float(np.trace(product)), float(channels.sum())
    return Spread(
        from_components=independent,
        from_covariances=total,
        effective_dimension=_ratio(total**2, float(np.vdot(product, product.T))),
        query_effective_dimension=_ratio(query_square**2, float(np.vdot(c_q, c_q))),
        key_effective_dimension=_ratio(key_variance**2, float(np.vdot(c_k, c_k))),
        query_norm=query_square**0.5,
        key_norm=key_square**0.5,
        query_mean_share=_ratio(float(query_mean @ query_mean), query_square),
        key_mean_share=_ratio(float(key_mean @ key_mean), key_square),
        shared_query_share=_ratio(float(query_mean @ c_k @ query_mean), total),
        largest_channel=int(np.argmax(channels)),
        largest_channel_share=_ratio(float(channels.max()), independent),
        factor_norm=query_square * key_square / d_k,
        factor_mean=_ratio(key_variance, key_square),
        factor_channel=_ratio(independent * d_k, query_square * key_variance),
        factor_alignment=_ratio(total, independent),
        components=Components(
            tuple(query_mean.tolist()),
            tuple((np.diag(c_q) - query_mean**2).tolist()),
            tuple(key_mean.tolist()),
            tuple(np.diag(c_k).tolist()),
        ),
    )


def _moments(x: Array) -> tuple[Array, Array]:
    """Return E[x] and E[x xᵀ]."""
    wide = x.astype(np.float64)
    return wide.mean(axis=0), wide.T @ wide / len(wide)


def _covariance(x: Array, mean: Array) -> Array:
    centred = x.astype(np.float64) - mean
    result: Array = centred.T @ centred / len(centred)
    return result


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else float("nan")
