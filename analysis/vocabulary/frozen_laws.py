"""Names and moments of frozen scipy.stats distributions, with the moments that do not exist told apart."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

_FAR = 230.0  # e^−230 = 1e-100, the last tail probability at which SciPy's quantiles are all sound


def frozen_name(frozen: Any) -> str:
    from scipy import stats

    parts = [repr(_plain(value)) for value in frozen.args]
    parts += [f"{key}={_plain(frozen.kwds[key])!r}" for key in sorted(frozen.kwds)]
    name = f"{frozen.dist.name}({', '.join(parts)})"
    if type(getattr(stats, frozen.dist.name, None)) is type(frozen.dist):
        return name
    # A user's own distribution is not told apart by its name: quantiles are its fingerprint.
    quantiles = np.asarray(frozen.ppf([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99]), dtype=float)
    return f"{name}[{','.join(f'{value:.12g}' for value in quantiles)}]"


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


class FrozenMoments:
    """
    Moments of a frozen distribution.

    SciPy returns finite garbage where they diverge, so the tails are read first; from order 5 on its quadrature over x
    loses heavy tails (lognorm(1) at order 8: a factor of 200), so there the quantiles are integrated.
    """

    def __init__(self, frozen: Any, *, shifted: bool) -> None:
        self._frozen = frozen
        self._shifted = shifted

    def __call__(self, order: int) -> float:
        if order == 0:
            return 1.0
        upper = order >= tail_index(self._frozen, upper=True)
        lower = order >= tail_index(self._frozen, upper=False)
        if upper or lower:
            if order % 2 == 0:
                return math.inf
            return math.nan if upper and lower else math.inf if upper else -math.inf
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SciPy's quadrature warns of roundoff in moments that it gets right
            if order > 4:
                return self._high(order)
            return self._central(order) if self._shifted else float(self._frozen.moment(order))

    def _high(self, order: int) -> float:
        centre = float(self._frozen.mean()) if self._shifted else 0.0
        if hasattr(self._frozen.dist, "pmf"):
            return float(self._frozen.expect(lambda x: (x - centre) ** order))
        # E f(X) = ∫ f(isf(e^−t)) + f(ppf(e^−t)) e^−t dt over t > log 2, by Gauss-Legendre on panels.
        nodes, weights = np.polynomial.legendre.leggauss(20)
        edges = np.concatenate([math.log(2.0) + np.linspace(0.0, 3.0, 7), np.geomspace(4.5, _FAR, 25)])
        half = np.diff(edges)[:, None] / 2
        t = edges[:-1, None] + half * (nodes + 1)
        upper, lower = self._frozen.isf(np.exp(-t)), self._frozen.ppf(np.exp(-t))
        with np.errstate(over="ignore"):
            tails = (upper - centre) ** order + (lower - centre) ** order
        total = float(np.sum(half * weights * np.exp(-t) * tails))
        sign = -1.0 if order % 2 else 1.0
        return total + self._beyond(order, upper=True) + sign * self._beyond(order, upper=False)

    def _beyond(self, order: int, *, upper: bool) -> float:
        """Return what a power tail adds beyond the last panel; any other tail adds nothing that a float could hold."""
        index = tail_index(self._frozen, upper=upper)
        edge = abs(float((self._frozen.isf if upper else self._frozen.ppf)(math.exp(-_FAR))))
        return float(edge**order * math.exp(-_FAR) / (1.0 - order / index)) if math.isfinite(index) else 0.0

    def _central(self, order: int) -> float:
        if order == 1:
            return 0.0
        variance: float = float(self._frozen.var())
        if order == 2:
            return variance
        if order == 3:
            return float(self._frozen.stats("s") * variance**1.5)
        return (float(self._frozen.stats("k")) + 3.0) * variance**2


def tail_index(frozen: Any, *, upper: bool) -> float:
    """
    Return α where P(|X| > x) falls like x^(−α) in that tail, infinity where it falls faster than any power.

    The slope of log P against log x is the same far out and farther out only in a power tail.
    """
    quantile, log_tail = (frozen.isf, frozen.logsf) if upper else (frozen.ppf, frozen.logcdf)
    slopes = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for near, far in ((1e-20, 1e-40), (1e-80, 1e-100)):
            x_near, x_far = (abs(float(quantile(p))) for p in (near, far))
            if not 0.0 < x_near < x_far < math.inf:
                return math.inf
            rise = float(log_tail(math.copysign(x_far, 1 if upper else -1)))
            rise -= float(log_tail(math.copysign(x_near, 1 if upper else -1)))
            slopes.append(-rise / math.log(x_far / x_near))
    if not all(math.isfinite(slope) for slope in slopes) or abs(slopes[0] - slopes[1]) > 1e-2 * slopes[1]:
        return math.inf
    return float(slopes[1] * (1.0 - 1e-9))
