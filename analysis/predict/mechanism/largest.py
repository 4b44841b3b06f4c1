"""The expected largest weight of a row of independent keys: a double integral over log t and the largest score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from analysis.predict.mechanism.grid import Grid, Group, centred, grid
from analysis.predict.mechanism.key_law import PANEL_WIDTH, Array, KeyLaw, legendre_panels, running
from analysis.predict.mechanism.row import tables

# A normal law is 0 to rounding beyond.
REACH = 9.3
# So many panels of scores are integrated over at most.
MOST_PANELS = 2000
Interval = tuple[float, float, float]


def max_weights(groups: Sequence[Group], counts: Array) -> Array:
    """
    Average the largest weight over rows that have counts[g] keys of each group; a sink's weight is none of them.

    Parameters
    ----------
    groups : sequence of Group, length G
    counts : ndarray of float, shape (G, rows)

    Returns
    -------
    ndarray, shape (rows,)

    Raises
    ------
    ValueError
        Where keys are capped (or cosines) and shifted apart, or scores are so wide that the integral has too many
        panels.

    Notes
    -----
    E max p = ∫ du ∫ dx Σ_j f_j(x) w e⁻ʷ Π_{i≠j} C_i, w = e^(u+x), where C_i(u, x) = E[exp(-e^(u+s_i)); s_i < x] is the
    part of φ_i below the largest score x: 1/S = ∫ e^(-tS) dt, conditionally on the largest score. A constant key adds
    the term in which it is the largest, ∫ w Π C_i du at its score, and no x below it counts.
    """
    groups = _on_one_axis(centred(groups)[0])
    keys = [group for group in groups if not group.is_sink]
    if all(group.law.is_constant for group in keys):
        return np.array([_constant(groups, row) for row in counts.T])
    plane = _plane(groups, counts)
    parts: Iterable[Part] = (_part(group, plane) for group in groups)
    if counts.shape[1] > 1:
        parts = list(parts)
    result = np.empty(counts.shape[1])
    for index, row in enumerate(counts.T):
        log_below, density, log_atom = (
            np.zeros_like(plane.lost),
            np.zeros_like(plane.lost),
            np.zeros_like(plane.where.u),
        )
        for part, count in zip(parts, row, strict=True):
            log_below += count * part.log_c
            log_atom += count * part.log_atom
            density += count * part.density
        result[index] = plane.integral(density * np.exp(log_below)) + plane.at_atom(np.exp(log_atom))
    return result


def summed_max_weight(groups: Sequence[Group], rows: int, *, needle: bool) -> float:
    """
    Add up the expected largest weights of the rows of 1, 2, ..., `rows` keys that are alike, in one integral.

    Parameters
    ----------
    groups : sequence of Group
        Of the needle, if there is one, then of the ordinary keys, then of the sink, if there is one.
    rows : int
    needle : bool
        Whether the first key of every row is the needle.

    Returns
    -------
    float

    Notes
    -----
    Only C^n depends on the number n of keys: Σ Cᵏ and Σ k Cᵏ stand under the integral of `max_weights`, by doubling
    the number of terms, all positive.
    """
    sizes = ([1.0] if needle else []) + [rows - needle + 0.0]
    most = np.array(sizes + [1.0] * (len(groups) - len(sizes)))[:, None]
    fewest = most.copy()
    fewest[int(needle)] = 0.0 if needle else 1.0
    if rows - needle == 0 or all(group.law.is_constant for group in groups):
        lengths = np.arange(1.0, rows + 1)
        counts = np.repeat(most, rows, axis=1)
        counts[int(needle)] = lengths - needle
        kept = counts.max(axis=1) > 0
        return float(sum(max_weights([g for g, k in zip(groups, kept, strict=True) if k], counts[kept])))
    groups = _on_one_axis(centred(groups)[0])
    plane = _plane(groups, np.hstack([fewest, most]))
    first, *others = (_part(group, plane) for group in groups)
    ordinary, sinks = (others[0], others[1:]) if needle else (first, others)
    constant = sum((sink.log_c for sink in sinks), np.zeros_like(plane.lost))
    if not needle:
        _, weighted = _geometric(ordinary.log_c, rows + 1)
        return plane.integral(weighted * ordinary.density * np.exp(constant))
    plain, weighted = _geometric(ordinary.log_c, rows)
    return plane.integral((first.density * plain + ordinary.density * weighted) * np.exp(first.log_c + constant))


def prefix_max_weights(keys: Sequence[Group], sink: Sequence[Group]) -> float:
    """Add up the expected largest weights of the rows of the first 1, 2, ..., n of these random keys."""
    groups = _on_one_axis(centred([*keys, *sink])[0])
    fewest = [1.0] + [0.0] * (len(keys) - 1) + [1.0] * len(sink)
    plane = _plane(groups, np.stack([np.ones(len(groups)), np.array(fewest)], axis=1))
    log_below, density = np.zeros_like(plane.lost), np.zeros_like(plane.lost)
    for group in groups[len(keys) :]:
        log_below += _part(group, plane).log_c
    total = 0.0
    for group in groups[: len(keys)]:
        part = _part(group, plane)
        log_below += part.log_c
        density += part.density
        total += plane.integral(density * np.exp(log_below))
    return total


def _geometric(log_c: Array, terms: int) -> tuple[Array, Array]:
    """Return Σ Cᵏ and Σ k Cᵏ over k < terms, by doubling: nothing cancels."""
    plain, weighted, count = np.zeros_like(log_c), np.zeros_like(log_c), 0
    for bit in bin(terms)[2:]:
        power = np.exp(count * log_c)
        plain, weighted, count = plain * (1 + power), weighted * (1 + power) + count * power * plain, 2 * count
        if bit == "1":
            power = np.exp(count * log_c)
            plain, weighted, count = plain + power, weighted + count * power, count + 1
    return plain, weighted


class Part(NamedTuple):
    """One key's log C and f/C on the plane, and its log C at the atom, where only keys up to it are."""

    log_c: Array
    density: Array
    log_atom: Array


class Plane(NamedTuple):
    """Nodes in u and in the largest score x, of which those above the largest constant key are integrated over."""

    where: Grid
    start: float
    edges: Array
    x: Array
    width: Array
    used: Array
    w: Array
    lost: Array
    atom: float
    atom_score: float
    log_n: float

    def integral(self, values: Array) -> float:
        """∫ du ∫ dx w e⁻ʷ · values."""
        return float(self.where.weight @ (values * (self.w * np.exp(-self.w))) @ self.used)

    def at_atom(self, values: Array) -> float:
        """∫ du w · values at the largest constant key, of values that hold its e⁻ʷ; 0 if there is none."""
        if math.isinf(self.atom):
            return 0.0
        return float(self.where.weight @ (np.exp(np.minimum(self.where.u + self.atom_score, 6.0)) * values))


def _plane(groups: Sequence[Group], counts: Array) -> Plane:
    keys = [group for group in groups if not group.is_sink]
    random = [group for group in keys if not group.law.is_constant]
    if any(group.law.dimension == 1 for group in keys):
        raise ValueError("max_weight of cosine scores needs d_k of at least 2: in one dimension they are ties")
    most, fewest = counts.max(axis=1), counts.min(axis=1)
    sized = [Group(g.law, g.shift, float(c), g.is_sink) for g, c in zip(groups, most, strict=True)]
    where = grid(sized, fewest.tolist())
    log_n = math.log(float(counts.sum(axis=0).max()))
    always = [group for group, least in zip(groups, fewest, strict=True) if least >= 1]
    start, edges = _edges(random, [group for group in always if group in random] or random[:1], log_n)
    atom = max((group.law.mean for group in keys if group.law.is_constant), default=-math.inf)
    atom_score = max((group.law.constant for group in keys if group.law.is_constant), default=-math.inf)
    if math.isfinite(atom) and atom > edges[0]:
        edges = np.unique(np.append(edges, atom))
    x, width = legendre_panels(edges)
    w = np.exp(np.minimum(where.u[:, None] + random[0].law.score(x), 6.0))  # e⁻ʷ < 1e-170 beyond
    used = np.where(x > atom, width, 0.0)
    return Plane(where, start, edges, x, width, used, w, -np.expm1(-w), atom, atom_score, log_n)


def _part(group: Group, plane: Plane) -> Part:
    nothing = np.zeros((plane.where.u.size, 1))
    if group.law.is_constant:
        log_c = -np.exp(np.minimum(plane.where.u + group.shift + group.law.constant, 6.0))
        return Part(log_c[:, None], nothing, log_c)
    if _top(group) < plane.start:
        shift = np.array([group.law.mean])
        log_c = tables(KeyLaw(group.law.width), plane.where, shift, frozenset(), plane.log_n)["log_phi"][0]
        return Part(log_c[:, None], nothing, log_c)
    density = group.law.density(plane.x)
    density /= plane.width @ density
    sizes = np.diff(plane.edges)
    above = running(density[::-1], sizes[::-1])[::-1]
    lost = plane.lost * density
    log_c = np.log1p(-np.clip(above + running(lost, sizes), 0.0, 1 - 2.0**-53))
    below = plane.x < plane.atom
    at_atom = lost[:, below] @ plane.width[below] + density[~below] @ plane.width[~below]
    log_atom = np.log1p(-np.clip(at_atom, 0.0, 1 - 2.0**-53))
    return Part(log_c, density * np.exp(-log_c), log_atom)


def _on_one_axis(groups: Sequence[Group]) -> list[Group]:
    """Move shifts into the means of normal laws; others must share theirs, which then goes to the sink."""
    keys = [group for group in groups if not group.is_sink]
    if all(group.law.is_plain for group in keys):
        return [
            group if group.is_sink else group._replace(law=KeyLaw(g.sigma, g.mean + group.shift), shift=0.0)
            for group in groups
            for g in [group.law]
        ]
    alike = {(g.law.cap, g.law.dimension, g.law.temperature, g.shift, g.law.mean * g.law.dimension) for g in keys}
    if len(alike) > 1:
        raise ValueError("max_weight has no exact value here for capped or cosine scores that are shifted apart")
    return [group._replace(shift=group.shift - keys[0].shift if group.is_sink else 0.0) for group in groups]


def _constant(groups: Sequence[Group], counts: Array) -> float:
    """Give the largest weight where nothing is random."""
    scores = np.array([group.shift + group.law.constant for group in groups])
    present = counts > 0
    own = max(s for s, group, there in zip(scores, groups, present, strict=True) if there and not group.is_sink)
    return float(1 / (counts[present] @ np.exp(np.minimum(scores[present] - own, 700.0))))


def _top(group: Group) -> float:
    return group.law.mean + REACH * group.law.width


def _edges(keys: Sequence[Group], always: Sequence[Group], log_n: float) -> tuple[float, Array]:
    """Return the score below which the largest is not, and panels over the laws of all keys that reach above it."""
    sharp = 2 / math.sqrt(1 + 0.9 * log_n)  # of C^n, in deviations
    laws = list({group.law: None for group in keys})
    if not laws[0].is_plain:
        ranges = [law.range(0.0) for law in laws]
        narrowest = min(laws, key=lambda law: law.width)
        return -math.inf, narrowest.edges(min(low for low, _ in ranges), max(high for _, high in ranges), sharp)
    start = max(group.law.mean - REACH * group.law.width for group in always)
    overlapping = [law for law in laws if law.mean + REACH * law.width >= start]
    intervals: list[Interval] = []
    for width in sorted({law.width for law in overlapping}):
        means = [law.mean for law in overlapping if law.width == width]
        intervals.append((min(means) - REACH * width, max(means) + REACH * width, min(PANEL_WIDTH, sharp * width)))
    cuts = sorted({end for low, high, _ in intervals for end in (low, high)})
    edges = [cuts[0]]
    for left, right in pairwise(cuts):
        fitting = [size for low, high, size in intervals if low <= left and right <= high]
        count = math.ceil((right - left) / min(fitting, default=math.inf)) or 1
        if len(edges) + count > MOST_PANELS:
            raise ValueError("max_weight has no exact value here for scores this wide (standard deviations above 150)")
        edges += np.linspace(left, right, count + 1)[1:].tolist()
    return start, np.array(edges)
