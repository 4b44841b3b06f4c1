"""Takes arrays of any maker and brings them to (batch, heads, length, d_k) without copying."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.vocabulary.text import printable

Array = NDArray[Any]

LAYOUTS = ("bhsd", "bshd", "hsd", "shd")


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
    array = _numpy(tensor)
    if array.dtype.kind not in "iuf" and not _is_small_float(array.dtype):
        raise ValueError(f"{printable(name)} must hold real numbers: got {array.dtype}")
    return array


def _numpy(tensor: Any) -> Array:
    """Return any array as a NumPy one; torch's types that NumPy has not (bfloat16, float8) as float32."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        small = str(tensor.dtype).startswith(("torch.bfloat", "torch.float8", "torch.float4"))
        tensor = (tensor.float() if small else tensor).numpy()
    return np.asarray(tensor)


def _is_small_float(dtype: np.dtype[Any]) -> bool:
    """Tell whether a type is one of ml_dtypes' floats, which NumPy counts as no number."""
    return dtype.kind == "V" and dtype.type.__module__.startswith("ml_dtypes")


def as_layer(
    name: str,
    query: Any,
    key: Any,
    value: Any = None,
    padding_mask: Any = None,
    *,
    layout: str = "bhsd",
    enable_gqa: bool = False,
    num_heads: int | None = None,
) -> LayerArrays:
    """
    Check one layer and return its arrays.

    Parameters
    ----------
    name : str
        For messages.
    query, key, value : array_like
        (batch, heads, length, d) under ``layout="bhsd"``, (batch, length, heads, d) under ``"bshd"``; without a batch
        axis ``"hsd"`` or ``"shd"``; (length, d) of one head under any. With `num_heads` (batch, length, heads·d) or
        (length, heads·d), as a projection returns it.
    padding_mask : array_like, optional
        (batch, n_keys) of 0 and 1, 1 = a real token. Where queries and keys have one length it counts for both.

    Raises
    ------
    ValueError
        For axes that do not fit or can be read in two ways, head counts that do not divide or need
        ``enable_gqa=True``, or a mask that is not 0/1.
    """
    label = printable(name)
    if num_heads is not None and (isinstance(num_heads, bool) or not isinstance(num_heads, int) or num_heads < 1):
        raise ValueError(f"num_heads must be a whole number of at least 1: got {num_heads!r}")
    q = _four_axes(query, f"query of {label}", layout, num_heads)
    if num_heads not in (None, q.shape[1]):
        raise ValueError(f"query of {label} must have num_heads = {num_heads} heads: got {q.shape[1]}")
    key_heads = None if num_heads is None else _key_heads(key, f"key of {label}", q.shape[3])
    k = _four_axes(key, f"key of {label}", layout, key_heads)
    v = None if value is None else _four_axes(value, f"value of {label}", layout, key_heads and k.shape[1])
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


def _four_axes(tensor: Any, what: str, layout: str, num_heads: int | None) -> Array:
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}: got {layout!r}")
    array = as_array(tensor, what)
    if not 2 <= array.ndim <= 4:
        raise ValueError(f"{what} must have 2 to 4 axes ({', '.join(layout)}): got shape {array.shape}")
    if array.shape[-1] == 0:
        raise ValueError(f"{what} has no components (d_k = 0): got shape {array.shape}")
    if num_heads is not None and array.ndim < 4:
        array = _split(array, what, num_heads)
    elif array.ndim == 3 and len(layout) == 4:
        raise ValueError(
            f"{what} has three axes, which can be read in two ways: pass num_heads for (batch, length, heads·d), or "
            f'layout="{layout[1:]}" for ({", ".join(layout[1:])}); got shape {array.shape}'
        )
    elif array.ndim == 4 and len(layout) == 3:
        raise ValueError(f"{what} must have three axes ({', '.join(layout)}): got shape {array.shape}")
    elif layout in ("bshd", "shd") and array.ndim > 2:
        array = np.swapaxes(array, -2, -3)
    return array[(None,) * (4 - array.ndim)]


def _split(array: Array, what: str, num_heads: int) -> Array:
    """Split (…, length, heads·d) into (…, heads, length, d), head by head side by side as `split_heads` does."""
    width = array.shape[-1]
    if width % num_heads:
        raise ValueError(f"{what} of shape {array.shape} does not divide into {num_heads} heads")
    return np.swapaxes(array.reshape(*array.shape[:-1], num_heads, width // num_heads), -2, -3)


def _key_heads(key: Any, what: str, d_k: int) -> int:
    """Return the number of key heads: as many as a key of the queries' width d_k holds."""
    shape = as_array(key, what).shape
    if len(shape) == 4:
        return 1  # split already
    heads, rest = divmod(shape[-1] if shape else 0, d_k)
    if rest or not heads:
        raise ValueError(f"{what} of shape {shape} holds no whole number of heads of d_k = {d_k}")
    return heads


def _validity(mask: Any, label: str, shape: tuple[int, int]) -> Array:
    array = _numpy(mask)
    if _is_small_float(array.dtype):
        array = array.astype(np.float32)
    if array.shape != shape:
        raise ValueError(f"the padding mask of {label} must have shape (batch, n_keys) = {shape}: got {array.shape}")
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ValueError(f"the padding mask of {label} must hold 0 and 1 (1 = a real token)")
    return array.astype(bool)


def as_attention_mask(mask: Any) -> Array:
    """Return a boolean or floating mask as an array; ValueError for anything else (a 0/1 integer mask is ambiguous)."""
    array = _numpy(mask)
    if _is_small_float(array.dtype):
        return array.astype(np.float32)
    if array.dtype.kind not in "bf":
        raise ValueError(f"attn_mask must be boolean (True = may attend) or floating (added): got {array.dtype}")
    return array


def spread_mask(mask: Array, shape: tuple[int, int, int, int]) -> Array:
    """Return a mask broadcast, right-aligned, to (batch, heads, n_queries, n_keys)."""
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(f"attn_mask of shape {mask.shape} does not broadcast to {shape}") from None
