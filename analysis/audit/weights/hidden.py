"""The queries and keys that a layer's weights make of a sample of hidden states."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors.arrays import LayerArrays, as_array, as_layer
from analysis.audit.weights.normalised import VectorNorm
from analysis.audit.weights.projections import Projections
from analysis.vocabulary.text import printable
from attnsym.positions import rotary

Array = NDArray[Any]

_EPS = 1e-6


def of_hidden(layer: Projections, hidden: Any) -> LayerArrays:
    """
    Return queries and keys, (batch, heads, n, d_k), of hidden states (batch, n, d_model) or (n, d_model).

    Where the layer's norm is known and comes before its projections, the states are those that enter it.
    """
    label = printable(layer.name)
    states = as_array(hidden, f"hidden states of {label}")
    d_model = layer.query.shape[2]
    if states.ndim not in (2, 3) or states.shape[-1] != d_model or 0 in states.shape:
        raise ValueError(
            f"hidden states of {label} must be (batch, n_tokens, d_model = {d_model}): got shape {states.shape}"
        )
    x = states.reshape(-1, *states.shape[-2:]).astype(np.float32)
    if layer.gain is not None and layer.norm_before:
        x = _unit(x, centred=layer.centred) * np.float32(d_model**0.5) * layer.gain.astype(np.float32)
        x = x if layer.offset is None else x + layer.offset.astype(np.float32)
    sides = []
    for weights, bias, norm in (
        (layer.query, layer.bias_query, layer.norm_query),
        (layer.key, layer.bias_key, layer.norm_key),
    ):
        side = np.einsum("bnm,hdm->bhnd", x, weights.astype(np.float32), optimize=True)
        side = side if bias is None else side + bias.astype(np.float32)[:, None]
        side = side if norm is None else _normalised(side, norm)
        sides.append(side if layer.rotary is None else _turned(side, layer))
    return as_layer(layer.name, sides[0], sides[1], enable_gqa=True)


def _unit(x: Array, *, centred: bool) -> Array:
    x = x - x.mean(axis=-1, keepdims=True) if centred else x
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    unit: Array = x / np.maximum(length, _EPS * x.shape[-1] ** 0.5)
    return unit


def _normalised(side: Array, norm: VectorNorm) -> Array:
    heads, d_k = side.shape[1], side.shape[3]
    if norm.mean_square is None:
        side = _unit(side, centred=norm.kind == "layer") * np.float32(1 if norm.kind == "l2" else d_k**0.5)
    else:  # one norm over all heads
        whole = side.swapaxes(1, 2).reshape(len(side), side.shape[2], heads * d_k)
        whole = _unit(whole, centred=norm.kind == "layer") * np.float32((heads * d_k) ** 0.5)
        side = whole.reshape(len(side), -1, heads, d_k).swapaxes(1, 2)
    side = side if norm.gain is None else side * norm.gain.astype(np.float32)[:, None]
    return side if norm.bias is None else side + norm.bias.astype(np.float32)[:, None]


def _turned(side: Array, layer: Projections) -> Array:
    dims = layer.rotary_dims or side.shape[-1]
    order = np.arange(dims)
    if layer.rotary == "half":
        order = order.reshape(2, -1).T.ravel()
    turned = side.copy()
    turned[..., order] = rotary(side[..., order], np.arange(side.shape[2]), base=layer.rotary_base)
    return turned
