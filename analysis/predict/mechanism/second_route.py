"""
The second route for keys of any laws: other formulas on other nodes, sharing no intermediate with the first.

Gauss-Legendre panels in log t and in every score instead of trapezoids and tables, products over the other keys by
prefix and suffix sums, E log Z by Frullani's integral and E H as its difference from the mean score, powers of the
weights of one key at a time. It loses digits where its terms cancel, and costs a second where the first takes
milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.predict.maximum import legendre
from analysis.predict.mechanism.grid import Group
from analysis.predict.mechanism.key_law import Array, KeyLaw
from analysis.predict.mechanism.two_points import two_point_max_weight

NODES = 16
WIDTH = 1.1
LOG_TINY = 42.0
REACH = 9.2
# Rows of exp(-e^(u+s)) at once.
ROWS = 64


def direct_row(name: str, groups: Sequence[Group]) -> float:
    """
    Evaluate a quantity of `row.TERMS`, or "max_weight", of one row.

    Parameters
    ----------
    name : str
    groups : sequence of Group

    Returns
    -------
    float
    """
    offset = max(group.shift for group in groups)
    moved = [group._replace(shift=group.shift - offset) for group in groups if group.size > 0]
    if name == "max_weight":
        if any(group.law.dimension == 1 for group in moved):  # sums, of which there are no two kinds
            return two_point_max_weight(moved, np.array([group.size for group in moved]))
        return _max_weight(moved)
    value = _Row(moved).value(name)
    return value + offset if name == "logsumexp" else value


def direct_key_weight(groups: Sequence[Group], index: int) -> float:
    """Evaluate the weight of one key of a group."""
    offset = max(group.shift for group in groups)
    row = _Row([group._replace(shift=group.shift - offset) for group in groups])
    return row.integral(row.moments[index]["one"], index)


class _Row:
    """The moments E[wᵃ yᵇ e⁻ʷ] of every group on panels in u, and the products over the other keys."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        log_n = math.log(sum(group.size for group in groups))
        low = min(-g.shift - _reach_up(g.law, LOG_TINY + 2 * log_n) for g in groups) - 3
        high = min(-g.shift - _reach_down(g.law) for g in groups) + 4.6
        narrow = min((max(1.0, 0.12 * g.law.sigma) if g.law.is_plain else 1.0 for g in groups), default=1.0)
        self.u, self.weight = panels(low, high, 1.3 * narrow)
        self.moments = [_moments(group.law, self.u + group.shift) for group in groups]
        self.log_phi = np.array([moments["log_phi"] for moments in self.moments])
        counts = np.array([group.size for group in groups])[:, None]
        part = counts * self.log_phi
        before = np.concatenate([np.zeros_like(part[:1]), np.cumsum(part, axis=0)[:-1]])
        after = np.concatenate([np.cumsum(part[::-1], axis=0)[-2::-1], np.zeros_like(part[:1])])
        self.others = before + after + (counts - 1) * self.log_phi
        self.whole = part.sum(axis=0)

    def integral(self, values: Array, index: int) -> float:
        """∫ values · Π of φ over all keys but one of this group."""
        return float(self.weight @ (values * np.exp(self.others[index])))

    def total(self, column: str, *, own: bool = False) -> float:
        """Add an integral over all keys, or over those that are no sink."""
        return sum(
            group.size * self.integral(moments[column], index)
            for index, (group, moments) in enumerate(zip(self.groups, self.moments, strict=True))
            if not (own and group.is_sink)
        )

    def mean_score(self) -> float:
        """E Σ p s, a sink's score included."""
        shifted = (g.size * g.shift * self.integral(m["one"], i) for i, (g, m) in self._indexed())
        return self.total("score") + sum(shifted)

    def _indexed(self) -> list[tuple[int, tuple[Group, dict[str, Array]]]]:
        return list(enumerate(zip(self.groups, self.moments, strict=True)))

    def ratios(self, column: str, *, own: bool = False) -> Array:
        """Return count · E[...]/φ of every group, 0 for a sink if `own`."""
        rows = [
            np.zeros_like(self.u)
            if own and group.is_sink
            else np.where(m["log_phi"] > -600, m[column] / np.exp(np.maximum(m["log_phi"], -600)), 0.0)
            for group, m in zip(self.groups, self.moments, strict=True)
        ]
        return np.array(rows)

    def distinct(self, first: tuple[str, bool], *rest: str) -> float:
        """∫ Πφ Σ f_i g_j (h_k) over distinct keys, by the sums over all less those that coincide."""
        count = np.array([group.size for group in self.groups])[:, None]
        f = self.ratios(first[0], own=first[1])
        g = self.ratios(rest[0].removeprefix("own_"), own=rest[0].startswith("own_"))
        sum_f, sum_g = (count * f).sum(axis=0), (count * g).sum(axis=0)
        if len(rest) == 1:
            inner = sum_f * sum_g - (count * f * g).sum(axis=0)
        else:
            h = self.ratios(rest[1])
            sum_h = (count * h).sum(axis=0)
            fg, fh, gh = ((count * a * b).sum(axis=0) for a, b in ((f, g), (f, h), (g, h)))
            inner = sum_f * sum_g * sum_h - fg * sum_h - fh * sum_g - gh * sum_f + 2 * (count * f * g * h).sum(axis=0)
        return float(self.weight @ (inner * np.exp(self.whole)))

    def value(self, name: str) -> float:
        if name in ("logsumexp", "entropy"):
            base = np.exp(-np.exp(np.minimum(self.u, 50.0)))
            logsumexp = float(self.weight @ (base - np.exp(self.whole))) + self._beyond()
            return logsumexp if name == "logsumexp" else logsumexp - self.mean_score()
        if name in ("power_sum_2", "power_sum_3"):
            return self.total("two", own=True) if name == "power_sum_2" else self.total("three", own=True) / 2
        if name == "jacobian_trace":
            return self.total("one", own=True) - self.total("two", own=True)
        if name in ("jacobian_frobenius_squared", "across"):
            mark = "slope" if name == "across" else ""
            two, three, four = (f"{mark}_{power}".strip("_") for power in ("two", "three", "four"))
            pairs = self.distinct((two, True), "own_two") / 6
            return self.total(two, own=True) - self.total(three, own=True) + self.total(four, own=True) / 6 + pairs
        return self._along()

    def _beyond(self) -> float:
        """∫ (exp(-e^u) - Πφ) where the panels end: Πφ is 0 there, and exp(-e^u) may not yet be."""
        end = float(self.u[-1])
        return 0.0 if end > 4 else math.fsum(_tail(min(end, 4.0)))

    def _along(self) -> float:
        """Σ p_i² (y_i - ȳ)² with its square expanded, by which of the keys coincide."""
        square = self.total("two_yy", own=True)
        cross = self.total("three_yy", own=True) + self.distinct(("two_y", True), "one_y")
        mean = self.total("four_yy", own=True) + 2 * self.distinct(("three_y", True), "one_y")
        mean += self.distinct(("two", True), "two_yy") + self.distinct(("two", True), "one_y", "one_y")
        return square - cross + mean / 6


def _tail(end: float) -> Array:
    x, weight = panels(end, 4.6, 1.0)
    return weight * np.exp(-np.exp(x))


def panels(start: float, end: float, width: float) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes and weights on panels of at most this width."""
    count = max(1, math.ceil((end - start) / width))
    nodes, weights = legendre(NODES)
    half = (end - start) / count / 2
    left = start + 2 * half * np.arange(count, dtype=np.float64)[:, None]
    return np.asarray((left + half * (nodes + 1)).ravel()), np.tile(half * weights, count)


def _reach_up(law: KeyLaw, tail: float) -> float:
    """Above this much, and tilted by up to e^(4 s), a score matters no more."""
    if law.is_constant:
        return law.constant + tail
    if math.isfinite(law.bound):
        return min(law.bound + tail, abs(law.mean) + tail + 8 * law.width**2 + law.width * math.sqrt(2 * tail))
    return (
        law.mean + max(law.width * math.sqrt(2 * tail), 0.0) + (0 if law.width**2 > 2 * tail else tail + law.width**2)
    )


def _reach_down(law: KeyLaw) -> float:
    if law.is_constant:
        return law.constant
    low = law.mean - REACH * law.width
    return max(low, -law.bound) if math.isfinite(law.bound) else low


def _moments(law: KeyLaw, u: Array) -> dict[str, Array]:
    """Average over the score by panels, some rows of u at a time."""
    if law.is_constant:
        x, weight = np.array([law.mean]), np.ones(1)
        s = np.array([law.constant])
        capped = 0.0 if law.cap == 0 else 1 / math.cosh(min(abs(law.mean) / law.cap, 300.0)) ** 2
        slope = np.array([capped])
    else:
        x, weight = law_panels(law)
        s, slope = law.score(x), law.slope(x)
    y = x * slope
    factors = {"": np.ones_like(s), "y": y, "yy": y**2, "score": s, "slope": slope**2}
    weights = np.stack([weight * factor for factor in factors.values()], axis=1)
    rows = []
    for start in range(0, u.size, ROWS):
        w = np.exp(np.minimum(u[start : start + ROWS, None] + s, 5.0))
        damped = np.exp(-w)
        lost = -np.expm1(-w) @ weight
        kept = damped @ weight
        powers = []
        for _ in range(4):
            damped = damped * w
            powers.append(damped @ weights)
        rows.append((lost, kept, *powers))
    lost, kept, one, two, three, four = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    log_phi = np.where(lost < 0.3, np.log1p(-np.minimum(lost, 0.3)), np.log(np.maximum(kept, 1e-280)))
    moments = {"log_phi": log_phi, "score": one[:, 3]}
    for power, table in (("one", one), ("two", two), ("three", three), ("four", four)):
        moments |= {
            power: table[:, 0],
            f"{power}_y": table[:, 1],
            f"{power}_yy": table[:, 2],
            f"slope_{power}": table[:, 4],
        }
    return moments


def law_panels(
    law: KeyLaw, end: float | None = None, start: float = -math.inf, tilt: float = 0.0
) -> tuple[Array, Array]:
    """Return nodes x and weights (of the whole law: sum 1), with room for a tilt, or on start to end."""
    if law.dimension == 1:
        return law.nodes()
    low, high = law.range(min(4.0, 60 / law.width**2) if end is None else tilt)
    width = min(WIDTH * law.strip, 1.7 * law.width)
    if law.dimension:
        width = min(width, 0.7 * law.temperature)
    if math.isfinite(law.cap) and not law.dimension:
        width = min(width, law.cap)
    x, weight = panels(low, high, width)
    density = weight * law.density(x)
    if end is None:
        return x, density / density.sum()
    first = max(low, start)
    if min(end, high) <= first:
        return np.array([end]), np.zeros(1)
    upto, weight = panels(first, min(end, high), width)
    return upto, weight * law.density(upto) / density.sum()


def _max_weight(groups: Sequence[Group]) -> float:
    """
    E max p = Σ_j ∫ f_j(x) dx ∫ e^(v - e^v) Π_{i≠j} E[exp(-e^(v + s_i - s)); s_i < s] dv, with v = u + s: each largest
    score by itself, and the scores below it on panels of their own.
    """
    own = [group for group in groups if not group.is_sink]
    log_n = math.log(sum(group.size for group in groups))
    tops = [g.shift + float(g.law.score(np.array(0.0 if g.law.dimension else g.law.mean))) for g in own]
    beside = max((g.shift + g.law.constant for g in groups if g.is_sink), default=-math.inf)
    v, v_weight = panels(-LOG_TINY - log_n - max(beside - max(tops), 0.0), 4.4, 1.3)
    total = 0.0
    tallest = max((g.shift + g.law.constant for g in own if g.law.is_constant), default=-math.inf)
    for candidate in own:
        if candidate.law.is_constant:
            if candidate.shift + candidate.law.constant < tallest:
                continue
            x, weight = np.array([candidate.law.mean]), np.ones(1)
        else:
            x, weight = law_panels(
                candidate.law, math.inf, candidate.law.place(tallest - candidate.shift), float(beside > min(tops))
            )
        share = weight * np.exp(np.minimum(candidate.law.score(x) + candidate.shift - beside, 0.0))
        used = share > 1e-19 * share.max()
        for place, part in zip(x[used].tolist(), weight[used].tolist(), strict=True):
            constant = candidate.law.is_constant
            s = tallest if constant else float(candidate.law.score(np.array(place))) + candidate.shift
            log_below = np.zeros_like(v)
            for group in groups:
                if group.law.is_constant:
                    others = group.size - (group is candidate)
                    log_below -= others * np.exp(np.minimum(v + group.shift + group.law.constant - s, 6.0))
                    continue
                moved = group.law.dimension and group.law.mean != candidate.law.mean
                same = group.shift == candidate.shift and not (constant or moved)
                end = place if same else group.law.place(s - group.shift)
                below, mass = law_panels(group.law, end)
                inside = below < end
                distance = group.law.score(below[inside]) + group.shift - s
                beyond = 1.0 - float(mass[inside].sum())
                lost = -np.expm1(-np.exp(v[:, None] + distance)) @ mass[inside] + max(beyond, 0.0)
                log_below += (group.size - (group is candidate)) * np.log1p(-np.minimum(lost, 1 - 2.0**-53))
            times = 1.0 if constant else candidate.size
            total += times * part * float(v_weight @ np.exp(v - np.exp(v) + log_below))
        if candidate.law.is_constant:
            tallest = math.nextafter(tallest, math.inf)  # of several as tall as one another, one is the largest
    return total
