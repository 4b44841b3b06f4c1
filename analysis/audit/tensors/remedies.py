"""What would bring a head to a target: another scale, a soft-cap, or a factor that clips q and k."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from analysis.audit.tensors.layers import HeadItem, HeadPlace, Layer, counted, head_items, measure_head
from analysis.audit.tensors.rows import HeadAudit
from analysis.audit.tensors.visibility import Rules

QUANTITIES = {
    "entropy_fraction": "entropy_ratio",
    "within_row_variance": "within_row_variance",
    "largest_score": "largest_score",
    "largest_signed_score": "largest_signed_score",
}
RANGE = math.log(1e6)
STEPS = 56


@dataclass(frozen=True)
class Remedy:
    """
    What brings one head to a target, each by itself and on these very tensors.

    Attributes
    ----------
    layer, head : the head.
    quantity, target, current : what was asked, and what the head has now.
    scale : float or None
        The factor on kᵀq that meets the target; None where none within a factor 10⁶ does.
    softcap : float or None
        The cap c in c·tanh(score/c), at the present scale; None where no cap does, since a cap only shrinks scores.
    clip_factor : float or None
        γ = scale / present scale, the factor by which the product kᵀq must change.
    query_factor, key_factor : float or None
        Factors on q and k (or W_q and W_k, biases too) that change it so and touch no other head: √γ each, as QK-clip
        does, and γ and 1 under grouped heads, since there a key head serves several query heads.
    """

    layer: str
    head: int
    quantity: str
    target: float
    current: float
    scale: float | None
    softcap: float | None
    clip_factor: float | None
    query_factor: float | None
    key_factor: float | None


@np.errstate(all="ignore")
def remedies(
    heads: Sequence[HeadAudit],
    layers: Sequence[Layer],
    rules: Rules,
    quantity: str,
    target: float,
    *,
    chosen: Sequence[tuple[str, int]] | None = None,
) -> tuple[Remedy, ...]:
    """
    Return what brings heads to a target; `TensorAudit.remedies` calls it with what was audited.

    Parameters
    ----------
    heads, layers, rules
        The heads of an audit, its layers, whose tensors are read again, and the masks that held.
    quantity : {"entropy_fraction", "within_row_variance", "largest_score", "largest_signed_score"}
        entropy_fraction is entropy / log(visible keys), mean over rows; the others as in `HeadAudit`.
    target : float
    chosen : sequence of (layer, head), optional
        By default the heads on the wrong side: entropy below the target, variance or largest score above it.

    Raises
    ------
    ValueError
        For an unknown quantity or head, or a target that nothing can have.

    Notes
    -----
    The statistic is measured again at each trial scale or cap and solved for by bracketing (Brent), to 10⁻⁶ relative:
    no assumption on the scores enters. Without a bias or a soft-cap entropy falls and size grows with the scale, so
    that a solution is unique. With them it may have several, or touch the target in between: then 56 steps in the
    logarithm are tried and extremes between them refined, and the scale nearest to the present one is returned (of
    caps, the largest).
    """
    if quantity not in QUANTITIES:
        raise ValueError(f"quantity must be one of {', '.join(QUANTITIES)}: got {quantity!r}")
    if not (math.isfinite(target) and target > 0 and (quantity != "entropy_fraction" or target < 1)):
        limit = "between 0 and 1" if quantity == "entropy_fraction" else "positive"
        raise ValueError(f"target of {quantity} must be {limit}: got {target!r}")
    wanted = _chosen(heads, quantity, target, chosen)
    found = {}
    for layer in layers:
        here = [head for head in wanted if head.layer == layer.name]
        arrays = layer.load() if here else None
        for head in here:
            assert arrays is not None
            grouped = arrays.query.shape[1] != arrays.key.shape[1]
            items = head_items(head.head, arrays, rules)
            found[layer.name, head.head] = _solve(head, items, quantity, target, grouped=grouped)
    return tuple(found[head.layer, head.head] for head in wanted)


def _chosen(
    heads: Sequence[HeadAudit], quantity: str, target: float, chosen: Sequence[tuple[str, int]] | None
) -> list[HeadAudit]:
    known = {(head.layer, head.head): head for head in heads}
    if chosen is not None:
        missing = [pair for pair in chosen if tuple(pair) not in known]
        if missing:
            raise ValueError(f"the audit has no head {missing[0]!r}: heads are pairs (layer, head)")
        return [known[layer, head] for layer, head in chosen]
    sign = -1.0 if quantity == "entropy_fraction" else 1.0
    return [head for head in heads if head.rows and sign * (getattr(head, QUANTITIES[quantity]) - target) > 0]


def _solve(head: HeadAudit, items: list[HeadItem], quantity: str, target: float, *, grouped: bool) -> Remedy:
    place: HeadPlace = head

    def at(scale: float, softcap: float | None) -> float:
        return _statistic(replace(place, scale=scale, softcap=softcap), items, quantity) - target

    largest = head.largest_score if math.isfinite(head.largest_score) and head.largest_score > 0 else 1.0
    roots = _every_root if place.softcap is not None or any(item.bias for item in items) else _one_root
    factors = roots(lambda x: at(place.scale * math.exp(x), place.softcap))
    caps = roots(lambda x: at(place.scale, largest * math.exp(x)))
    clip = math.exp(min(factors, key=abs)) if factors else None
    root = None if clip is None else math.sqrt(clip)
    return Remedy(
        layer=head.layer,
        head=head.head,
        quantity=quantity,
        target=target,
        current=getattr(head, QUANTITIES[quantity]),
        scale=None if clip is None else place.scale * clip,
        softcap=largest * math.exp(max(caps)) if caps else None,
        clip_factor=clip,
        query_factor=clip if grouped else root,
        key_factor=None if clip is None else 1.0 if grouped else root,
    )


def _statistic(place: HeadPlace, items: list[HeadItem], quantity: str) -> float:
    rows = counted(measure_head(place, items))
    if not len(rows.visible):
        return math.nan
    if quantity in ("largest_score", "largest_signed_score"):
        return float((rows.largest if quantity == "largest_score" else rows.highest).max())
    if quantity == "within_row_variance":
        return float(rows.variance.mean())
    return float((rows.entropy / np.log(rows.visible)).mean())


def _one_root(function: Callable[[float], float]) -> list[float]:
    """Return the zero of a monotone function in [−log 10⁶, log 10⁶], or nothing where the ends have one sign."""
    return _between(function, -RANGE, RANGE, function(-RANGE), function(RANGE))


def _every_root(function: Callable[[float], float]) -> list[float]:
    """Return the zeros that a grid, refined at its extremes, tells apart."""
    grid = np.linspace(-RANGE, RANGE, STEPS + 1).tolist()
    values = [function(x) for x in grid]
    found = []
    for i in range(STEPS):
        found += _between(function, grid[i], grid[i + 1], values[i], values[i + 1])
        sign = math.copysign(1.0, values[i])
        if i and min(sign * values[i - 1], sign * values[i + 1]) > sign * values[i] > 0:
            found += _touching(function, grid[i - 1], grid[i + 1], sign)
    return found


def _touching(function: Callable[[float], float], low: float, high: float, sign: float) -> list[float]:
    """Return the two zeros about an extreme between points of one sign, where it crosses zero."""
    bottom = minimize_scalar(
        lambda x: sign * function(x), bounds=(low, high), method="bounded", options={"xatol": 1e-6}
    )
    middle, value = float(bottom.x), sign * float(bottom.fun)
    sides = ((low, middle, sign, value), (middle, high, value, sign))
    return [x for a, b, at_a, at_b in sides for x in _between(function, a, b, at_a, at_b)]


def _between(function: Callable[[float], float], low: float, high: float, at_low: float, at_high: float) -> list[float]:
    if not at_low * at_high < 0:
        return []
    return [float(brentq(function, low, high, xtol=1e-9, rtol=1e-9))]
