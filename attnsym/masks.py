"""Who may attend to whom: causal, window and padding masks, and their intersection with a caller's own mask."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._validate import ALIGNMENTS, Array, as_array, choice, length, mask_array

Window = int | tuple[int | None, int | None] | None


def causal_mask(n_queries: int, n_keys: int, *, alignment: str = "top_left") -> npt.NDArray[np.bool_]:
    """
    Return which keys precede, or stand at, each query's position.

    Parameters
    ----------
    n_queries, n_keys : int
        Numbers of queries and of keys.
    alignment : {"top_left", "bottom_right"}
        Where query i stands among the keys when the two numbers differ: at position i (the first query at the first
        key), or at i + n_keys − n_queries (the last query at the last key, as in decoding with a cache).

    Returns
    -------
    ndarray of bool, (n_queries, n_keys)
        True where key j ≤ position of query i, so True = may attend. Rows without a True attend to nothing.

    Raises
    ------
    ValueError
        For a length that is not a whole number ≥ 0, or an unknown alignment.

    Examples
    --------
    >>> causal_mask(2, 3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0]])
    >>> causal_mask(2, 3, alignment="bottom_right").astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    end = causal_end(n_queries, n_keys, alignment)
    return np.arange(n_keys) < end[:, None]


def causal_end(n_queries: int, n_keys: int, alignment: str) -> npt.NDArray[np.int64]:
    """Return, for each query, the first key that is out of its causal reach: the one place where this is decided."""
    return query_positions(n_queries, n_keys, alignment) + 1


def window_mask(n_queries: int, n_keys: int, window: Window, *, alignment: str = "top_left") -> npt.NDArray[np.bool_]:
    """
    Return which keys lie in the window around each query's position.

    Parameters
    ----------
    n_queries, n_keys : int
        Numbers of queries and of keys.
    window : int or (left, right)
        A number w allows keys at distance < w on both sides (w = 1 is the position itself). A pair allows
        position − left ≤ j ≤ position + right, both ends included; None leaves that side open.
    alignment : {"top_left", "bottom_right"}
        Where query i stands among the keys, as in `causal_mask`.

    Returns
    -------
    ndarray of bool, (n_queries, n_keys)
        True = may attend.

    Raises
    ------
    ValueError
        For a negative or fractional width, w = 0 (which would allow nothing), or an unknown alignment.

    Examples
    --------
    >>> window_mask(3, 3, (1, 0)).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """
    first, end = _window_range(n_queries, n_keys, window, alignment)
    keys = np.arange(n_keys)
    return (keys >= first[:, None]) & (keys < end[:, None])


def padding_mask(valid: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """
    Turn the validity of tokens into a mask for scores with a head axis.

    Parameters
    ----------
    valid : array_like, (batch, length)
        Boolean, or integers that are 0 (padding) or 1 (token), as tokenisers return them.

    Returns
    -------
    ndarray of bool, (batch, 1, 1, length)
        Broadcasts over heads and queries of scores (batch, num_heads, n_queries, length). True = may attend.

    Raises
    ------
    ValueError
        If `valid` has other axes or other values.

    Examples
    --------
    >>> padding_mask([[1, 1, 0]]).shape
    (1, 1, 1, 3)
    """
    array = as_array(valid, "valid")
    if array.ndim != 2:
        raise ValueError(f"valid must have the axes (batch, length): got shape {array.shape}")
    if array.dtype.kind not in "biu" or (array.dtype.kind != "b" and not np.isin(array, (0, 1)).all()):
        raise ValueError(f"valid must be boolean or hold the integers 0 and 1: got dtype {array.dtype}")
    return array.astype(bool)[:, None, None, :]


def allowed_mask(
    n_queries: int, n_keys: int, is_causal: bool, window: Any, causal_alignment: str
) -> npt.NDArray[np.bool_] | None:
    """Return the intersection of causal and window masks, or None where both are off."""
    allowed = causal_mask(n_queries, n_keys, alignment=causal_alignment) if is_causal else None
    if window is None:
        return allowed
    near = window_mask(n_queries, n_keys, window, alignment=causal_alignment)
    return near if allowed is None else allowed & near


def key_range(
    n_queries: int, n_keys: int, is_causal: bool, window: Any, causal_alignment: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return what `allowed_mask` allows as a range for each query: the first key, and the first one behind it."""
    first, end = _window_range(n_queries, n_keys, (None, None) if window is None else window, causal_alignment)
    if is_causal:
        end = np.minimum(end, causal_end(n_queries, n_keys, causal_alignment))
    return np.clip(first, 0, n_keys), np.clip(end, 0, n_keys)


def apply_mask(scores: Array, mask: Array) -> Array:
    """
    Mask `scores`, in place where that is possible: False and −inf drop a key, other floats are added.

    A dropped key's score is replaced, not added to, so that a NaN there does not survive; and a finite bias never
    turns a finite score into ±inf, however large (it saturates), so that only −inf means "masked".
    """
    if mask.dtype.kind == "b":
        np.copyto(scores, -np.inf, where=~mask)
        return scores
    bias = as_bias(mask, scores.dtype)
    limit = np.finfo(scores.dtype).max
    biased = scores + bias
    overflowed = np.isinf(biased)
    if overflowed.any():
        overflowed &= np.isfinite(scores) & np.isfinite(bias)
        np.copyto(biased, np.copysign(limit, biased), where=overflowed)
    np.copyto(biased, -np.inf, where=bias == -np.inf)
    return np.asarray(biased)


def as_bias(mask: Array, dtype: np.dtype[Any]) -> Array:
    """Return a mask as what is added to scores: 0 or −inf if boolean; what is finite stays so in a smaller dtype."""
    if mask.dtype.kind == "b":
        return np.asarray(np.where(mask, dtype.type(0), dtype.type(-np.inf)))
    if mask.dtype == dtype:
        return mask
    limit = float(np.finfo(dtype).max)
    wide = mask.astype(np.result_type(mask.dtype, dtype) if mask.dtype.kind == "f" else dtype, copy=False)
    return np.asarray(np.where(np.isfinite(wide), np.clip(wide, -limit, limit), wide), dtype)


def window_sides(window: Any) -> tuple[int | None, int | None]:
    """Return (left, right) reach of a window, both inclusive, None where a side is open."""
    if isinstance(window, (tuple, list)):
        if len(window) != 2:
            raise ValueError(f"window must be a whole number or a pair (left, right): got {window!r}")
        left, right = (None if side is None else length(side, "each side of window", most=None) for side in window)
        return _within_reach(left), _within_reach(right)
    try:
        width = operator.index(window)
    except TypeError:
        width = 0
    if width < 1 or isinstance(window, (bool, np.bool_)):
        raise ValueError(f"window must be a whole number, 1 or more, or a pair (left, right): got {window!r}")
    return _within_reach(width - 1), _within_reach(width - 1)


def _within_reach(side: int | None) -> int | None:
    """Cut a side to what no array is longer than, so that a position plus the side stays in 64 bits."""
    return None if side is None else min(side, 1 << 60)


def read_mask(attn_mask: Any, shape: tuple[int, ...], transposed: bool) -> Array:
    """Check a caller's mask against the scores' `shape`; under columns it arrives as (..., n_keys, n_queries)."""
    if not transposed:
        return mask_array(attn_mask, shape)
    mask = mask_array(attn_mask, (*shape[:-2], shape[-1], shape[-2]))
    return mask.swapaxes(-1, -2) if mask.ndim >= 2 else mask[:, None] if mask.ndim else mask


def _window_range(
    n_queries: int, n_keys: int, window: Any, alignment: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    left, right = window_sides(window)
    position = query_positions(n_queries, n_keys, alignment)
    first = np.zeros_like(position) if left is None else position - left
    end = np.full_like(position, n_keys) if right is None else position + right + 1
    return first, end


def query_positions(n_queries: Any, n_keys: Any, alignment: str) -> npt.NDArray[np.int64]:
    """Return where each query stands among the keys."""
    choice(alignment, "alignment", ALIGNMENTS)
    n_queries, n_keys = length(n_queries, "n_queries"), length(n_keys, "n_keys")
    offset = n_keys - n_queries if alignment == "bottom_right" else 0
    return np.arange(offset, offset + n_queries, dtype=np.int64)
