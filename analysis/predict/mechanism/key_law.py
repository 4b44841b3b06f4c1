"""The law of one key's score, and nodes that integrate against it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.predict.maximum import legendre

Array = NDArray[np.float64]

# Parts of a law beyond e^-TAIL are under rounding, also after a tilt by three times the score.
NORMAL_REACH = 8.6
# exp(-e^v) is analytic for |Im v| < π/2: a trapezoid of this step in v is at rounding, and so are 14 nodes a panel.
SCORE_STEP = 0.2
NORMAL_STEP = 0.6
PANEL_NODES = 14
PANEL_WIDTH = 1.4
# tanh is 1 to rounding beyond.
SATURATED = 19.5


@dataclass(frozen=True)
class KeyLaw:
    """
    The law of one score s = cap·tanh(r/cap), or r itself without a soft-cap.

    Attributes
    ----------
    sigma : float
        r ~ N(mean, sigma²) for a dot product; 0 is a constant.
    mean : float
    cap : float
        Infinite without a soft-cap.
    dimension : int
        d > 0: r = mean + temperature·c, c the cosine between a vector and an isotropic one in d dimensions, of density
        (1 - c²)^((d-3)/2); sigma is not used. Integrals are over x with c = tanh(x/temperature), else over x = r.
    temperature : float
    """

    sigma: float
    mean: float = 0.0
    cap: float = math.inf
    dimension: int = 0
    temperature: float = 0.0

    def score(self, x: Array) -> Array:
        """Give the score at x."""
        r = self.mean + self.temperature * np.tanh(x / self.temperature) if self.dimension else x
        return r if math.isinf(self.cap) else self.cap * np.tanh(r / self.cap)

    def place(self, s: float) -> float:
        """Give the x of a score, infinite for one that is not reached."""
        r = s
        if math.isfinite(self.cap):
            if abs(s) >= self.cap:
                return math.copysign(math.inf, s)
            r = self.cap * math.atanh(s / self.cap)
        if not self.dimension:
            return r
        c = (r - self.mean) / self.temperature
        return math.copysign(math.inf, c) if abs(c) >= 1 else self.temperature * math.atanh(c)

    def slope(self, x: Array) -> Array:
        """Give ds/dr; for a cosine, times the length of the unit key across the query, √(1 - c²)."""
        r, length = x, np.ones_like(x)
        if self.dimension:
            r = self.mean + self.temperature * np.tanh(x / self.temperature)
            length = 1 / np.cosh(np.minimum(np.abs(x / self.temperature), 300.0))
        if math.isfinite(self.cap):
            length = length / np.cosh(np.minimum(np.abs(r / self.cap), 300.0)) ** 2
        return length

    @property
    def is_constant(self) -> bool:
        """Whether there is nothing to average."""
        return self.cap == 0 or (self.temperature == 0 if self.dimension else self.sigma == 0)

    @property
    def is_plain(self) -> bool:
        """Whether the score is normal."""
        return math.isinf(self.cap) and not self.dimension

    @property
    def constant(self) -> float:
        """The score of a law that is constant."""
        if math.isinf(self.cap) or self.cap == 0:
            return self.mean if self.cap else 0.0
        return self.cap * math.tanh(self.mean / self.cap)

    @property
    def bound(self) -> float:
        """The largest size of the score."""
        return min(self.cap, abs(self.mean) + self.temperature if self.dimension else math.inf)

    @property
    def width(self) -> float:
        """The deviation of a normal law that is at least as wild as r."""
        return self.temperature / math.sqrt(self.dimension) if self.dimension else self.sigma

    def upper(self, log_tail: float) -> float:
        """Bound u + s from above: E(1 - exp(-e^(u+s))) <= e^-log_tail for every u below minus this."""
        reach = math.sqrt(2 * log_tail)
        tilted = self.width * reach if self.width > reach else log_tail + self.width**2 / 2
        return min(max(self.mean, 0.0 if math.isfinite(self.cap) else self.mean) + tilted, self.bound + log_tail)

    def lower(self, log_tail: float, count: float) -> float:
        """Bound s from below: all `count` keys lie below it with probability at most e^-log_tail."""
        if self.is_constant:
            return self.constant
        mean = min(self.mean, 0.0) if math.isfinite(self.cap) else self.mean
        return max(mean - self.width * math.sqrt(2 * log_tail / count), -self.bound)

    def nodes(self) -> tuple[Array, Array]:
        """Return x and weights (sum 1): a trapezoid, or panels where tanh saturates long before the normal law ends."""
        if self.dimension == 1:  # two atoms
            return np.array([-2.0, 2.0]) * SATURATED * self.temperature, np.full(2, 0.5)
        low, high = self.range(3.0)
        saturates = not self.dimension and max(-low, high) > SATURATED * self.cap
        if saturates:
            x, width = legendre_panels(self.edges(low, high))
        else:
            step = min(SCORE_STEP * self.strip, NORMAL_STEP * self.width)
            if self.dimension:
                step = min(step, SCORE_STEP * self.temperature)
            middle = 0.0 if self.dimension else self.mean
            x = middle + step * np.arange(math.floor((low - middle) / step), math.ceil((high - middle) / step) + 1.0)
            width = np.ones_like(x)
        weight = width * self.density(x)
        return x, weight / weight.sum()

    @property
    def strip(self) -> float:
        """How near to the real axis the score leaves |Im s| < π/2, in units of π/2."""
        near = self.cap * math.atan(math.pi / 2 / self.cap) if math.isfinite(self.cap) else math.pi / 2
        if self.dimension:
            near = self.temperature * math.atan(near / self.temperature)
        return near / (math.pi / 2)

    def range(self, tilt: float) -> tuple[float, float]:
        """Where the density matters, also when e^(tilt·s) multiplies it."""
        if not self.dimension:
            further = min(tilt * self.sigma**2, 2 * tilt * self.cap)
            return self.mean - NORMAL_REACH * self.sigma, self.mean + NORMAL_REACH * self.sigma + further
        drop = min((NORMAL_REACH + tilt * self.width) ** 2, NORMAL_REACH**2 + 4 * tilt * self.temperature) / 2
        drop /= max(self.dimension - 1.0, 0.5)
        reach = drop + math.log(2) if drop > 30 else math.acosh(math.exp(drop))
        return -reach * self.temperature, reach * self.temperature

    def density(self, x: Array) -> Array:
        """Give the density of x, up to a constant."""
        if self.dimension:
            size = np.abs(x / self.temperature)
            return np.asarray(np.exp((1.0 - self.dimension) * (size + np.log1p(np.exp(-2 * size)) - math.log(2))))
        return np.asarray(np.exp(-(((x - self.mean) / self.sigma) ** 2) / 2))

    def edges(self, low: float, high: float, sharp: float = 2.0) -> Array:
        """March in panels as wide as the score, tanh and `sharp` deviations allow, away from 0 on both sides."""
        bend = self.temperature if self.dimension else self.cap

        def march(start: float, end: float) -> list[float]:
            at, edges = start, [start]
            while at < end:
                steep = math.cosh(min(at / bend, 300.0)) ** 2
                bending = 1.1 * bend if at < SATURATED * bend else math.inf
                at = min(at + min(PANEL_WIDTH * self.strip * steep, bending, sharp * self.width), end)
                edges.append(at)
            return edges

        right = march(max(low, 0.0), high) if high > 0 else []
        left = march(max(-high, 0.0), -low) if low < 0 else []
        return np.unique(np.array([-edge for edge in left] + right))


def legendre_panels(edges: Array) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes and weights on the panels between these edges."""
    nodes, weights = legendre(PANEL_NODES)
    half = np.diff(edges)[:, None] / 2
    points: Array = (edges[:-1, None] + half * (nodes + 1)).ravel()
    return points, np.asarray((half * weights).ravel())


def running(values: Array, widths: Array) -> Array:
    """
    Integrate along the last axis from the first edge to each node of Gauss-Legendre panels.

    Parameters
    ----------
    values : ndarray, shape (..., panels * PANEL_NODES)
    widths : ndarray, shape (panels,)

    Returns
    -------
    ndarray
        Of the shape of values.
    """
    parts = values.reshape(*values.shape[:-1], -1, PANEL_NODES) * (widths[:, None] / 2)
    within = parts @ _running_weights()
    whole = parts @ legendre(PANEL_NODES)[1]
    before = np.cumsum(whole, axis=-1) - whole
    result: Array = (within + before[..., None]).reshape(values.shape)
    return result


def _running_weights() -> Array:
    """Weights of the integrals from -1 to each node of the polynomial through the values at the nodes."""
    x, w = legendre(PANEL_NODES)
    k = np.arange(PANEL_NODES)
    values = special.eval_legendre(k[:, None], x)
    coefficients = (k[:, None] + 0.5) * values * w
    integrals = np.empty_like(values)
    integrals[0] = x + 1
    following = special.eval_legendre(k[1:, None] + 1, x)
    preceding = special.eval_legendre(k[1:, None] - 1, x)
    integrals[1:] = (following - preceding) / (2 * k[1:, None] + 1)
    return np.asarray(coefficients.T @ integrals)
