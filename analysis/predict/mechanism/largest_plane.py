"""The integral of the largest weight of keys of any laws, over log t and the largest score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from analysis.predict.mechanism.grid import Group, grid
from analysis.predict.mechanism.key_law import PANEL_WIDTH, Array, KeyLaw, legendre_panels, running
from analysis.predict.mechanism.row import tables

# A normal law is 0 to rounding beyond.
REACH = 9.3
# So many panels of scores are integrated over at most.
MOST_PANELS = 2000
Interval = tuple[float, float, float]


class Part(NamedTuple):
    """One key's log C and f/C on the plane, and its log C at the atom, where only keys up to it are."""

    log_c: Array
    density: Array
    log_atom: Array


class Plane:
    """
    Nodes in u = log t and in the largest score x, of which those above the largest constant key are integrated over.

    Attributes
    ----------
    empty, empty_atom : ndarray
        Zeros of the shape of the integrand, (u, x), and of the one at the largest constant key, (u,).
    """

    def __init__(self, groups: Sequence[Group], counts: Array) -> None:
        keys = [group for group in groups if not group.is_sink]
        random = [group for group in keys if not group.law.is_constant]
        most, fewest = counts.max(axis=1), counts.min(axis=1)
        sized = [Group(g.law, g.shift, float(c), g.is_sink) for g, c in zip(groups, most, strict=True)]
        self.where = grid(sized, fewest.tolist())
        self.log_n = math.log(float(counts.sum(axis=0).max()))
        always = [group for group, least in zip(groups, fewest, strict=True) if least >= 1]
        steady = [group for group in always if group in random] or random[:1]
        self.start, edges = _edges(random, steady, self.log_n, highest_sink(groups))
        self.atom = max((group.law.mean for group in keys if group.law.is_constant), default=-math.inf)
        self.atom_score = max((group.law.constant for group in keys if group.law.is_constant), default=-math.inf)
        if math.isfinite(self.atom) and self.atom > edges[0]:
            edges = np.unique(np.append(edges, self.atom))
        self.edges = edges
        self.x, self.width = legendre_panels(edges)
        self.w = np.exp(np.minimum(self.where.u[:, None] + random[0].law.score(self.x), 6.0))  # e⁻ʷ < 1e-170 beyond
        self.used = np.where(self.x > self.atom, self.width, 0.0)
        self.lost = -np.expm1(-self.w)
        self.empty, self.empty_atom = np.zeros_like(self.lost), np.zeros_like(self.where.u)

    def integral(self, values: Array) -> float:
        """∫ du ∫ dx w e⁻ʷ · values."""
        return float(self.where.weight @ (values * (self.w * np.exp(-self.w))) @ self.used)

    def at_atom(self, values: Array) -> float:
        """∫ du w · values at the largest constant key, of values that hold its e⁻ʷ; 0 if there is none."""
        if math.isinf(self.atom):
            return 0.0
        return float(self.where.weight @ (np.exp(np.minimum(self.where.u + self.atom_score, 6.0)) * values))

    def part(self, group: Group) -> Part:
        """Return what one key, or the sink, puts on the plane."""
        nothing = np.zeros((self.where.u.size, 1))
        if group.law.is_constant:
            log_c = -np.exp(np.minimum(self.where.u + group.shift + group.law.constant, 6.0))
            return Part(log_c[:, None], nothing, log_c)
        if _top(group) < self.start:
            shift = np.array([group.law.mean])
            log_c = tables(KeyLaw(group.law.width), self.where, shift, frozenset(), self.log_n)["log_phi"][0]
            return Part(log_c[:, None], nothing, log_c)
        density = group.law.density(self.x)
        density /= self.width @ density
        sizes = np.diff(self.edges)
        above = running(density[::-1], sizes[::-1])[::-1]
        lost = self.lost * density
        log_c = np.log1p(-np.clip(above + running(lost, sizes), 0.0, 1 - 2.0**-53))
        below = self.x < self.atom
        at_atom = lost[:, below] @ self.width[below] + density[~below] @ self.width[~below]
        log_atom = np.log1p(-np.clip(at_atom, 0.0, 1 - 2.0**-53))
        return Part(log_c, density * np.exp(-log_c), log_atom)


def sharpness(log_n: float) -> float:
    """Return the width of a panel for φⁿ, in deviations."""
    return 2 / math.sqrt(1 + 0.9 * log_n)


def highest_sink(groups: Sequence[Group]) -> float:
    """Return the score of the sink, -inf for none."""
    return max((group.shift + group.law.constant for group in groups if group.is_sink), default=-math.inf)


def reach_above(law: KeyLaw, sink: float) -> float:
    """Return the score above which a normal key need not be looked for: below a sink a weight is a share of e^score."""
    return law.mean + REACH * law.width + min(law.width**2, max(sink - law.mean, 0.0))


def _top(group: Group) -> float:
    return group.law.mean + REACH * group.law.width


def _edges(keys: Sequence[Group], always: Sequence[Group], log_n: float, sink: float) -> tuple[float, Array]:
    """Return the score below which the largest is not, and panels over the laws of all keys that reach above it."""
    sharp = sharpness(log_n)
    laws = list({group.law: None for group in keys})
    if not laws[0].is_plain:
        ranges = [law.range(float(sink > law.mean)) for law in laws]
        narrowest = min(laws, key=lambda law: law.width)
        return -math.inf, narrowest.edges(min(low for low, _ in ranges), max(high for _, high in ranges), sharp)
    start = max(group.law.mean - REACH * group.law.width for group in always)
    overlapping = [law for law in laws if law.mean + REACH * law.width >= start]
    intervals: list[Interval] = []
    for width in sorted({law.width for law in overlapping}):
        means = [law.mean for law in overlapping if law.width == width]
        high = max(reach_above(law, sink) for law in overlapping if law.width == width)
        intervals.append((min(means) - REACH * width, high, min(PANEL_WIDTH, sharp * width)))
    return start, panels_between(intervals)


def panels_between(intervals: Sequence[Interval]) -> Array:
    """
    Return edges from the lowest end of the intervals to the highest.

    Parameters
    ----------
    intervals : sequence of (low, high, size)
        Between low and high no panel is wider than size; an interval whose low is not below its high is none.

    Raises
    ------
    ValueError
        For too many panels.
    """
    intervals = [interval for interval in intervals if interval[0] < interval[1]]
    cuts = sorted({end for low, high, _ in intervals for end in (low, high)})
    edges = [cuts[0]]
    for left, right in pairwise(cuts):
        fitting = [size for low, high, size in intervals if low <= left and right <= high]
        count = math.ceil((right - left) / min(fitting, default=math.inf)) or 1
        if len(edges) + count > MOST_PANELS:
            raise ValueError(
                "max_weight has no quick exact value here: some scores are hundreds of times as wide as others, or as 1"
            )
        edges += np.linspace(left, right, count + 1)[1:].tolist()
    return np.array(edges)
