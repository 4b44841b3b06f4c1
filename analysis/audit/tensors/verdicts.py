"""The words: how a head's softmax behaves, and why its scores are large."""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.audit.tensors.account import Account, WithoutChannel

SATURATED_DEAD_ROWS = 0.25
SATURATED_JACOBIAN = 0.1
SATURATED_ENTROPY = 0.1
NEAR_UNIFORM = 0.99
ENTROPY_TOLERANCE = 0.05
STANDARD_ERRORS = 3.0
MOST = 0.4
FEWEST_CHANNELS = 4

TROUBLE = ("saturated", "near uniform", "not finite")


def verdict(
    *,
    rows: int,
    nonfinite: int,
    dead_row_fraction: float,
    jacobian_trace: float,
    entropy_ratio: float,
    predicted: float,
    standard_error: float,
) -> str:
    """
    Return how a head's rows behave, in words.

    "not finite": a score is NaN or infinite. "saturated": at least a quarter of the rows pass no gradient
    (tr J < 1e-3), or mean tr J or the entropy ratio is below 0.1. "near uniform": entropy above 0.99 of its maximum.
    Otherwise the entropy ratio against the exact one of Gaussian scores of the same variance: "as predicted" within
    0.05 or three standard errors, "heavy-tailed" below (few keys stand out of the crowd), "light-tailed" above.
    """
    if nonfinite:
        return "not finite"
    if not rows:
        return "no usable rows"
    sharp = jacobian_trace < SATURATED_JACOBIAN or entropy_ratio < SATURATED_ENTROPY
    if sharp or dead_row_fraction >= SATURATED_DEAD_ROWS:
        return "saturated"
    if entropy_ratio > NEAR_UNIFORM:
        return "near uniform"
    error = 0.0 if math.isnan(standard_error) else standard_error
    gap = entropy_ratio - predicted
    if abs(gap) <= max(ENTROPY_TOLERANCE, STANDARD_ERRORS * error):
        return "as predicted"
    return "heavy-tailed" if gap < 0 else "light-tailed"


@dataclass(frozen=True)
class Cause:
    """What makes a head's scores large (or, of flat rows, small): a sentence, and the factor on their variance."""

    words: str
    factor: float


def cause(found: Account, d_k: int, *, near_uniform: bool, within_row_variance: float) -> Cause | None:
    """
    Return the largest factor of the variance, or None while that variance is at most 1.

    Of scores so small that rows are near uniform, the smallest of scale, norms and alignment is named instead.

    One component is named where the variance falls by more than two fifths without it, and by more than any other
    factor of what is left; it is the one cause that depends on the basis of the vectors.
    """
    align = found.factor_channel * found.factor_alignment
    if near_uniform:
        small = {"scale": found.factor_scale, "norms": found.factor_norm, "alignment of q and k": align}
        known = {name: factor for name, factor in small.items() if math.isfinite(factor)}
        name = min(known, key=lambda word: known[word], default=None)
        return None if name is None else Cause(f"small {name}: variance × {known[name]:.3g}", known[name])
    if not within_row_variance > 1.0:
        return None
    norm, alone = found.factor_norm, found.without_channel
    named = [
        (found.factor_scale, "scale: variance × {} over that of 1/√d_k"),
        (found.factor_top_key, _token("key", found.top_key, found.top_key_share)),
        (found.factor_top_query, _token("query", found.top_query, found.top_query_share)),
        (found.factor_mean, f"shared mean: E[q] alone makes {found.shared_query_share:.0%} of the variance, × {{}}"),
    ]
    if alone is not None and _one_channel(found, alone, d_k):
        norm, align = alone.norm, alone.alignment
        where = f"one channel: {found.largest_channel} carries {found.largest_channel_share:.0%} of the variance"
        named.append((alone.factor, where + ", × {}"))
    named += [(norm, "large norms: variance × {}"), (align, "alignment of q and k: variance × {}")]
    possible = [(factor, words) for factor, words in named if factor > 1.0]
    factor, words = max(possible, key=lambda pair: pair[0], default=(math.nan, ""))
    return Cause(words.format(f"{factor:.3g}"), factor) if words else None


def _token(role: str, place: int, share: float) -> str:
    return f"one {role}: token {place} carries {share:.0%} of the variance, × {{}}"


def _one_channel(found: Account, alone: WithoutChannel, d_k: int) -> bool:
    most = found.largest_channel_share > MOST and d_k >= FEWEST_CHANNELS
    return most and alone.factor > max(alone.norm, alone.alignment)
