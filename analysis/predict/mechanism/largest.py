"""The expected largest weight of a row of independent keys: a double integral over log t and the largest score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from analysis.predict.mechanism.grid import Group, centred
from analysis.predict.mechanism.key_law import Array, KeyLaw
from analysis.predict.mechanism.largest_plane import Part, Plane
from analysis.predict.mechanism.normal_plane import NormalPlane, on_lattice
from analysis.predict.mechanism.two_points import two_point_max_weight


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
    groups = centred(groups)[0]
    keys = [group for group in groups if not group.is_sink]
    if _is_two_point(keys):
        return np.array([two_point_max_weight(groups, row) for row in counts.T])
    groups = _on_one_axis(groups)
    keys = [group for group in groups if not group.is_sink]
    if all(group.law.is_constant for group in keys):
        return np.array([_constant(groups, row) for row in counts.T])
    plane = _plane(groups, counts)
    if isinstance(plane, NormalPlane):
        groups, counts = on_lattice(groups, counts)
    parts: Iterable[Part] = (plane.part(group) for group in groups)
    if counts.shape[1] > 1:
        parts = list(parts)
    result = np.empty(counts.shape[1])
    for index, row in enumerate(counts.T):
        log_below, density, log_atom = plane.empty.copy(), plane.empty.copy(), plane.empty_atom.copy()
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
    if rows - needle == 0 or _is_two_point(groups) or all(group.law.is_constant for group in groups):
        lengths = np.arange(1.0, rows + 1)
        counts = np.repeat(most, rows, axis=1)
        counts[int(needle)] = lengths - needle
        kept = counts.max(axis=1) > 0
        return float(sum(max_weights([g for g, k in zip(groups, kept, strict=True) if k], counts[kept])))
    groups = _on_one_axis(centred(groups)[0])
    plane = _plane(groups, np.hstack([fewest, most]))
    first, *others = (plane.part(group) for group in groups)
    ordinary, sinks = (others[0], others[1:]) if needle else (first, others)
    constant = sum((sink.log_c for sink in sinks), plane.empty.copy())
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
    log_below, density = plane.empty.copy(), plane.empty.copy()
    for group in groups[len(keys) :]:
        log_below += plane.part(group).log_c
    total = 0.0
    for group in groups[: len(keys)]:
        part = plane.part(group)
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


def _is_two_point(groups: Sequence[Group]) -> bool:
    return any(group.law.dimension == 1 and not group.law.is_constant for group in groups)


def _plane(groups: Sequence[Group], counts: Array) -> Plane | NormalPlane:
    return NormalPlane(groups, counts) if NormalPlane.suits(groups, counts) else Plane(groups, counts)


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
        raise ValueError(
            "max_weight has no quick exact value for capped or cosine scores shifted apart: method='direct' has it"
        )
    return [group._replace(shift=group.shift - keys[0].shift if group.is_sink else 0.0) for group in groups]


def _constant(groups: Sequence[Group], counts: Array) -> float:
    """Give the largest weight where nothing is random."""
    scores = np.array([group.shift + group.law.constant for group in groups])
    present = counts > 0
    own = max(s for s, group, there in zip(scores, groups, present, strict=True) if there and not group.is_sink)
    return float(1 / (counts[present] @ np.exp(np.minimum(scores[present] - own, 700.0))))
