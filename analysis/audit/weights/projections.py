"""One layer's query and key projections, head by head, and their d_k × d_k Gram matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    gain : ndarray or None
        (d_model,) of the norm before them, folded into the projections.
    rotary : {"half", "interleaved"} or None
        How rotary embedding pairs the first `rotary_dims` components.
    """

    name: str
    query: Array
    key: Array
    bias_query: Array | None = None
    bias_key: Array | None = None
    gain: Array | None = None
    rotary: str | None = None
    rotary_dims: int | None = None


@dataclass(frozen=True)
class Grams:
    """W_qᵀ W_q, W_kᵀ W_k and W_kᵀ W_q of one head, each (d_k, d_k) in float64, and its biases (zero where none)."""

    query: Array
    key: Array
    cross: Array
    bias_query: Array
    bias_key: Array


def grams(layer: Projections, head: int) -> Grams:
    """Return the Gram matrices of one head: products in float32 of weights no finer than that, else in float64."""
    key_head = head // (layer.query.shape[0] // layer.key.shape[0])
    fine = max(layer.query.dtype.itemsize, layer.key.dtype.itemsize) > 4
    q, k = (_folded(x, layer.gain, fine) for x in (layer.query[head], layer.key[key_head]))
    zero = np.zeros(q.shape[0])
    products = [np.asarray(x @ y.T, np.float64) for x, y in ((q, q), (k, k), (k, q))]
    return Grams(
        products[0],
        products[1],
        products[2],
        zero if layer.bias_query is None else layer.bias_query[head].astype(np.float64),
        zero if layer.bias_key is None else layer.bias_key[key_head].astype(np.float64),
    )


def _folded(weights: Array, gain: Array | None, fine: bool) -> Array:
    wide = weights.astype(np.float64 if fine else np.float32)
    return wide if gain is None else wide * gain.astype(wide.dtype)


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


def _pairs(kind: str, dims: int) -> Sequence[tuple[int, int]]:
    half = dims // 2
    return [(i, i + half) if kind == "half" else (2 * i, 2 * i + 1) for i in range(half)]
