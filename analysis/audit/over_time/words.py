"""A head's trend in words: what a person on call reads first, and the numbers behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from analysis.audit.over_time.head_trend import HeadTrend
from analysis.vocabulary.text import printable

_MEASURES = {"variance": "variance", "entropy": "entropy fraction", "largest": "largest |score|"}


def headline(head: HeadTrend, targets: Mapping[str, float], growing: Sequence[HeadTrend]) -> str:
    """Return where, since when, why, and what to do, in one sentence."""
    grouped = [h.head for h in growing if h.layer == head.layer and h.key_head == head.key_head]
    heads = f"head {head.head}" if len(grouped) < 2 else f"heads {_listed(grouped)}"
    beyond = {name: step for name, step in head.crossed.items() if step is not None}
    words = f"{printable(head.layer)}, {heads}, since step {head.onset:,}, {_because(head)}: "
    words += f"variance {head.variance[0]:.3g} to {head.variance[-1]:.3g}"
    if not beyond:
        return words + f", within every target so far{_next(head, targets)}; no clip is needed yet."
    name, step = min(beyond.items(), key=lambda item: item[1])
    words += f", {_MEASURES[name]} {_side(name)} {targets[name]:g} since step {step:,}"
    aim = ", ".join(f"{_MEASURES[name]} {targets[name]:g}" for name in ("variance", "largest") if name in beyond)
    return f"{words}; {_remedy(head, len(grouped), aim)}"


def sentence(head: HeadTrend, targets: Mapping[str, float]) -> str:
    """Return a trend in numbers."""
    beyond = [
        f"{_MEASURES[name]} {_side(name)} {targets[name]:g} since step {step:,}"
        for name, step in head.crossed.items()
        if step is not None
    ]
    scatter = head.rate_standard_error
    if scatter < 1e-9 * abs(head.rate):  # what rounding leaves of a straight line
        scatter = 0.0
    error = "" if math.isnan(scatter) else f" ± {1000 * scatter:.2g}"
    words = (
        f"{printable(head.layer)}, head {head.head}: variance {head.variance[0]:.3g} to {head.variance[-1]:.3g}, "
        f"log variance {1000 * head.rate:+.3g}{error} per 1,000 steps; entropy fraction {head.entropy[0]:.3g} to "
        f"{head.entropy[-1]:.3g}; since step {head.onset:,} {_factor(head)}"
    )
    return "; ".join([words, *beyond]) + f"{_next(head, targets)}."


def to_itself_sentence(head: HeadTrend) -> str:
    """Return how a token's score with itself has come to stand out, which the variance over other tokens hides."""
    deviations = abs(head.self_score[-1]) / math.sqrt(head.variance[-1])
    return (
        f"{printable(head.layer)}, head {head.head}: a token's score with itself goes from {head.self_score[0]:.3g} to "
        f"{head.self_score[-1]:.3g}, {deviations:.2g} standard deviations of those with others (W_q and W_k align)."
    )


def _because(head: HeadTrend) -> str:
    return f"because of {_factor(head)}" if head.factor else "for no one factor"


def _factor(head: HeadTrend) -> str:
    name, bracket, where = head.factor.partition(" (")
    return f"{name} × {head.factor_ratio:.3g}{bracket}{where}"


def _remedy(head: HeadTrend, grouped: int, aim: str) -> str:
    if head.clip_factor is None:
        return "within the targets again at the last step."
    if head.query_factor is None or head.key_factor is None:
        product = f"kᵀq by {head.clip_factor:.2g} for {aim}"
        return f"clip {product} by scale or by the gains of the norms of q and k (W_q and W_k do not set its size)."
    if head.key_factor == 1.0:
        whose = "each head's W_q" if grouped > 1 else "the head's W_q"
        return f"clip {whose} by {head.query_factor:.2g} for {aim} (other heads read its keys: W_k stays)."
    return f"clip W_q and W_k of the head by {head.query_factor:.2g} each (kᵀq by {head.clip_factor:.2g}) for {aim}."


def _next(head: HeadTrend, targets: Mapping[str, float]) -> str:
    """Return the crossings to come, as the extrapolation that they are."""
    found = [
        f"{_MEASURES[name]} {_side(name)} {targets[name]:g} at about step {_rounded(step, error)}"
        for name, ahead in head.crossing.items()
        if ahead is not None
        for step, error in [ahead]
    ]
    return f"; extrapolated: {', '.join(found)}" if found else ""


def _rounded(step: float, error: float) -> str:
    """Return both with no more digits than the second of the error, or the third of the step."""
    least = max(abs(error) / 10, step / 1000, 1.0)
    digits = -math.floor(math.log10(least))
    return f"{round(step, digits):,.0f} ± {round(error, digits):,.0f}"


def _side(name: str) -> str:
    return "below" if name == "entropy" else "above"


def _listed(numbers: Sequence[int]) -> str:
    *most, last = sorted(numbers)
    return f"{', '.join(map(str, most))} and {last}"
