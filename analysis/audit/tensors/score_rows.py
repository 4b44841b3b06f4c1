"""One head's scores, a tile of queries at a time: moments, entropy and concentration of every query row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Visible = Callable[[slice], "Array | None"]

TILE_SCORES = 2**18
MIN_ROWS = 32
SAFE_IN_FLOAT32 = 1e3


@dataclass(frozen=True)
class ScoreRows:
    """
    Statistics of the query rows of one head, each array of shape (n_queries,).

    Attributes
    ----------
    visible : number of keys that the row may attend to.
    raw_mean, raw_variance : of kᵀq over the visible keys (population variance).
    variance, fourth : second and fourth central moment of the scores that enter softmax.
    largest, highest : largest absolute, and largest signed, score that enters softmax.
    entropy : of the weights, in nats.
    jacobian_trace : 1 − Σ pᵢ².
    first_share : weight on the first key.
    finite : whether all visible scores are finite.
    """

    visible: Array
    raw_mean: Array
    raw_variance: Array
    variance: Array
    fourth: Array
    largest: Array
    highest: Array
    entropy: Array
    jacobian_trace: Array
    first_share: Array
    finite: Array

    @classmethod
    def joined(cls, parts: list[ScoreRows]) -> ScoreRows:
        """Return the rows of several tiles or batch items, one after the other."""
        whole = [*parts, cls.unseeing(0)]
        return cls(*(np.concatenate([getattr(part, name) for part in whole]) for name in cls.__dataclass_fields__))

    @classmethod
    def unseeing(cls, n_queries: int) -> ScoreRows:
        """Return rows that see no key."""
        none = np.zeros(n_queries)
        named = {"visible": np.zeros(n_queries, np.int64), "finite": np.zeros(n_queries, bool)}
        return cls(**(dict.fromkeys(cls.__dataclass_fields__, none) | named))

    def where(self, keep: Array) -> ScoreRows:
        """Return some of the rows."""
        return ScoreRows(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))


def score_rows(
    query: Array,
    key: Array,
    *,
    scale: float,
    softcap: float | None = None,
    visible: Visible | None = None,
    bias: Callable[[slice], Array | None] | None = None,
) -> ScoreRows:
    """
    Return the statistics of softmax(softcap·tanh(scale·q kᵀ/softcap) + bias) row by row.

    Parameters
    ----------
    query, key : ndarray
        (n_queries, d_k) and (n_keys, d_k), n_keys ≥ 1, in the type in which to compute (see `working_type`).
    visible, bias : callable, optional
        slice of query rows -> boolean or floating (rows, n_keys), or None where nothing is hidden or added.

    Notes
    -----
    Moments are taken about the row's mean, so that a large common score costs no digits. Tiles hold about 2¹⁸ scores,
    which stay in cache; a whole score matrix never exists.
    """
    rows = max(MIN_ROWS, TILE_SCORES // max(1, key.shape[0]))
    transposed = np.ascontiguousarray(key.T)
    parts = []
    with np.errstate(all="ignore"):  # NaN and overflow are found by `finite` and reported in words
        for start in range(0, query.shape[0], rows):
            span = slice(start, min(start + rows, query.shape[0]))
            raw = query[span] @ transposed
            parts.append(_tile(raw, scale, softcap, visible and visible(span), bias and bias(span)))
    return ScoreRows.joined(parts)


def working_type(query: Array, key: Array, scale: float) -> np.dtype[Any]:
    """Return float32 where the inputs are no finer and |scale|·‖q‖·‖k‖ stays small, else float64."""
    if max(query.dtype.itemsize, key.dtype.itemsize) > 4 or query.shape[0] * key.shape[0] <= TILE_SCORES:
        return np.dtype(np.float64)
    bound = max(abs(scale), 1.0) * _largest_norm(query) * _largest_norm(key)
    return np.dtype(np.float32 if bound < SAFE_IN_FLOAT32 else np.float64)


def _largest_norm(x: Array) -> float:
    with np.errstate(all="ignore"):
        single = x.astype(np.float32, copy=False)
        largest = float(np.sqrt(np.max(np.vecdot(single, single), initial=0.0)))
    return largest if np.isfinite(largest) else np.inf


def _tile(raw: Array, scale: float, softcap: float | None, visible: Array | None, bias: Array | None) -> ScoreRows:
    hidden = None if visible is None else ~visible
    count = np.full(raw.shape[0], raw.shape[1]) if visible is None else visible.sum(axis=1)
    raw_mean, raw_variance, fourth, low, high = _moments(raw, hidden, count)
    finite = np.isfinite(raw_mean) & np.isfinite(raw_variance)
    scores, unit = raw, scale  # raw is centred now: softmax(scale·raw) is unchanged by that
    mean, variance = raw_mean, raw_variance
    if softcap is not None or bias is not None:
        scores, unit = scale * (raw + raw_mean[:, None]), 1.0
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        if bias is not None:
            scores += bias
        mean, variance, fourth, low, high = _moments(scores, hidden, count)
        finite &= np.isfinite(mean) & np.isfinite(variance)
    mean, low, high = unit * mean, *np.sort([unit * low, unit * high], axis=0)
    square = np.float64(unit) ** 2  # of a Python number, an overflow would be an error
    finite &= np.isfinite(mean + low) & np.isfinite(mean + high) & np.isfinite(square * variance)
    scores *= unit
    scores -= high[:, None]
    weights = np.exp(scores)
    if hidden is not None:
        np.copyto(weights, 0.0, where=hidden)
    total = weights.sum(axis=1)
    return ScoreRows(
        visible=count,
        raw_mean=raw_mean.astype(np.float64),
        raw_variance=raw_variance.astype(np.float64),
        variance=square * variance.astype(np.float64),
        fourth=square**2 * fourth.astype(np.float64),
        largest=np.maximum(np.abs(mean + low), np.abs(mean + high)).astype(np.float64),
        highest=(mean + high).astype(np.float64),
        entropy=np.maximum(np.log(total) - np.vecdot(weights, scores) / total, 0.0).astype(np.float64),
        jacobian_trace=np.maximum(1.0 - np.vecdot(weights, weights) / total**2, 0.0).astype(np.float64),
        first_share=(weights[:, 0] / total).astype(np.float64),
        finite=finite,
    )


def _moments(scores: Array, hidden: Array | None, count: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Centre the scores in place; return mean, variance, fourth central moment, and the centred extremes."""
    if hidden is not None:
        np.copyto(scores, 0.0, where=hidden)
    mean = scores.sum(axis=1) / count.astype(scores.dtype)
    scores -= mean[:, None]
    if hidden is not None:
        np.copyto(scores, 0.0, where=hidden)  # the mean lies between the extremes, so that zeros change none of them
    squares = scores * scores
    size = count.astype(scores.dtype)
    return mean, squares.sum(axis=1) / size, np.vecdot(squares, squares) / size, scores.min(axis=1), scores.max(axis=1)
