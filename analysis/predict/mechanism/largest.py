"""The expected largest weight of a row of independent keys: a double integral over log t and the largest score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

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
        Where keys are capped (or cosines) and shifted apart, or some are constant and some are not, or scores are so
        wide that the integral has too many panels.

    Notes
    -----
    E max p = ∫ du ∫ dx Σ_j f_j(x) w e⁻ʷ Π_{i≠j} C_i, w = e^(u+x), where C_i(u, x) = E[exp(-e^(u+s_i)); s_i < x] is the
    part of φ_i below the largest score x: 1/S = ∫ e^(-tS) dt, conditionally on the largest score.
    """
    groups = _on_one_axis(centred(groups)[0])
    keys = [group for group in groups if not group.is_sink]
    if all(group.law.is_constant for group in keys):
        return np.array([_constant(groups, row) for row in counts.T])
    if any(group.law.dimension == 1 for group in keys):
        raise ValueError("max_weight of cosine scores needs d_k of at least 2: in one dimension they are ties")
    if any(group.law.is_constant for group in keys):
        raise ValueError("max_weight has no exact value here where some scores are constant and others are not")
    most, fewest = counts.max(axis=1), counts.min(axis=1)
    where = grid(
        [Group(g.law, g.shift, float(c), g.is_sink) for g, c in zip(groups, most, strict=True)], fewest.tolist()
    )
    log_n = math.log(float(counts.sum(axis=0).max()))
    start, edges = _edges(keys, log_n)
    x, width = legendre_panels(edges)
    w = np.exp(np.minimum(where.u[:, None] + keys[0].law.score(x), 6.0))  # e⁻ʷ < 1e-170 beyond
    lost = -np.expm1(-w)
    density_of_largest = np.zeros((counts.shape[1], *w.shape))
    log_below = np.zeros_like(density_of_largest)
    beyond = [group for group in keys if _top(group) < start]
    _accumulate_beyond(beyond, groups, counts, where, log_n, log_below)
    for group, count in zip(groups, counts, strict=True):
        if group.is_sink:
            log_below -= np.exp(np.minimum(where.u + group.shift + group.law.constant, 6.0))[:, None]
        elif _top(group) >= start:
            density = group.law.density(x)
            density /= width @ density
            above = running(density[::-1], np.diff(edges)[::-1])[::-1]
            outside = above + running(lost * density, np.diff(edges))
            log_c = np.log1p(-np.clip(outside, 0.0, 1 - 2.0**-53))
            log_below += count[:, None, None] * log_c
            density_of_largest += count[:, None, None] * (density * np.exp(-log_c))
    integrand = density_of_largest * np.exp(log_below) * (w * np.exp(-w))
    return np.asarray(np.einsum("u,kux,x->k", where.weight, integrand, width))


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


def _edges(keys: Sequence[Group], log_n: float) -> tuple[float, Array]:
    """Return the score below which the largest is not, and panels over the laws of all keys that reach above it."""
    sharp = 2 / math.sqrt(1 + 0.9 * log_n)  # of C^n, in deviations
    laws = list({group.law: None for group in keys})
    if not laws[0].is_plain:
        ranges = [law.range(0.0) for law in laws]
        narrowest = min(laws, key=lambda law: law.width)
        return -math.inf, narrowest.edges(min(low for low, _ in ranges), max(high for _, high in ranges), sharp)
    start = max(law.mean - REACH * law.width for law in laws)
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


def _accumulate_beyond(
    beyond: Sequence[Group], groups: Sequence[Group], counts: Array, where: Grid, log_n: float, log_below: Array
) -> None:
    """Add log φ of the keys that are never the largest."""
    for width in {group.law.width for group in beyond}:
        members = [i for i, g in enumerate(groups) if not g.is_sink and g in beyond and g.law.width == width]
        shifts = np.array([groups[i].law.mean for i in members])
        if members:
            log_phi = tables(KeyLaw(width), where, shifts, frozenset(), log_n)["log_phi"]
            log_below += (counts[members].T @ log_phi)[:, :, None]
