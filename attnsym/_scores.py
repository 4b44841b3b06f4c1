"""From a caller's arrays to the score matrix: layout, grouped heads, score functions, overflow, soft-cap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._validate import (
    CONVENTIONS,
    Array,
    ScoreFunction,
    attention_shapes,
    choice,
    compute_dtype,
    flag,
    output_dtype,
    real_array,
)
from attnsym.masks import Window


@dataclass(frozen=True)
class Inputs:
    """
    What attention computes from: vectors as rows, in the type of the computation.

    Attributes
    ----------
    query, key, value : ndarray
        (..., n_queries, d_k), (..., n_keys, d_k), (..., n_keys, d_v); `value` is an empty-width stand-in for None.
    columns : bool
        Whether the caller's vectors are columns, so that results are transposed on the way out.
    grouped : bool
        Whether several query heads share a key head (axis −3).
    output_dtype : dtype
        The type of the output.
    """

    query: Array
    key: Array
    value: Array
    columns: bool
    grouped: bool
    output_dtype: np.dtype[Any]

    @property
    def scores_shape(self) -> tuple[int, ...]:
        """Shape of the score matrix, vectors as rows."""
        query, key = self.query, self.key
        if self.grouped:
            lead = np.broadcast_shapes(query.shape[:-3], key.shape[:-3]) + query.shape[-3:-2]
        else:
            lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2])
        return (*lead, query.shape[-2], key.shape[-2])

    def to_caller(self, matrix: Array) -> Array:
        """Return a matrix with queries down in the caller's convention."""
        return matrix.swapaxes(-1, -2) if self.columns else matrix


@dataclass(frozen=True)
class Settings:
    """
    What to compute from `Inputs`: checked, vectors as rows.

    Attributes
    ----------
    score, scale, softcap
        The score function, the resolved factor on it, and the cap or None.
    attn_mask, visible : ndarray or None
        The caller's mask; and who may attend where a part of a problem has been cut out.
    is_causal, window, causal_alignment
        As the caller gave them.
    """

    score: str | ScoreFunction
    scale: float
    softcap: float | None
    attn_mask: Array | None = None
    visible: Array | None = None
    is_causal: bool = False
    window: Window = None
    causal_alignment: str = "top_left"


def read_inputs(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike | None,
    *,
    enable_gqa: bool,
    convention: str,
    score: str | ScoreFunction,
) -> Inputs:
    """Check the caller's arrays and return them as `Inputs`."""
    choice(convention, "convention", CONVENTIONS)
    if not callable(score) and score not in ("dot", "cosine"):
        raise ValueError(f"score must be 'dot', 'cosine' or a callable (query, key) -> scores: got {score!r}")
    arrays = [real_array(query, "query"), real_array(key, "key")]
    if value is not None:
        arrays.append(real_array(value, "value"))
    dtype, out = compute_dtype(*arrays), output_dtype(*arrays)
    rows = [x.astype(dtype, copy=False) for x in arrays]
    if convention == "columns":
        rows = [x.swapaxes(-1, -2) if x.ndim >= 2 else x for x in rows]
    q, k = rows[:2]
    v = rows[2] if len(rows) == 3 else None
    attention_shapes(q, k, v, enable_gqa, same_d_k=not callable(score))
    grouped = flag(enable_gqa, "enable_gqa") and q.shape[-3] != k.shape[-3]
    return Inputs(q, k, k[..., :0] if v is None else v, convention == "columns", grouped, out)


def score_matrix(x: Inputs, score: str | ScoreFunction, scale: float, softcap: float | None) -> Array:
    """Return scale · f(query, key), soft-capped, as a fresh C-contiguous (..., n_queries, n_keys)."""
    if callable(score):
        scores = _called_scores(x, score, scale)
    elif score == "cosine":
        unit = Inputs(unit_vectors(x.query), unit_vectors(x.key), x.value, x.columns, x.grouped, x.output_dtype)
        scores = np.clip(_dot_scores(unit, 1.0), -1, 1)  # rounding must not leave the domain of arccos
        scores = times_scale(scores, scale)
    else:
        scores = _dot_scores(x, scale)
    if softcap is not None:
        with np.errstate(over="ignore"):  # ±inf / cap is a tanh of ±1
            np.divide(scores, softcap, out=scores)
        np.tanh(scores, out=scores)
        np.multiply(scores, softcap, out=scores)
    return scores


def times_scale(x: Array, scale: float) -> Array:
    """Return x · scale, exactly rounded even where the scale alone lies outside the range of x's type."""
    limits = np.finfo(x.dtype)
    if scale == 0 or float(limits.tiny) <= abs(scale) <= float(limits.max):
        return np.asarray(x * x.dtype.type(scale))
    mantissa, exponent = np.frexp(scale)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.ldexp(x * x.dtype.type(mantissa), exponent))


def unit_vectors(x: Array) -> Array:
    """Return `x` with every vector of its last axis divided by its length; zero vectors stay zero."""
    if x.shape[-1] == 0:
        return x
    largest = np.max(np.abs(x), axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # inf/inf: a vector with an infinite component has no direction
        unit = x / np.where(largest == 0, x.dtype.type(1), largest)
    length = np.sqrt(np.sum(unit * unit, axis=-1, keepdims=True))
    unit /= np.where(length == 0, x.dtype.type(1), length)
    return np.asarray(unit)


def heads_times_keys(a: Array, b: Array, grouped: bool) -> Array:
    """Return a @ b where, if `grouped`, a's heads (axis −3) come in runs that share one head of b."""
    if not grouped:
        return np.asarray(a @ b)
    *lead, heads, rows, width = a.shape
    kv_heads = b.shape[-3]
    stacked = a.reshape(*lead, kv_heads, heads // kv_heads * rows, width) @ b
    return np.asarray(stacked.reshape(*stacked.shape[:-3], heads, rows, b.shape[-1]))


def _dot_scores(x: Inputs, scale: float) -> Array:
    transposed = x.key.swapaxes(-1, -2)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = heads_times_keys(times_scale(x.query, scale), transposed, x.grouped)
        total = scores.sum()
    if not np.isfinite(total) and not np.isfinite(scores).all():
        _repair_overflow(x, scale, scores)
    return scores


def _repair_overflow(x: Inputs, scale: float, scores: Array) -> None:
    """Recompute in place what overflowed on the way although both vectors are finite, by exact powers of two."""
    q, q_power, q_finite = _normalised(x.query)
    k, k_power, k_finite = _normalised(x.key)
    if x.grouped:
        k, k_power, k_finite = (np.repeat(a, q.shape[-3] // k.shape[-3], axis=-3) for a in (k, k_power, k_finite))
    mantissa, exponent = np.frexp(scale)
    product = q @ k.swapaxes(-1, -2) * x.query.dtype.type(mantissa)
    with np.errstate(over="ignore", under="ignore"):
        exact = np.ldexp(product, q_power + k_power.swapaxes(-1, -2) + exponent)
    np.copyto(scores, exact, where=q_finite & k_finite.swapaxes(-1, -2))


def _normalised(x: Array) -> tuple[Array, Array, Array]:
    finite = np.asarray(np.isfinite(x).all(axis=-1, keepdims=True))
    x = np.where(finite, x, x.dtype.type(0))
    power = np.frexp(np.max(np.abs(x), axis=-1, keepdims=True, initial=0))[1]
    return np.asarray(np.ldexp(x, -power)), np.asarray(power), finite


def _called_scores(x: Inputs, score: ScoreFunction, scale: float) -> Array:
    key = np.repeat(x.key, x.query.shape[-3] // x.key.shape[-3], axis=-3) if x.grouped else x.key
    given = real_array(score(x.to_caller(x.query), x.to_caller(key)), "the result of score")
    wanted = x.scores_shape
    returned = given.swapaxes(-1, -2) if x.columns and given.ndim >= 2 else given
    if returned.shape != wanted:
        asked = (*wanted[:-2], wanted[-1], wanted[-2]) if x.columns else wanted
        raise ValueError(f"score must return the shape {asked}: got {given.shape}")
    scores = np.array(returned, dtype=x.query.dtype, order="C")  # a copy: the callable may keep what it returned
    return scores if scale == 1 else times_scale(scores, scale)
