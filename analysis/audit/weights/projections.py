"""One layer's query and key projections, head by head, and their d_k × d_k Gram matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.weights.normalised import VectorNorm

Array = NDArray[Any]

ROTARY = ("half", "interleaved")


@dataclass(frozen=True)
class Projections:
    """
    The projections of one layer; nothing is copied or converted before a head is asked for.

    Attributes
    ----------
    name : str
    query, key : ndarray
        (heads, d_k, d_model) and (key heads, d_k, d_model), views.
    bias_query, bias_key : ndarray or None
        (heads, d_k) and (key heads, d_k).
    gain, offset : ndarray or None
        (d_model,) of the norm before them, folded into the projections and biases.
    centred : bool
        The norm before takes off each token's mean (layer norm).
    norm_query, norm_key : VectorNorm or None
        Of the queries and keys themselves.
    norm_before : bool
        The norm stands between the hidden states and the projections; else, after the block before (BERT).
    rotary : {"half", "interleaved"} or None
        How rotary embedding pairs the first `rotary_dims` components; it turns them as its base says.
    """

    name: str
    query: Array
    key: Array
    bias_query: Array | None = None
    bias_key: Array | None = None
    gain: Array | None = None
    offset: Array | None = None
    centred: bool = False
    norm_query: VectorNorm | None = None
    norm_key: VectorNorm | None = None
    rotary: str | None = None
    rotary_dims: int | None = None
    rotary_base: float = 10000.0
    norm_before: bool = True


@dataclass(frozen=True)
class Grams:
    """W_qᵀ W_q, W_kᵀ W_k and W_kᵀ W_q of one head, each (d_k, d_k) in float64, and its biases (zero where none)."""

    query: Array
    key: Array
    cross: Array
    bias_query: Array
    bias_key: Array


def key_head_of(layer: Projections, head: int) -> int:
    """Return the key head that a query head reads."""
    return head // (len(layer.query) // len(layer.key))


def grams(layer: Projections, head: int) -> Grams:
    """Return the Gram matrices of one head: products in float32 of weights no finer than that, else in float64."""
    key_head = key_head_of(layer, head)
    fine = max(layer.query.dtype.itemsize, layer.key.dtype.itemsize) > 4
    q, k = (_folded(x, layer, fine) for x in (layer.query[head], layer.key[key_head]))
    return Grams(
        query=_product(q, q),
        key=_product(k, k),
        cross=_product(k, q),
        bias_query=_bias(layer, layer.query[head], layer.bias_query, head),
        bias_key=_bias(layer, layer.key[key_head], layer.bias_key, key_head),
    )


def _product(x: Array, y: Array) -> Array:
    return np.asarray(x @ y.T, np.float64)


def _folded(weights: Array, layer: Projections, fine: bool) -> Array:
    wide = weights.astype(np.float64 if fine else np.float32)
    if layer.gain is not None:
        wide = wide * layer.gain.astype(wide.dtype)
    if layer.centred:  # tokens of length √d_model without a mean: E x xᵀ = d/(d − 1)·(I − 11ᵀ/d)
        size = wide.shape[1]
        wide = (wide - wide.mean(axis=1, keepdims=True)) * wide.dtype.type((size / max(size - 1, 1)) ** 0.5)
    return wide


def _bias(layer: Projections, weights: Array, biases: Array | None, head: int) -> Array:
    bias = np.zeros(len(weights)) if biases is None else biases[head].astype(np.float64)
    return bias if layer.offset is None else bias + weights.astype(np.float64) @ layer.offset.astype(np.float64)


def mean_square(weights: Array, biases: Array | None, layer: Projections) -> float:
    """Return the mean square of a component over all heads, for isotropic tokens."""
    total = 0.0
    for head in range(len(weights)):
        folded = _folded(weights[head], layer, fine=False)
        total += float(np.vdot(folded, folded)) + float(np.sum(_bias(layer, weights[head], biases, head) ** 2))
    return total / float(np.prod(weights.shape[:2]))


def rotary_average(moment: Array, kind: str, dims: int) -> Array:
    """
    Return the mean of R M Rᵀ over the positions that rotary embedding turns a vector to.

    Pairs of components turn at different speeds: over many positions what ties two pairs averages out, and of each pair
    half the trace stays on its diagonal. Components from `dims` on do not turn.
    """
    pairs = _pairs(kind, dims)
    mean = np.zeros_like(moment)
    mean[dims:, dims:] = moment[dims:, dims:]
    for i, j in pairs:
        mean[i, i] = mean[j, j] = (moment[i, i] + moment[j, j]) / 2
    return mean


def rotary_rest(query: Array, key: Array, kind: str, dims: int) -> Array:
    """
    Return what stays of the averaged variance tr(Q R K Rᵀ) when a component of q and k is zero before they turn.

    A pair i, j makes ½(Qᵢᵢ + Qⱼⱼ)(Kᵢᵢ + Kⱼⱼ) of it, and ½ Qⱼⱼ Kⱼⱼ without i.
    """
    mean = rotary_average(key, kind, dims)
    own, of_key = np.diag(query), np.diag(key)
    rest: Array = float(np.vdot(query, mean)) - 2 * np.vecdot(query, mean) + own * of_key
    total = float(np.vdot(query, mean))
    for i, j in _pairs(kind, dims):
        pair = total - (own[i] + own[j]) * (of_key[i] + of_key[j]) / 2
        rest[i], rest[j] = pair + own[j] * of_key[j] / 2, pair + own[i] * of_key[i] / 2
    return rest


def _pairs(kind: str, dims: int) -> Sequence[tuple[int, int]]:
    half = dims // 2
    return [(i, i + half) if kind == "half" else (2 * i, 2 * i + 1) for i in range(half)]
