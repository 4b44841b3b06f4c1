"""The nodes in u = log t on which the columns of all keys of a row are tabulated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from analysis.predict.mechanism.key_law import Array, KeyLaw
from analysis.predict.quadrature import STEP, TAIL

# φⁿ is below e^-UNSEEN beyond the last node; for rare weights below e^-RARE.
UNSEEN = 43.0
RARE = 300.0
# e^(-e^v) is under rounding from this v on.
CUT = 4.3
# A uniform grid of more nodes than this is graded, over some nodes of this many units.
LONG = 700
BLEND = 3.0


class Group(NamedTuple):
    """`size` keys of one law, their scores shifted by `shift`; `is_sink` marks what only the denominator has."""

    law: KeyLaw
    shift: float
    size: float
    is_sink: bool = False


def centred(groups: Sequence[Group]) -> tuple[list[Group], float]:
    """Move the largest shift to 0, where floats are finest, and return by how much."""
    offset = max(group.shift for group in groups)
    return [group._replace(shift=group.shift - offset) for group in groups], offset


class Grid(NamedTuple):
    """Nodes u and weights of ∫ du, and where it is uniform the step, else 0."""

    u: Array
    weight: Array
    step: float


def grid(groups: Sequence[Group], fewest: Sequence[float], *, uniform: bool = False, unseen: float = UNSEEN) -> Grid:
    """
    Choose the nodes for a row of these groups, or for several rows of at most this many keys each.

    Parameters
    ----------
    groups : sequence of Group
        Their counts are the largest.
    fewest : sequence of float
        The smallest counts; groups of which some rows have none do not bound the grid.
    uniform : bool, optional
        Ask for equal steps.
    unseen : float, optional
        The grid ends where φⁿ is below e^-unseen: more where a rare weight is asked for.
    """
    log_n = math.log(sum(group.size for group in groups))
    low, high, sharp_from, smoothest = math.inf, math.inf, math.inf, math.inf
    for group, least in zip(groups, fewest, strict=True):
        begins = -group.shift - group.law.upper(TAIL + math.log(group.size) + log_n) - 2
        low = min(low, begins)
        if least >= 1:
            high = min(high, -group.shift + _high(group.law, least, unseen))
        if group.law.is_plain and group.law.sigma >= 1:
            smoothest = min(smoothest, group.law.sigma)
        else:
            sharp_from = min(sharp_from, begins)
    # φⁿ is as rough as its complex zeros are near, as in `quadrature`.
    unit = max(1.0, 1.3 * smoothest / math.sqrt(2 * log_n + 1)) if math.isfinite(smoothest) else 1.0
    if sharp_from >= high:
        return _uniform(low, high, STEP * unit)
    if uniform or unit == 1 or (high - low) / STEP < LONG or sharp_from <= low:
        return _uniform(low, high, STEP)
    return _graded(low, high, sharp_from, unit)


def second_end(groups: Sequence[Group], fewest: Sequence[float], unseen: float) -> float:
    """
    Return the u beyond which, if it were not for the highest key (or sink), φⁿ would be below e^-unseen.

    Keys whose weights are next to nothing beside the second highest are next to nothing in every quantity; beside the
    highest they may be all that an entropy, or the keys below a sink, have.
    """
    ends = [
        -group.shift + _high(group.law, least, unseen)
        for group, least in zip(groups, fewest, strict=True)
        for _ in range(min(2, int(least)))
    ]
    return sorted(ends)[:2][-1]


def _uniform(low: float, high: float, step: float) -> Grid:
    u: Array = low + step * np.arange(float(max(2, math.ceil((high - low) / step) + 1)))
    return Grid(u, np.full_like(u, step), step)


def _graded(low: float, high: float, sharp_from: float, unit: float) -> Grid:
    """Steps of STEP where sharp laws are seen, growing smoothly to `unit` times that below."""
    middle = sharp_from - BLEND * math.log(unit * BLEND)
    first = middle - (middle - low) / unit - BLEND
    x: Array = first + STEP * np.arange(math.ceil((high - first) / STEP) + 1.0)
    below = (x - middle) / BLEND
    u = x - (unit - 1) * BLEND * np.logaddexp(0.0, -below)
    return Grid(np.asarray(u), np.asarray(STEP * (1 + (unit - 1) * special.expit(-below))), 0.0)


def _high(law: KeyLaw, count: float, unseen: float) -> float:
    """Give the u, for no shift, beyond which φ^count is under e^-unseen."""
    high = -law.lower(unseen, count) + CUT
    if law.is_plain and law.sigma > 0 and count > 100:
        # As in `quadrature`: φ <= 1 - .93 Φ((u - 1)/σ), and φ <= (1 + exp(-e^u))/2.
        enough = unseen / (count - 2)
        if enough < 0.45:
            normal = 1 + law.sigma * float(special.ndtri(enough / 0.93))
            high = min(high, -law.mean + min(normal, math.log(-math.log1p(-2 * enough))))
    return high
