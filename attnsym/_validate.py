"""Shape and domain checks: the one place that words the errors of the attention functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
ScoreFunction = Callable[[Array, Array], npt.ArrayLike]

_HALF_PRECISION = {"float16", "bfloat16"}
_LONGEST = 1 << 40
CONVENTIONS = ("rows", "columns")
ALIGNMENTS = ("top_left", "bottom_right")


def as_array(x: npt.ArrayLike, name: str) -> Array:
    """Return `x` as an array of any dtype; what NumPy cannot read, such as a tensor on another device, is refused."""
    if isinstance(x, np.ma.MaskedArray):
        raise ValueError(f"{name} must be a plain array: got a masked array, whose mask attn_mask would have to carry")
    try:
        return np.asarray(x)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{name} must be an array of numbers: {reason}") from None


def real_array(x: npt.ArrayLike, name: str) -> Array:
    """Return `x` as a floating array: integers become float64, floats stay as they are; anything else is refused."""
    array = as_array(x, name)
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    if array.dtype.kind == "f" or array.dtype.name in _HALF_PRECISION:
        return array
    raise ValueError(f"{name} must hold real numbers: got dtype {array.dtype}")


def compute_dtype(*arrays: Array) -> np.dtype[Any]:
    """Return the dtype in which to compute with `arrays`: float32 for 16-bit floats, else their common type."""
    single = np.dtype(np.float32)
    dtypes = {single if a.dtype.name in _HALF_PRECISION else a.dtype for a in arrays}
    return dtypes.pop() if len(dtypes) == 1 else np.result_type(*dtypes)


def output_dtype(*arrays: Array) -> np.dtype[Any]:
    """Return the dtype of an output: the common dtype where there is one, so 16-bit in, 16-bit out."""
    dtypes = {a.dtype for a in arrays}
    return dtypes.pop() if len(dtypes) == 1 else compute_dtype(*arrays)


def choice(value: object, name: str, allowed: tuple[str, ...]) -> None:
    """Refuse a `value` that is not among the names `allowed`."""
    if not (isinstance(value, str) and value in allowed):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}: got {value!r}")


def finite_number(value: Any, name: str) -> float:
    """Return `value` as a float; booleans, NaN and infinities are refused."""
    number = math.nan
    if not isinstance(value, (bool, np.bool_, str, bytes)) and not np.iscomplexobj(value):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number: got {value!r}")
    return number


def optional_scale(scale: Any) -> float | Array | None:
    """Return the scale as a float or, of one axis or more, as an array; or None for the default."""
    if isinstance(scale, str):
        raise ValueError(f"scale must be None (for 1/√d_k) or a finite number: got {scale!r}")
    if isinstance(scale, (list, tuple)) or getattr(scale, "ndim", None):
        return finite_array(scale, "scale")
    return None if scale is None else finite_number(scale, "scale")


def finite_array(x: Any, name: str) -> Array:
    """Return `x` as a float64 array of finite numbers."""
    array = real_array(x, name).astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite: got NaN or infinity")
    return array


def optional_sink(sink: Any) -> Array | None:
    """Return the sink's logits as a float64 array, ±inf allowed, or None for no sink."""
    if sink is None:
        return None
    array = real_array(sink, "sink").astype(np.float64)
    if np.isnan(array).any():
        raise ValueError("sink must not be NaN")
    return array


def optional_softcap(softcap: Any) -> float | None:
    """Return the soft-cap as a positive float, or None for no cap."""
    if softcap is None:
        return None
    cap = finite_number(softcap, "softcap")
    held_softcap(cap, np.dtype(np.float64))
    return cap


def held_softcap(cap: float, dtype: np.dtype[Any]) -> None:
    """Refuse a soft-cap that `dtype` cannot hold."""
    limits = np.finfo(dtype)
    if not float(limits.tiny) <= cap <= float(limits.max):
        raise ValueError(f"softcap must be positive and in the range of {dtype}, or None for no cap: got {cap!r}")


def probability(p: Any, name: str) -> float:
    """Return `p` as a float in [0, 1]."""
    number = finite_number(p, name)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name} must lie in [0, 1]: got {p!r}")
    return number


def length(n: Any, name: str, least: int = 0, most: int | None = _LONGEST) -> int:
    """Return `n` as an int from `least` to what an array's axis may be long; booleans and fractions are refused."""
    if isinstance(n, (bool, np.bool_)) or not isinstance(n, (int, np.integer)) or n < least:
        raise ValueError(f"{name} must be a whole number, {least} or more: got {n!r}")
    if most is not None and n > most:
        raise ValueError(f"{name} must be at most {most}, as no array is longer: got {n!r}")
    return int(n)


def fits_shape(array: Array, shape: tuple[int, ...]) -> bool:
    """Return whether `array` broadcasts to `shape` as it is."""
    try:
        return np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        return False


def flag(value: Any, name: str) -> bool:
    """Return `value` as a bool; a string, say, is refused, since any would count as True."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False: got {value!r}")
    return bool(value)


def random_generator(rng: Any) -> np.random.Generator:
    """Return a Generator from None (fresh entropy), a seed, or a Generator, which the draw then advances."""
    if isinstance(rng, (bool, np.bool_)):
        raise ValueError(f"rng must be None, a seed or a numpy Generator: got {rng!r}")
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise ValueError(f"rng must be None, a seed or a numpy Generator: {error}") from None


def attention_shapes(query: Array, key: Array, value: Array | None, enable_gqa: bool, same_d_k: bool = True) -> None:
    """Check that query (..., n_queries, d_k), key (..., n_keys, d_k) and value (..., n_keys, d_v) fit together."""
    named = [("query", query), ("key", key)] + ([("value", value)] if value is not None else [])
    for name, array in named:
        if array.ndim < 2:
            raise ValueError(f"{name} must have at least two axes, (length, dimension): got shape {array.shape}")
    if same_d_k and query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must share their last axis d_k: got query {query.shape} and key {key.shape}")
    if value is not None and key.shape[-2] != value.shape[-2]:
        raise ValueError(f"key and value must share the axis n_keys: got key {key.shape} and value {value.shape}")
    shapes = [array.shape[:-2] for _, array in named]
    if enable_gqa:
        _grouped_heads(named)
        shapes = [shape[:-1] for shape in shapes]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        got = ", ".join(f"{name} {array.shape}" for name, array in named)
        hint = "" if enable_gqa or query.ndim < 3 else " (enable_gqa=True lets several query heads share a key head)"
        raise ValueError(f"the leading axes must broadcast: got {got}{hint}") from None


def _grouped_heads(named: list[tuple[str, Array]]) -> None:
    for name, array in named:
        if array.ndim < 3:
            raise ValueError(f"enable_gqa needs a head axis in {name}, third from the end: got shape {array.shape}")
    heads = [array.shape[-3] for _, array in named]
    if len(set(heads[1:])) != 1:
        raise ValueError(f"key and value must have the same number of heads: got {heads[1]} and {heads[2]}")
    if heads[0] != heads[1] and (heads[1] == 0 or heads[0] % heads[1]):
        raise ValueError(f"the heads of key must divide those of query: got {heads[0]} query and {heads[1]} key heads")


def mask_array(attn_mask: npt.ArrayLike, shape: tuple[int, ...], name: str = "attn_mask") -> Array:
    """Check a mask against the scores' `shape`: boolean, or floating and added; right-aligned broadcasting."""
    mask = as_array(attn_mask, name)
    if mask.dtype.kind != "b" and mask.dtype.kind != "f" and mask.dtype.name not in _HALF_PRECISION:
        raise ValueError(
            f"{name} must be boolean (True = may attend) or floating (added to the scores): got dtype {mask.dtype}"
        )
    if not fits_shape(mask, shape):
        raise ValueError(f"{name} must broadcast to the scores' shape {shape}: got {mask.shape}")
    return mask
