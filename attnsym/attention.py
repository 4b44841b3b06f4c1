"""Scaled dot-product attention: scores, weights, and values mixed by them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._scores import Inputs, heads_times_keys, read_inputs, score_matrix
from attnsym._validate import (
    ALIGNMENTS,
    Array,
    ScoreFunction,
    choice,
    optional_scale,
    optional_softcap,
    probability,
    random_generator,
)
from attnsym.masks import Window, allowed_mask, apply_mask, read_mask
from attnsym.softmax import softmax_in_place


@dataclass(frozen=True)
class Settings:
    """What to compute from `Inputs`: checked, with the scale resolved and the mask in the rows convention."""

    score: str | ScoreFunction
    scale: float
    softcap: float | None
    attn_mask: Array | None = None
    is_causal: bool = False
    window: Window = None
    causal_alignment: str = "top_left"


def attention_scores(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    *,
    scale: float | None = None,
    score: str | ScoreFunction = "dot",
    softcap: float | None = None,
    enable_gqa: bool = False,
    convention: str = "rows",
) -> Array:
    """Return the scores, which enter softmax: scale · kᵀq for every query and key, soft-capped where asked."""
    x = read_inputs(query, key, None, enable_gqa=enable_gqa, convention=convention, score=score)
    settings = read_settings(x, score=score, scale=scale, softcap=softcap)
    return x.to_caller(masked_scores(x, settings))


def attention_weights(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    attn_mask: npt.ArrayLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    score: str | ScoreFunction = "dot",
    softcap: float | None = None,
    window: Window = None,
    causal_alignment: str = "top_left",
    convention: str = "rows",
) -> Array:
    """Return the weights, which leave softmax: for each query, shares over the keys that sum to one."""
    x = read_inputs(query, key, None, enable_gqa=enable_gqa, convention=convention, score=score)
    settings = read_settings(
        x,
        score=score,
        scale=scale,
        softcap=softcap,
        attn_mask=attn_mask,
        is_causal=is_causal,
        window=window,
        causal_alignment=causal_alignment,
    )
    return x.to_caller(softmax_in_place(masked_scores(x, settings)))


def scaled_dot_product_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    attn_mask: npt.ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    score: str | ScoreFunction = "dot",
    softcap: float | None = None,
    window: Window = None,
    causal_alignment: str = "top_left",
    convention: str = "rows",
    rng: Any = None,
) -> Array:
    """Return softmax(scale · query keyᵀ + mask) value."""
    p = probability(dropout_p, "dropout_p")
    x = read_inputs(query, key, value, enable_gqa=enable_gqa, convention=convention, score=score)

    settings = read_settings(
        x,
        score=score,
        scale=scale,
        softcap=softcap,
        attn_mask=attn_mask,
        is_causal=is_causal,
        window=window,
        causal_alignment=causal_alignment,
    )
    weights = softmax_in_place(masked_scores(x, settings))
    if p > 0:
        drop_out(weights, p, rng)
    with np.errstate(over="ignore", invalid="ignore"):
        output = heads_times_keys(weights, x.value, x.grouped)
    if p < 1 and not np.isfinite(output).all():
        output = _mix_non_finite(x, weights, masked_scores(x, settings) != -np.inf)
    return x.to_caller(output.astype(x.output_dtype, copy=False))


def drop_out(x: Array, p: float, rng: Any) -> None:
    """Set each entry of `x` to 0 with probability p and divide the others by 1 − p, in place."""
    if p == 1:
        x[...] = 0
    elif p > 0:
        x *= random_generator(rng).random(x.shape, dtype=np.float32) >= p
        x /= 1 - p


def _default_scale(d_k: int) -> float:
    return 1.0 / math.sqrt(d_k) if d_k else 1.0  # vectors without components: every score is an empty sum


def resolve_scale(scale: float | None, score: str | ScoreFunction, d_k: int) -> float:
    """Return the factor on the scores: as given (0 is 0), else 1/√d_k for dot products and 1 for other scores."""
    given = optional_scale(scale)
    if given is not None:
        return given
    return _default_scale(d_k) if score == "dot" else 1.0


def read_settings(
    x: Inputs,
    *,
    score: str | ScoreFunction,
    scale: float | None,
    softcap: float | None,
    attn_mask: npt.ArrayLike | None = None,
    is_causal: bool = False,
    window: Window = None,
    causal_alignment: str = "top_left",
) -> Settings:
    """Check the caller's options against the inputs and return them as `Settings`."""
    choice(causal_alignment, "causal_alignment", ALIGNMENTS)
    return Settings(
        score=score,
        scale=resolve_scale(scale, score, x.query.shape[-1]),
        softcap=optional_softcap(softcap),
        attn_mask=None if attn_mask is None else read_mask(attn_mask, x.scores_shape, x.columns),
        is_causal=bool(is_causal),
        window=window,
        causal_alignment=causal_alignment,
    )


def masked_scores(x: Inputs, settings: Settings) -> Array:
    """Return the scores as they enter softmax, −inf where a query may not attend, as a fresh array."""
    scores = score_matrix(x, settings.score, settings.scale, settings.softcap)
    if settings.attn_mask is not None:
        scores = apply_mask(scores, settings.attn_mask)
    n_queries, n_keys = scores.shape[-2:]
    allowed = allowed_mask(n_queries, n_keys, settings.is_causal, settings.window, settings.causal_alignment)
    return scores if allowed is None else apply_mask(scores, allowed)


def _mix_non_finite(x: Inputs, weights: Array, visible: Array) -> Array:
    """Mix values of which some are NaN or ±inf: each reaches exactly the rows that see its key."""
    value, half = x.value, x.value.dtype.type(0.5)
    finite = np.where(np.isfinite(value), value, half * 0)
    limit = np.finfo(value.dtype).max / 2
    # a mixture of finite values is finite: half the values cannot overflow by rounding, and the double is clipped
    output = np.clip(heads_times_keys(weights, finite * half, x.grouped), -limit, limit) * 2
    seen = visible.astype(value.dtype)
    output += np.where(heads_times_keys(seen, np.isnan(value).astype(value.dtype), x.grouped) > 0, np.nan, half * 0)
    with np.errstate(invalid="ignore"):  # +inf and −inf in one row: NaN
        for infinity in (np.inf, -np.inf):
            reached = heads_times_keys(seen, (value == infinity).astype(value.dtype), x.grouped) > 0
            output += np.where(reached, value.dtype.type(infinity), half * 0)
    rows = np.isnan(weights).any(axis=-1, keepdims=True)
    return np.where(rows, value.dtype.type(np.nan), output)
