"""From a caller's arrays to the score matrix: layout, grouped heads, score functions, overflow, soft-cap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._settings import Settings
from attnsym._validate import (
    Array,
    ScoreFunction,
    attention_shapes,
    compute_dtype,
    fits_shape,
    held_softcap,
    output_dtype,
    real_array,
)
from attnsym.masks import as_bias, read_mask
from attnsym.norms import unit_vectors

_WIDE_CAP = 2.0**60
_FAR_BELOW = 2.0**-30  # tanh x is x to 61 bits there


@dataclass(frozen=True)
class Inputs:
    """
    What attention computes from: vectors as rows, in the type of the computation.

    Attributes
    ----------
    query, key, value : ndarray
        (..., n_queries, d_k), (..., n_keys, d_k), (..., n_keys, d_v); `value` is an empty-width stand-in for None.
    scale : float or ndarray, (..., n_queries or 1, 1)
        The factor on the scores.
    offset : ndarray, (..., 1, 1), or None
        The logit of the sink under softmax, what is added to the scores under other normalizers.
    mask : ndarray or None
        The caller's mask, queries down; right-aligned with the scores.
    columns : bool
        Whether the caller's vectors are columns, so that results are transposed on the way out.
    grouped : bool
        Whether several query heads share a key head (axis −3).
    output_dtype : dtype
        The type of the output.
    visible : ndarray of bool or None
        Who may attend where a part of a problem has been cut out.
    """

    query: Array
    key: Array
    value: Array
    scale: float | Array
    offset: Array | None
    mask: Array | None
    columns: bool
    grouped: bool
    output_dtype: np.dtype[Any]
    visible: Array | None = None

    @property
    def scores_shape(self) -> tuple[int, ...]:
        """Shape of the score matrix, vectors as rows."""
        return scores_shape(self.query, self.key, self.grouped)

    def to_caller(self, matrix: Array) -> Array:
        """Return a matrix with queries down in the caller's convention."""
        return matrix.swapaxes(-1, -2) if self.columns else matrix


def read_inputs(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike | None,
    settings: Settings,
    attn_mask: npt.ArrayLike | None = None,
) -> Inputs:
    """Check the caller's arrays against one another and the settings, and return them as `Inputs`."""
    arrays = [real_array(query, "query"), real_array(key, "key")]
    if value is not None:
        arrays.append(real_array(value, "value"))
    dtype, out = compute_dtype(*arrays), output_dtype(*arrays)
    rows = [x.astype(dtype, copy=False) for x in arrays]
    if settings.columns:
        rows = [x.swapaxes(-1, -2) if x.ndim >= 2 else x for x in rows]
    q, k = rows[:2]
    v = rows[2] if len(rows) == 3 else None
    attention_shapes(q, k, v, settings.enable_gqa, same_d_k=not callable(settings.score))
    if settings.softcap is not None:
        held_softcap(settings.softcap, dtype)
    grouped = settings.enable_gqa and q.shape[-3] != k.shape[-3]
    shape = scores_shape(q, k, grouped)
    return Inputs(
        query=q,
        key=k,
        value=k[..., :0] if v is None else v,
        scale=_scale(settings, q.shape[-1], shape),
        offset=_offset(settings, shape, dtype),
        mask=None if attn_mask is None else read_mask(attn_mask, shape, settings.columns),
        columns=settings.columns,
        grouped=grouped,
        output_dtype=out,
    )


def _scale(settings: Settings, d_k: int, shape: tuple[int, ...]) -> float | Array:
    scale = settings.scale_at(d_k)
    if isinstance(scale, float):
        return scale
    _fit(scale, "scale", shape[:-1], "a number, or an array over the queries, (n_queries,) or (num_heads, n_queries)")
    return scale[..., None]


def _offset(settings: Settings, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    offset, per_head = settings.offset_at(shape[-1]), "a number, or one for each head"
    if offset is None:
        return None
    _fit(offset, "sink" if settings.normalizer == "softmax" else "normalizer_bias", shape[:-2], per_head)
    return as_bias(offset, dtype)[..., None, None]


def _fit(array: Array, name: str, shape: tuple[int, ...], wanted: str) -> None:
    if not fits_shape(array, shape):
        raise ValueError(f"{name} must be {wanted}, that broadcasts to {shape}: got shape {array.shape}")


def scores_shape(query: Array, key: Array, grouped: bool) -> tuple[int, ...]:
    """Return the shape of the score matrix of vectors as rows."""
    if grouped:
        lead = np.broadcast_shapes(query.shape[:-3], key.shape[:-3]) + query.shape[-3:-2]
    else:
        lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return (*lead, query.shape[-2], key.shape[-2])


def score_matrix(x: Inputs, score: str | ScoreFunction, softcap: float | None) -> Array:
    """Return scale · f(query, key), soft-capped, as a fresh C-contiguous (..., n_queries, n_keys)."""
    if callable(score):
        scores = _called_scores(x, score)
    elif score == "cosine":
        unit = replace(x, query=unit_vectors(x.query), key=unit_vectors(x.key), scale=1.0)
        scores = np.clip(_dot_scores(unit), -1, 1)  # rounding must not leave the domain of arccos
        scores = times_scale(scores, x.scale)
    else:
        scores = _dot_scores(x)
    return scores if softcap is None else cap_in_place(scores, softcap)


def cap_in_place(scores: Array, softcap: float) -> Array:
    """Overwrite the scores s by softcap · tanh(s / softcap), and return them."""
    small = None
    if softcap > _WIDE_CAP:  # a quotient may underflow where the score does not: a score so far below its cap is kept
        small, kept = np.abs(scores) < softcap * _FAR_BELOW, scores.copy()
    np.divide(scores, softcap, out=scores)  # ±inf / cap is a tanh of ±1
    np.tanh(scores, out=scores)
    np.multiply(scores, softcap, out=scores)
    if small is not None:
        np.copyto(scores, kept, where=small)
    return scores


def times_scale(x: Array, scale: float | Array) -> Array:
    """Return x · scale, exactly rounded even where the scale alone lies outside the range of x's type."""
    limits, size = np.finfo(x.dtype), np.abs(scale)
    if np.all((size == 0) | ((float(limits.tiny) <= size) & (size <= float(limits.max)))):
        return np.asarray(x * np.asarray(scale, x.dtype))
    mantissa, exponent = np.frexp(scale)
    return np.asarray(np.ldexp(x * mantissa.astype(x.dtype), exponent))


def heads_times_keys(a: Array, b: Array, grouped: bool) -> Array:
    """Return a @ b where, if `grouped`, a's heads (axis −3) come in runs that share one head of b."""
    if not grouped:
        return np.asarray(a @ b)
    *lead, heads, rows, width = a.shape
    kv_heads = b.shape[-3]
    stacked = a.reshape(*lead, kv_heads, heads // kv_heads * rows, width) @ b
    return np.asarray(stacked.reshape(*stacked.shape[:-3], heads, rows, b.shape[-1]))


def _dot_scores(x: Inputs) -> Array:
    scores = heads_times_keys(times_scale(x.query, x.scale), x.key.swapaxes(-1, -2), x.grouped)
    if not np.isfinite(scores.sum()) and not np.isfinite(scores).all():
        _repair_overflow(x, scores)
    return scores


def _repair_overflow(x: Inputs, scores: Array) -> None:
    """Recompute in place what overflowed on the way although both vectors are finite, by exact powers of two."""
    q, q_power, q_finite = _normalised(x.query)
    k, k_power, k_finite = _normalised(x.key)
    if x.grouped:
        k, k_power, k_finite = (np.repeat(a, q.shape[-3] // k.shape[-3], axis=-3) for a in (k, k_power, k_finite))
    mantissa, exponent = np.frexp(x.scale)
    product = q @ k.swapaxes(-1, -2) * mantissa.astype(x.query.dtype)
    exact = np.ldexp(product, q_power + k_power.swapaxes(-1, -2) + exponent)
    np.copyto(scores, exact, where=q_finite & k_finite.swapaxes(-1, -2) & ~np.isfinite(scores))


def _normalised(x: Array) -> tuple[Array, Array, Array]:
    finite = np.asarray(np.isfinite(x).all(axis=-1, keepdims=True))
    x = np.where(finite, x, x.dtype.type(0))
    # half of the range: products do not overflow, and what is small beside the largest component does not vanish
    half = np.finfo(x.dtype).maxexp // 2 - 12
    power = np.frexp(np.max(np.abs(x), axis=-1, keepdims=True, initial=0))[1] - half
    return np.asarray(np.ldexp(x, -power)), np.asarray(power), finite


def _called_scores(x: Inputs, score: ScoreFunction) -> Array:
    key = np.repeat(x.key, x.query.shape[-3] // x.key.shape[-3], axis=-3) if x.grouped else x.key
    given = real_array(score(x.to_caller(x.query), x.to_caller(key)), "the result of score")
    wanted = x.scores_shape
    returned = given.swapaxes(-1, -2) if x.columns and given.ndim >= 2 else given
    if returned.shape != wanted:
        asked = (*wanted[:-2], wanted[-1], wanted[-2]) if x.columns else wanted
        raise ValueError(f"score must return the shape {asked}: got {given.shape}")
    scores = np.array(returned, dtype=x.query.dtype, order="C")  # a copy: the callable may keep what it returned
    return scores if isinstance(x.scale, float) and x.scale == 1 else times_scale(scores, x.scale)
