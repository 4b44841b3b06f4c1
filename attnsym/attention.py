"""Scaled dot-product attention: scores, weights, and values mixed by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._blocks import Problem, as_problem, block
from attnsym._scores import Inputs, Settings, heads_times_keys, read_inputs, score_matrix
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
from attnsym.tiling import tiled_attention

# From this many scores on, attention works in tiles; with fewer queries the keys outweigh the scores anyway.
_LEAN_SCORES = 1 << 17
_LEAN_QUERIES = 8


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
    if not is_lean(x, settings):
        return x.to_caller(_plain_output(x, settings, p, rng))
    problem = as_problem(x, settings)
    if p > 0:
        return x.to_caller(_in_blocks(problem, p, random_generator(rng)))
    return x.to_caller(tiled_attention(problem, lambda heads, queries: _plain_output(*block(problem, heads, queries))))


def is_lean(x: Inputs, settings: Settings) -> bool:
    """Return whether to work in tiles: a large score matrix, not a few queries each with keys of its own."""
    return (
        math.prod(x.scores_shape) >= _LEAN_SCORES
        and x.query.shape[-2] >= _LEAN_QUERIES
        and x.query.dtype.itemsize <= 8
        and not callable(settings.score)
    )


def _plain_output(x: Inputs, settings: Settings, dropout_p: float = 0.0, rng: Any = None) -> Array:
    weights = softmax_in_place(masked_scores(x, settings))
    drop_out(weights, dropout_p, rng)
    with np.errstate(over="ignore", invalid="ignore"):
        output = heads_times_keys(weights, x.value, x.grouped)
    if dropout_p < 1 and not np.isfinite(output).all():
        output = _mix_non_finite(x, weights, masked_scores(x, settings) != -np.inf)
    return output.astype(x.output_dtype, copy=False)


def _in_blocks(problem: Problem, dropout_p: float, rng: np.random.Generator) -> Array:
    """Return the plain output block by block, drawing the dropout in the order in which the plain path draws it."""
    output = np.empty((problem.n_heads, problem.n_queries, problem.value.matrices.shape[-1]), problem.output_dtype)
    step = max(1, _LEAN_SCORES // problem.n_keys)
    for head in range(problem.n_heads):
        for start in range(0, problem.n_queries, step):
            part = (slice(head, head + 1), slice(start, min(start + step, problem.n_queries)))
            output[part] = _plain_output(*block(problem, *part), dropout_p, rng)
    return output.reshape(*problem.lead, *output.shape[1:])


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
    for mask in (settings.attn_mask, settings.visible):
        if mask is not None:
            scores = apply_mask(scores, mask)
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
