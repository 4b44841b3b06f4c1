"""Maximum and sum of many short rows: NumPy reduces them one by one, which these avoid."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from attnsym._validate import Array

_SHORT_ROW = 32
_REDUCE_DIRECTLY = 512


def row_max(x: Array) -> Array:
    """Return the maximum over the last axis, which stays with length 1; NaN if the row has one."""
    n = x.shape[-1]
    if n >= _REDUCE_DIRECTLY or x.size < 8 * _REDUCE_DIRECTLY:
        return np.asarray(np.maximum.reduce(x, axis=-1, keepdims=True))
    while n > _SHORT_ROW:  # NumPy reduces short rows one by one: fold them across rows instead
        half = (n + 1) // 2
        x = np.maximum(x[..., :half], x[..., n - half :])
        n = half
    across = np.ascontiguousarray(x.reshape(-1, n).T)
    return np.asarray(np.maximum.reduce(across, axis=0).reshape(*x.shape[:-1], 1))


def row_sum(x: Array) -> Array:
    """Return the sum over the last axis of the C-contiguous `x`, which stays with length 1; BLAS adds the fastest."""
    if x.size < 8 * _REDUCE_DIRECTLY:
        return np.asarray(np.add.reduce(x, axis=-1, keepdims=True))
    n = x.shape[-1]
    return np.asarray((x.reshape(-1, n) @ _ones(n, x.dtype)).reshape(*x.shape[:-1], 1))


@functools.lru_cache(maxsize=8)
def _ones(n: int, dtype: np.dtype[Any]) -> Array:
    return np.ones(n, dtype)
