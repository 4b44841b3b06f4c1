"""The plain path: the whole score matrix of a problem, or of a block of it. Scores, mask, softmax, mixture."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._activations import activate
from attnsym._blocks import Problem, block
from attnsym._scores import Inputs, heads_times_keys, score_matrix
from attnsym._settings import Settings
from attnsym._validate import Array, random_generator
from attnsym.masks import allowed_mask, apply_mask
from attnsym.softmax import softmax_in_place

_BLOCK_SCORES = 1 << 17


def masked_scores(x: Inputs, settings: Settings) -> Array:
    """Return the scores as they enter softmax, −inf where a query may not attend, as a fresh array."""
    scores = score_matrix(x, settings.score, settings.softcap)
    for mask in (x.mask, x.visible):
        if mask is not None:
            scores = apply_mask(scores, mask)
    n_queries, n_keys = scores.shape[-2:]
    allowed = allowed_mask(n_queries, n_keys, settings.is_causal, settings.window, settings.causal_alignment)
    return scores if allowed is None else apply_mask(scores, allowed)


def plain_weights(x: Inputs, settings: Settings) -> Array:
    """Return the weights (..., n_queries, n_keys) as a fresh array."""
    return weigh(masked_scores(x, settings), x, settings)


def weigh(scores: Array, x: Inputs, settings: Settings) -> Array:
    """Overwrite masked scores by the weights, and return those."""
    if settings.normalizer == "softmax":
        return softmax_in_place(scores) if x.offset is None else softmax_in_place(with_sink(scores, x.offset))[..., :-1]
    return activate(scores, settings.normalizer, x.offset, scores.shape[-1])


def with_sink(scores: Array, sink: npt.ArrayLike) -> Array:
    """Return the scores with the sink's logit as one more key, the last."""
    return np.concatenate([scores, np.broadcast_to(sink, (*scores.shape[:-1], 1))], axis=-1)


def plain_output(x: Inputs, settings: Settings, dropout_p: float = 0.0, rng: Any = None) -> Array:
    """Return the output (..., n_queries, d_v)."""
    weights = plain_weights(x, settings)
    drop_out(weights, dropout_p, rng)
    output = heads_times_keys(weights, x.value, x.grouped)
    if dropout_p < 1 and not np.isfinite(output).all():
        shares = settings.normalizer == "softmax"
        output = _mix_non_finite(x, weights, masked_scores(x, settings) != -np.inf, shares)
    return output.astype(x.output_dtype, copy=False)


def output_in_blocks(problem: Problem, heads: slice, queries: slice, dropout_p: float = 0.0, rng: Any = None) -> Array:
    """Return `plain_output` of some heads and queries block by block, drawing dropout in the order of the whole."""
    generator = random_generator(rng) if dropout_p > 0 else None
    shape = heads.stop - heads.start, queries.stop - queries.start, problem.value.matrices.shape[-1]
    output = np.empty(shape, problem.output_dtype)
    step = max(1, _BLOCK_SCORES // problem.n_keys)
    for head in range(heads.start, heads.stop):
        for start in range(queries.start, queries.stop, step):
            rows = slice(start, min(start + step, queries.stop))
            into = head - heads.start, slice(rows.start - queries.start, rows.stop - queries.start)
            output[into] = plain_output(*block(problem, slice(head, head + 1), rows), dropout_p, generator)[0]
    return output


def drop_out(x: Array, p: float, rng: Any) -> None:
    """Set each entry of `x` to 0 with probability p and divide the others by 1 − p, in place."""
    if p == 1:
        x[...] = 0
    elif p > 0:
        x *= random_generator(rng).random(x.shape, dtype=np.float32) >= p
        x /= 1 - p


def _mix_non_finite(x: Inputs, weights: Array, visible: Array, shares: bool) -> Array:
    """Mix values of which some are NaN or ±inf: each reaches exactly the rows that see its key."""
    value, zero = x.value, x.value.dtype.type(0)
    seen = visible.astype(value.dtype)

    def reaches(these: Array) -> Array:
        return np.asarray(heads_times_keys(seen, these.astype(value.dtype), x.grouped) > 0)

    output = heads_times_keys(weights, np.where(np.isfinite(value), value, zero) / 2, x.grouped)
    if (
        shares
    ):  # a mixture of finite values is finite: half of each cannot overflow by rounding, and the double is clipped
        limit = np.finfo(value.dtype).max / 2
        output = np.clip(output, -limit, limit)
    output *= 2
    for infinity in (np.inf, -np.inf):  # both in one row: NaN
        output += np.where(reaches(value == infinity), value.dtype.type(infinity), zero)
    unknown = reaches(np.isnan(value)) | np.isnan(weights).any(axis=-1, keepdims=True)
    return np.where(unknown, value.dtype.type(np.nan), output)
