"""What would bring a head to a target: another scale, a soft-cap, or a factor that clips q and k."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq

from analysis.audit.tensors.audit import head_items, head_place
from analysis.audit.tensors.heads import HeadItem, HeadPlace, measure_head
from analysis.audit.tensors.rows import HeadAudit

if TYPE_CHECKING:
    from analysis.audit.tensors.result import TensorAudit

QUANTITIES = {
    "entropy_fraction": "entropy_ratio",
    "within_row_variance": "within_row_variance",
    "largest_score": "largest_score",
}
RANGE = math.log(1e6)


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
        γ = scale / present scale: multiply q and k (or W_q and W_k) each by √γ, as QK-clip does.
    """

    layer: str
    head: int
    quantity: str
    target: float
    current: float
    scale: float | None
    softcap: float | None
    clip_factor: float | None


def remedies(
    audit: TensorAudit, quantity: str, target: float, *, heads: Sequence[tuple[str, int]] | None = None
) -> tuple[Remedy, ...]:
    """
    Return what brings heads to a target.

    Parameters
    ----------
    audit : TensorAudit
        Its tensors are read again.
    quantity : {"entropy_fraction", "within_row_variance", "largest_score"}
        entropy_fraction is entropy / log(visible keys), mean over rows; the others as in `HeadAudit`.
    target : float
    heads : sequence of (layer, head), optional
        By default the heads on the wrong side: entropy below the target, variance or largest score above it.

    Raises
    ------
    ValueError
        For an unknown quantity or head, or a target that nothing can have.

    Notes
    -----
    The statistic is measured again at each trial scale or cap and solved for by bracketing (Brent), to 10⁻⁶ relative:
    no assumption on the scores enters. Entropy falls and size grows with the scale, so that a solution is unique.
    """
    if quantity not in QUANTITIES:
        raise ValueError(f"quantity must be one of {', '.join(QUANTITIES)}: got {quantity!r}")
    if not (math.isfinite(target) and target > 0 and (quantity != "entropy_fraction" or target < 1)):
        limit = "between 0 and 1" if quantity == "entropy_fraction" else "positive"
        raise ValueError(f"target of {quantity} must be {limit}: got {target!r}")
    chosen = _chosen(audit, quantity, target, heads)
    found = {}
    for layer in audit._layers:
        wanted = [head for head in chosen if head.layer == layer.name]
        arrays = layer.load() if wanted else None
        for head in wanted:
            assert arrays is not None
            assert audit._scale is not None
            place = head_place(layer.name, head.head, arrays, audit._scale, audit.rules)
            items = head_items(head.head, arrays, audit.rules)
            found[layer.name, head.head] = _solve(head, place, items, quantity, target)
    return tuple(found[head.layer, head.head] for head in chosen)


def _chosen(
    audit: TensorAudit, quantity: str, target: float, heads: Sequence[tuple[str, int]] | None
) -> list[HeadAudit]:
    known = {(head.layer, head.head): head for head in audit.heads}
    if heads is not None:
        missing = [pair for pair in heads if tuple(pair) not in known]
        if missing:
            raise ValueError(f"the audit has no head {missing[0]!r}: heads are pairs (layer, head)")
        return [known[layer, head] for layer, head in heads]
    sign = -1.0 if quantity == "entropy_fraction" else 1.0
    return [head for head in audit.heads if head.rows and sign * (getattr(head, QUANTITIES[quantity]) - target) > 0]


def _solve(head: HeadAudit, place: HeadPlace, items: list[HeadItem], quantity: str, target: float) -> Remedy:
    def at(scale: float, softcap: float | None) -> float:
        return _statistic(replace(place, scale=scale, softcap=softcap), items, quantity) - target

    largest = head.largest_score if math.isfinite(head.largest_score) and head.largest_score > 0 else 1.0
    factor = _root(lambda x: at(place.scale * math.exp(x), place.softcap))
    cap = _root(lambda x: at(place.scale, largest * math.exp(x)))
    return Remedy(
        head.layer,
        head.head,
        quantity,
        target,
        getattr(head, QUANTITIES[quantity]),
        None if factor is None else place.scale * math.exp(factor),
        None if cap is None else largest * math.exp(cap),
        None if factor is None else math.exp(factor),
    )


def _statistic(place: HeadPlace, items: list[HeadItem], quantity: str) -> float:
    _, rows = measure_head(place, items)
    if quantity == "largest_score":
        return float(rows.largest.max(initial=0.0))
    if quantity == "within_row_variance":
        return float(rows.variance.mean())
    return float((rows.entropy / np.log(rows.visible)).mean())


def _root(function: Callable[[float], float]) -> float | None:
    """Return the zero in [−log 10⁶, log 10⁶], or None where the ends have one sign."""
    low, high = function(-RANGE), function(RANGE)
    if not low * high < 0:
        return None
    return float(brentq(function, -RANGE, RANGE, xtol=1e-9, rtol=1e-9))
