"""One token: the key, and the query, that carries most of the score variance, and what is left without it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FEWEST = 4
FALSE_ALARM = 1e-4


@dataclass(frozen=True)
class Side:
    """
    Moments of the queries or of the keys of a head.

    Attributes
    ----------
    centred : list of ndarray
        Per batch item (n, d_k): queries as they are, keys less their item's mean.
    weights : ndarray
        Of the items, by their number of queries.
    mean, second, covariance : ndarray
        E[x], E[x xᵀ] and the covariance within an item, averaged over items.
    count : int
        Number of vectors; 0 of moments that are known and not those of a sample.
    """

    centred: list[Array]
    weights: Array
    mean: Array
    second: Array
    covariance: Array
    count: int

    @classmethod
    def known(cls, mean: Array, covariance: Array) -> Side:
        """Return moments that belong to no sample."""
        return cls([], np.ones(1), mean, covariance + np.outer(mean, mean), covariance, 0)

    @classmethod
    def of(cls, items: list[Array], sizes: list[int]) -> Side:
        """Return the moments of keys, items weighed by `sizes`."""
        weights = np.array(sizes, np.float64) / sum(sizes)
        means = np.array([x.mean(axis=0, dtype=np.float64) for x in items])
        centred = [x.astype(np.float64) - mean for x, mean in zip(items, means, strict=True)]
        covariance = np.tensordot(weights, [x.T @ x / len(x) for x in centred], 1)
        second = covariance + np.einsum("b,bi,bj->ij", weights, means, means)
        return cls(centred, weights, weights @ means, second, covariance, sum(map(len, items)))


@dataclass(frozen=True)
class Top:
    """
    The token that carries most, with the part of the variance that it carries.

    `factor` is what the variance falls by without it (1 unless it stands out), `rest` the moments of what is left then.
    """

    place: int
    share: float
    factor: float
    rest: Side


def query_side(items: list[Array]) -> Side:
    """Return the moments of queries, pooled over items; their mean stays in."""
    wide = [x.astype(np.float64) for x in items]
    weights = np.array([len(x) for x in wide], np.float64)
    count = int(weights.sum())
    mean = np.sum([x.sum(axis=0) for x in wide], axis=0) / count
    second = np.sum([x.T @ x for x in wide], axis=0) / count
    return Side(wide, weights / count, mean, second, second - np.outer(mean, mean), count)


def top_key(keys: Side, second: Array) -> Top:
    """
    Return the key that carries most of tr(C_q C_k), `second` being C_q: the largest of every batch item.

    Notes
    -----
    Key j of an item of m keys carries δⱼᵀ C_q δⱼ/m, δⱼ its distance from the item's mean. It stands out where that is
    more than 2·log(m/10⁻⁴) times the mean of the others: of m Gaussian scores the largest square exceeds that in fewer
    than one of 10⁴ heads, however few directions they have. Without it the covariance is m/(m − 1)·(C − δ δᵀ/(m − 1)).
    """
    parts = [np.vecdot(x @ second, x) for x in keys.centred]
    tops = [int(np.argmax(part)) for part in parts]
    shares = [weight * float(part.sum()) / len(part) for weight, part in zip(keys.weights, parts, strict=True)]
    carried = [weight * float(part[j]) / len(part) for weight, part, j in zip(keys.weights, parts, tops, strict=True)]
    total = sum(shares)
    place, share = _place(tops, carried), sum(carried) / total if total > 0 else math.nan
    if not _stands_out(parts, tops):
        return Top(place, share, 1.0, keys)
    left = [
        len(x) / (len(x) - 1) * (x.T @ x / len(x) - np.outer(x[j], x[j]) / (len(x) - 1))
        for x, j in zip(keys.centred, tops, strict=True)
    ]
    rest = Side(keys.centred, keys.weights, keys.mean, keys.second, np.tensordot(keys.weights, left, 1), keys.count)
    return Top(place, share, _fall(total, float(np.vdot(second, rest.covariance))), rest)


def top_query(queries: Side, covariance: Array) -> Top:
    """Return the query that carries most of tr(C_q C_k), `covariance` being C_k; as `top_key`, by qᵀ C_k q."""
    parts = [np.vecdot(x @ covariance, x) for x in queries.centred]
    tops = [int(np.argmax(part)) for part in parts]
    carried = [float(part[i]) for part, i in zip(parts, tops, strict=True)]
    total = float(sum(part.sum() for part in parts))
    place, share = _place(tops, carried), sum(carried) / total if total > 0 else math.nan
    if not _stands_out(parts, tops):
        return Top(place, share, 1.0, queries)
    rest = query_side([np.delete(x, i, axis=0) for x, i in zip(queries.centred, tops, strict=True)])
    return Top(place, share, _fall(total / queries.count, float(np.vdot(rest.second, covariance))), rest)


def _place(tops: list[int], carried: list[float]) -> int:
    """Return the position that carries most over the batch items."""
    return int(np.argmax(np.bincount(tops, np.nan_to_num(carried))))


def _stands_out(parts: list[Array], tops: list[int]) -> bool:
    if min(len(part) for part in parts) < FEWEST:
        return False
    top = np.mean([part[j] for part, j in zip(parts, tops, strict=True)])
    others = np.mean([(part.sum() - part[j]) / (len(part) - 1) for part, j in zip(parts, tops, strict=True)])
    most = max(len(part) for part in parts)
    return bool(top > 2 * math.log(most / FALSE_ALARM) * others)


def _fall(total: float, rest: float) -> float:
    return total / rest if rest > 0 else math.inf
