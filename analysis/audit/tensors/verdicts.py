"""The words: how a head's softmax behaves, and why its scores are large."""

from __future__ import annotations

import math

SATURATED_DEAD_ROWS = 0.25
SATURATED_JACOBIAN = 0.1
SATURATED_ENTROPY = 0.1
NEAR_UNIFORM = 0.99
ENTROPY_TOLERANCE = 0.05
STANDARD_ERRORS = 3.0
MOST = 0.5

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


def cause(
    *,
    near_uniform: bool,
    within_row_variance: float,
    factor_norm: float,
    factor_channel: float,
    factor_alignment: float,
    shared_query_share: float,
    largest_channel: int,
    largest_channel_share: float,
) -> str | None:
    """
    Return what makes the scores large: the largest factor of their variance, or None while that is at most 1.

    Of scores so small that rows are near uniform, the smallest factor is named instead.

    A shared mean of the queries is named when it alone makes most of the variance (every query then ranks the keys
    alike); one channel when it carries most of the sum over channels.
    """
    factors = {"norms": factor_norm, "alignment of q and k": factor_alignment, "unequal channels": factor_channel}
    known = {name: factor for name, factor in factors.items() if math.isfinite(factor)}
    if near_uniform and known:
        name = min(known, key=lambda word: known[word])
        return f"small {name}: variance × {known[name]:.3g}"
    if not within_row_variance > 1.0:
        return None
    if shared_query_share > MOST:
        return f"shared mean: E[q] alone makes {shared_query_share:.0%} of the variance"
    if largest_channel_share > MOST and factor_channel > 1:
        return f"one channel: {largest_channel} carries {largest_channel_share:.0%}"
    if not known:
        return None
    name = max(known, key=lambda word: known[word])
    return f"{name.replace('norms', 'norm growth')}: variance × {known[name]:.3g}"
