"""The integral of the largest weight of normal scores, over the largest score and the logarithm of its own share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from analysis.predict.mechanism.grid import CUT, Group
from analysis.predict.mechanism.interpolation import lagrange
from analysis.predict.mechanism.key_law import PANEL_WIDTH, Array, legendre_panels
from analysis.predict.mechanism.largest_plane import REACH, Part, highest_sink, panels_between, reach_above, sharpness
from analysis.predict.quadrature import STEP, TAIL

# Narrower scores, and sinks higher above them, take too many nodes here; few groups of narrow ones fewer elsewhere.
NARROWEST, WIDE, SEVERAL = 0.4, 2.0, 8
HIGHEST_SINK = 200.0
# Two deviations of a normal law to a panel, as in `KeyLaw.edges`.
DEVIATIONS = 2.0
# The logarithm of a probability that all keys are below a score, under rounding, and of an even chance.
NEVER, EVEN = -43.0, -0.7
# Shifts of one law are moved to nodes of this step, in deviations, each to this many by Lagrange's weights.
LATTICE, STENCIL = 0.15, 20


class NormalPlane:
    """
    Nodes in v = log(t e^x) and in the largest score x; keys enter by what of them lies below x.

    Attributes
    ----------
    empty : ndarray
        Zeros of the shape of the integrand, (v, x).
    empty_atom : ndarray
        As `Plane` has it.

    Notes
    -----
    E max p = ∫ dx ∫ dv Σ_j f_j(x) e^(v - e^v) Π_{i≠j} C_i, 1 - C_i = P(s_i > x) + ∫ f_i(x - y) (1 - exp(-e^(v-y)))
    dy over y > 0. Whatever the width of the scores, distances y of some dozens below the largest are all that is seen.
    """

    def __init__(self, groups: Sequence[Group], counts: Array) -> None:
        self.log_n = math.log(float(counts.sum(axis=0).max()))
        keys = [group for group in groups if not group.is_sink]
        fewest = np.array([least for group, least in zip(groups, counts.min(axis=1), strict=True) if not group.is_sink])
        start, middle = (_highest_below(keys, fewest, chance) for chance in (NEVER, EVEN))
        sink = highest_sink(groups)
        self.v: Array = -STEP * np.arange(
            -math.floor(CUT / STEP), math.ceil((self._depth + max(sink - middle, 0.0)) / STEP) + 1.0
        )
        self.x, width = legendre_panels(self._edges(keys, sink, start))
        w = np.exp(self.v)
        self._weight, self._used = STEP * w * np.exp(-w), width
        self.empty, self.empty_atom = np.zeros((self.v.size, self.x.size)), np.zeros(1)
        self._kernels: dict[int, tuple[Array, Array]] = {}

    @staticmethod
    def suits(groups: Sequence[Group], counts: Array) -> bool:
        """Whether the keys are normal and wide enough, and a sink is not far above them."""
        keys = [group for group in groups if not group.is_sink]
        if any(not group.law.is_plain or group.law.sigma < NARROWEST for group in keys):
            return False
        if len(groups) < SEVERAL and all(group.law.sigma < WIDE for group in keys):
            return False
        return highest_sink(groups) < max(group.law.mean for group in keys) + HIGHEST_SINK

    @property
    def _depth(self) -> float:
        return TAIL + self.log_n

    def _edges(self, keys: Sequence[Group], sink: float, start: float) -> Array:
        sharp = sharpness(self.log_n)
        intervals = []
        for width in sorted({group.law.width for group in keys}):
            means = [group.law.mean for group in keys if group.law.width == width]
            low = min(means) - REACH * width
            high = max(reach_above(group.law, sink) for group in keys if group.law.width == width)
            # Seen from further above, a law is as sharp as exp(-e^v).
            intervals += [(low, high, sharp * width), (high, high + self._depth, max(PANEL_WIDTH, sharp * width))]
        if math.isfinite(sink):
            intervals.append((sink - self._depth, sink + self._depth, PANEL_WIDTH))
        end = max(reach_above(group.law, sink) for group in keys)
        return panels_between([(max(low, start), min(high, end), size) for low, high, size in intervals])

    def integral(self, values: Array) -> float:
        """∫ dx ∫ dv e^(v - e^v) · values."""
        return float(self._weight @ values @ self._used)

    def at_atom(self, values: Array) -> float:
        """Nothing: no key is constant."""
        return 0.0

    def part(self, group: Group) -> Part:
        """Return log C and f/C of one key, or of the sink."""
        if group.is_sink:
            share = np.exp(np.minimum(self.v[:, None] - self.x + group.shift + group.law.constant, 6.0))
            return Part(-share, np.zeros((1, 1)), self.empty_atom)
        sigma, z = group.law.sigma, (self.x - group.law.mean) / group.law.sigma
        y, kernel = self._kernel(sigma)
        lost = special.ndtr(-z) + kernel @ (
            np.exp(-((z - y[:, None] / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))
        )
        kept = 1 - np.minimum(lost, 1 - 2.0**-53)
        density = np.exp(-(z**2) / 2) / (sigma * math.sqrt(2 * math.pi))
        return Part(np.log1p(-np.minimum(lost, 1 - 2.0**-53)), density / kept, self.empty_atom)

    def _kernel(self, sigma: float) -> tuple[Array, Array]:
        """Return nodes y and, at every v, weights of ∫ (1 - exp(-e^(v-y))) ... dy, for laws of about this deviation."""
        size = min(0, math.floor(math.log2(DEVIATIONS * sigma / PANEL_WIDTH)))
        if size not in self._kernels:
            reach = self._depth + CUT
            y, width = legendre_panels(np.linspace(0.0, reach, math.ceil(reach / (PANEL_WIDTH * 2.0**size)) + 1))
            self._kernels[size] = y, -np.expm1(-np.exp(self.v[:, None] - y)) * width
        return self._kernels[size]


def _highest_below(keys: Sequence[Group], fewest: Array, chance: float) -> float:
    """Return the score below which all keys of the shortest row lie with the probability e^chance."""
    means, widths = (np.array([getattr(group.law, name) for group in keys]) for name in ("mean", "width"))
    low, high = float(np.min(means - REACH * widths)), float(np.max(means + REACH * widths))
    for _ in range(30):
        middle = (low + high) / 2
        if fewest @ special.log_ndtr((middle - means) / widths) < chance:
            low = middle
        else:
            high = middle
    return low


def on_lattice(groups: Sequence[Group], counts: Array) -> tuple[list[Group], Array]:
    """
    Replace many normal keys of one width by fewer, whose counts are any numbers: sums over the keys stay.

    A sum Σ g(mean) of a smooth function is that of its interpolating polynomials, Σ_i Σ_l L_l(mean_i) g(l): the counts
    are the sums of Lagrange's weights. What `Part` holds is as smooth in the mean as in the score.
    """
    widths: dict[float, list[int]] = {}
    for index, group in enumerate(groups):
        widths.setdefault(-1.0 if group.is_sink else group.law.width, []).append(index)
    kept, kept_counts = [], []
    for width, members in widths.items():
        means = np.array([groups[i].law.mean for i in members])
        step = LATTICE * width
        size = math.ceil(float(np.ptp(means)) / step) + STENCIL
        if width < 0 or size >= len(members):
            kept += [groups[i] for i in members]
            kept_counts += [counts[i] for i in members]
            continue
        places = (means - means.min()) / step + (STENCIL / 2 - 1)
        first = np.minimum(np.floor(places).astype(int) - STENCIL // 2 + 1, size - STENCIL)
        new = np.zeros((size, counts.shape[1]))
        weights = lagrange(places - first, STENCIL)
        np.add.at(new, first[:, None] + np.arange(STENCIL), weights[:, :, None] * counts[members][:, None, :])
        origin = float(means.min()) - (STENCIL / 2 - 1) * step
        law = groups[members[0]].law
        kept += [Group(replace(law, mean=origin + step * place), 0.0, 1.0) for place in range(size)]
        kept_counts += list(new)
    return kept, np.array(kept_counts)
