"""One layer's weights as callers and files have them, checked and taken apart by head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors.arrays import as_array
from analysis.audit.weights.normalised import KINDS, VectorNorm
from analysis.audit.weights.projections import ROTARY, Projections, mean_square
from analysis.vocabulary.text import printable

Array = NDArray[Any]


def as_projections(
    name: str,
    w_query: Any,
    w_key: Any,
    bias_query: Any = None,
    bias_key: Any = None,
    norm_gain: Any = None,
    norm_bias: Any = None,
    *,
    num_heads: int,
    key_heads: int,
    rotary: str | None = None,
    rotary_dims: int | None = None,
    rotary_base: float = 10000.0,
    norm: str | None = None,
    norm_before: bool = True,
    query_norm: NormTensors | None = None,
    key_norm: NormTensors | None = None,
) -> Projections:
    """Check one layer's weights, (d_model, heads·d_k) each, and take them apart by head; ValueError as there."""
    label = printable(name)
    for what, count in (("num_heads", num_heads), ("num_key_value_heads", key_heads)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{what} must be a whole number of at least 1: got {count!r}")
    if num_heads % key_heads:
        raise ValueError(f"num_heads = {num_heads} must be a multiple of num_key_value_heads = {key_heads}")
    if rotary not in (None, *ROTARY):
        raise ValueError(f"rotary must be one of {', '.join(ROTARY)}, or None: got {rotary!r}")
    if norm not in (None, "rms", "layer"):
        raise ValueError(f"norm must be rms, layer or None: got {norm!r}")
    q, k = as_array(w_query, f"w_query of {label}"), as_array(w_key, f"w_key of {label}")
    for what, w, heads in (("w_query", q, num_heads), ("w_key", k, key_heads)):
        if w.ndim != 2 or 0 in w.shape or w.shape[1] % heads:
            raise ValueError(f"{what} of {label} must be (d_model, {heads} heads·d_k): got shape {w.shape}")
    d_model, d_k = q.shape[0], q.shape[1] // num_heads
    if k.shape != (d_model, key_heads * d_k):
        raise ValueError(
            f"w_key of {label} must have shape {(d_model, key_heads * d_k)} beside w_query of shape {q.shape} in "
            f"{num_heads} heads: got {k.shape}"
        )
    dims = d_k if rotary_dims is None else rotary_dims
    if rotary is not None and (dims % 2 or not 0 < dims <= d_k):
        raise ValueError(f"rotary embedding turns pairs: {dims} of d_k = {d_k} components of {label} cannot be paired")
    biases = (
        _vector(bias_query, f"bias_query of {label}", num_heads * d_k),
        _vector(bias_key, f"bias_key of {label}", key_heads * d_k),
    )
    of_query, of_key = (None if bias is None else bias.reshape(-1, d_k) for bias in biases)
    layer = Projections(
        name,
        q.reshape(d_model, num_heads, d_k).transpose(1, 2, 0),
        k.reshape(d_model, key_heads, d_k).transpose(1, 2, 0),
        bias_query=of_query,
        bias_key=of_key,
        gain=_vector(norm_gain, f"norm_gain of {label}", d_model),
        offset=_vector(norm_bias, f"norm_bias of {label}", d_model),
        centred=norm == "layer" or (norm is None and norm_bias is not None),
        rotary=rotary,
        rotary_dims=dims,
        rotary_base=rotary_base,
        norm_before=norm_before,
    )
    return replace(
        layer,
        norm_query=_vector_norm(query_norm, layer, layer.query, of_query, f"the query norm of {label}"),
        norm_key=_vector_norm(key_norm, layer, layer.key, of_key, f"the key norm of {label}"),
    )


@dataclass(frozen=True)
class NormTensors:
    """The norm of queries or keys as a file or caller has it: its kind, gain and bias, not yet checked."""

    kind: str
    gain: Any = None
    bias: Any = None


def _vector_norm(
    found: NormTensors | None, layer: Projections, weights: Array, biases: Array | None, what: str
) -> VectorNorm | None:
    """Return a checked norm; a gain of heads·d_k components in one row belongs to one norm over all heads."""
    if found is None:
        return None
    if found.kind not in KINDS:
        raise ValueError(f"qk_norm must be one of {', '.join(KINDS)}, or None: got {found.kind!r}")
    heads, d_k = weights.shape[:2]
    parts: dict[str, Array] = {}
    for part, values in (("gain", found.gain), ("bias", found.bias)):
        if values is None:
            continue
        array = as_array(values, f"{part} of {what}")
        if array.shape not in ((d_k,), (heads, d_k), (heads * d_k,)):
            raise ValueError(
                f"{part} of {what} must be ({d_k},), {(heads, d_k)} or ({heads * d_k},): got {array.shape}"
            )
        parts[part] = np.broadcast_to(array.reshape(-1, d_k), (heads, d_k))
    wide = heads > 1 and found.gain is not None and np.shape(found.gain) == (heads * d_k,)
    size = mean_square(weights, biases, layer) if wide else None
    return VectorNorm(found.kind, parts.get("gain"), parts.get("bias"), size)


def _vector(values: Any, what: str, size: int) -> Array | None:
    if values is None:
        return None
    array = as_array(values, what)
    if array.shape != (size,):
        raise ValueError(f"{what} must have shape ({size},): got {array.shape}")
    return array
