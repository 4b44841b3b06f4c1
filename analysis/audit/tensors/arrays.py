"""Takes arrays of any maker and brings them to (batch, heads, length, d_k) without copying."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.vocabulary.text import printable

Array = NDArray[Any]

LAYOUTS = ("bhsd", "bshd")


@dataclass(frozen=True)
class LayerArrays:
    """One layer's queries, keys and values as (batch, heads, length, d) views, and the validity of its tokens."""

    query: Array
    key: Array
    value: Array | None
    valid_queries: Array | None
    valid_keys: Array | None


def as_array(tensor: Any, name: str) -> Array:
    """Return a NumPy view of a NumPy, torch or JAX array of real numbers; ValueError for anything else."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        tensor = (tensor.float() if "bfloat16" in str(tensor.dtype) else tensor).numpy()
    array = np.asarray(tensor)
    custom = array.dtype.kind == "V" and array.dtype.type.__module__.startswith("ml_dtypes")
    if array.dtype.kind not in "iuf" and not custom:
        raise ValueError(f"{printable(name)} must hold real numbers: got {array.dtype}")
    return array


def as_layer(
    name: str,
    query: Any,
    key: Any,
    value: Any = None,
    padding_mask: Any = None,
    *,
    layout: str = "bhsd",
    enable_gqa: bool = False,
) -> LayerArrays:
    """
    Check one layer and return its arrays.

    Parameters
    ----------
    name : str
        For messages.
    query, key, value : array_like
        (batch, heads, length, d) under ``layout="bhsd"``, (batch, length, heads, d) under ``"bshd"``; without a batch
        axis three axes, with one head and no batch two.
    padding_mask : array_like, optional
        (batch, n_keys) of 0 and 1, 1 = a real token. Where queries and keys have one length it counts for both.

    Raises
    ------
    ValueError
        For axes that do not fit, head counts that do not divide or need ``enable_gqa=True``, or a mask that is not 0/1.
    """
    label = printable(name)
    q, k = _four_axes(query, f"query of {label}", layout), _four_axes(key, f"key of {label}", layout)
    v = None if value is None else _four_axes(value, f"value of {label}", layout)
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"query and key of {label} must share batch and d_k: got {q.shape} and {k.shape} as "
            "(batch, heads, length, d_k)"
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"the {q.shape[1]} query heads of {label} must be a multiple of its {k.shape[1]} key heads")
    if q.shape[1] != k.shape[1] and not enable_gqa:
        raise ValueError(
            f"{label} has {q.shape[1]} query heads and {k.shape[1]} key heads: pass enable_gqa=True for grouped heads, "
            "or another layout"
        )
    if v is not None and v.shape[:3] != k.shape[:3]:
        raise ValueError(f"key and value of {label} must share batch, heads and length: got {k.shape} and {v.shape}")
    valid = None if padding_mask is None else _validity(padding_mask, label, (k.shape[0], k.shape[2]))
    return LayerArrays(q, k, v, valid if q.shape[2] == k.shape[2] else None, valid)


def _four_axes(tensor: Any, what: str, layout: str) -> Array:
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}: got {layout!r}")
    array = as_array(tensor, what)
    if not 2 <= array.ndim <= 4:
        raise ValueError(f"{what} must have 2 to 4 axes ({', '.join(layout)}): got shape {array.shape}")
    if array.shape[-1] == 0:
        raise ValueError(f"{what} has no components (d_k = 0): got shape {array.shape}")
    if layout == "bshd" and array.ndim > 2:
        array = np.swapaxes(array, -2, -3)
    return array[(None,) * (4 - array.ndim)]


def _validity(mask: Any, label: str, shape: tuple[int, int]) -> Array:
    if hasattr(mask, "detach"):
        mask = mask.detach().cpu().numpy()
    array = np.asarray(mask)
    if array.shape != shape:
        raise ValueError(f"the padding mask of {label} must have shape (batch, n_keys) = {shape}: got {array.shape}")
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ValueError(f"the padding mask of {label} must hold 0 and 1 (1 = a real token)")
    return array.astype(bool)


def as_attention_mask(mask: Any) -> Array:
    """Return a boolean or floating mask as an array; ValueError for anything else (a 0/1 integer mask is ambiguous)."""
    if hasattr(mask, "detach"):
        mask = mask.detach().cpu().numpy()
    array = np.asarray(mask)
    if array.dtype.kind not in "bf":
        raise ValueError(f"attn_mask must be boolean (True = may attend) or floating (added): got {array.dtype}")
    return array


def spread_mask(mask: Array, shape: tuple[int, int, int, int]) -> Array:
    """Return a mask broadcast, right-aligned, to (batch, heads, n_queries, n_keys)."""
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(f"attn_mask of shape {mask.shape} does not broadcast to {shape}") from None
