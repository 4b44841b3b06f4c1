"""What a study keeps of its replicates: moments and order statistics, mergeable, of bounded size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

MAX_ORDER = 8  # the skewness of squared deviations needs order 6, their kurtosis 8
MAX_ENTRIES = 1 << 17
_KEPT_BITS = 14  # of the mantissa: beyond MAX_ENTRIES values, quantiles are known to a relative 2^-14


@dataclass(frozen=True)
class Moments:
    """
    The moments of a sample x₁, …, xₙ.

    Attributes
    ----------
    count : int
        n.
    shift, offset : float
        The mean is shift + offset. `shift` is a value of the sample, so that the difference of two means keeps the
        digits that the means themselves (1e12, say) have rounded away.
    central : tuple of float
        Σ (xᵢ − mean)ᵖ for p = 0, …, 8.
    minimum, maximum : float
        The extremes.
    """

    count: int
    shift: float
    offset: float
    central: tuple[float, ...]
    minimum: float
    maximum: float

    @classmethod
    def of(cls, values: NDArray[Any]) -> Moments:
        """Return the moments of a non-empty sample, in float64 whatever its dtype."""
        x = np.asarray(values, dtype=np.float64).ravel()
        shift = float(x[0])
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            deviation = x - shift
            offset = float(deviation.mean())
            deviation -= offset
            residual = float(deviation.mean())  # what rounding left of the mean
            deviation -= residual
            sums, power = [float(x.size), 0.0], deviation.copy()
            for _ in range(2, MAX_ORDER + 1):
                power *= deviation
                sums.append(float(power.sum()))
        return cls(x.size, shift, offset + residual, tuple(sums), float(x.min()), float(x.max()))

    @property
    def mean(self) -> float:
        """The sample mean."""
        return self.shift + self.offset

    @cached_property
    def averages(self) -> tuple[float, ...]:
        """(1/n) Σ (xᵢ − mean)ᵖ for p = 0, …, 8."""
        return tuple(total / self.count for total in self.central)

    def expect(self, influence: Sequence[float], power: int) -> float:
        """Return the average of I^power for the polynomial I of x − mean, coefficients in ascending order."""
        polynomial = np.polynomial.polynomial.polypow(influence, power)
        return float(np.dot(polynomial, self.averages[: polynomial.size]))

    def influence(self, statistic: str) -> list[float]:
        """Return I, what one replicate adds to the error of the mean, the variance or the mean square."""
        second = self.averages[2]
        known = {"mean": [0.0, 1.0], "variance": [-second, 0.0, 1.0], "rms": [-second, 2.0 * self.mean, 1.0]}
        return known[statistic]

    def merge(self, other: Moments) -> Moments:
        """
        Return the moments of both samples together.

        Σ over A and B of (x − mean)ᵖ = Σₖ C(p, k) [aᵏ M_A,p−k + bᵏ M_B,p−k] with a = −δ n_B/n, b = δ n_A/n and δ the
        difference of the means [1]_. Not associative in the last bit: shards are merged in the order of their numbers.

        References
        ----------
        .. [1] P. Pébay, "Formulas for robust, one-pass parallel computation of covariances and arbitrary-order
           statistical moments", Sandia report SAND2008-6212, 2008.
        """
        count = self.count + other.count
        delta = np.float64((other.shift - self.shift) + (other.offset - self.offset))
        a, b = -delta * (other.count / count), delta * (self.count / count)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            central = [
                sum(math.comb(p, k) * (a**k * self.central[p - k] + b**k * other.central[p - k]) for k in range(p + 1))
                for p in range(MAX_ORDER + 1)
            ]
        central[1] = np.float64(0.0)
        return Moments(
            count,
            self.shift,
            self.offset - float(a),
            tuple(float(value) for value in central),
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
        )


@dataclass(frozen=True)
class OrderStatistics:
    """
    A sample in order.

    Exact up to `MAX_ENTRIES` entries; beyond, values that share sign, exponent and the first 14 bits of the mantissa
    become one entry, which remembers its least and greatest value. Memory is then bounded by the range of the values,
    not by their number.

    Attributes
    ----------
    low, high : ndarray, (entries,)
        Least and greatest value of each entry, increasing.
    counts : ndarray of int64, (entries,)
        How many values each entry stands for.
    """

    low: Values
    high: Values
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, values: NDArray[Any]) -> OrderStatistics:
        """Return the order statistics of a sample."""
        x = np.sort(np.asarray(values, dtype=np.float64).ravel())
        return cls(x, x, np.ones(x.size, dtype=np.int64))._bounded(binned=False)

    @property
    def count(self) -> int:
        """The size of the sample."""
        return int(self._cumulative[-1])

    @cached_property
    def _cumulative(self) -> NDArray[np.int64]:
        return np.cumsum(self.counts)

    def merge(self, other: OrderStatistics) -> OrderStatistics:
        """Return the order statistics of both samples together."""
        low = np.concatenate([self.low, other.low])
        order = np.argsort(low, kind="stable")
        merged = OrderStatistics(
            low[order],
            np.concatenate([self.high, other.high])[order],
            np.concatenate([self.counts, other.counts])[order],
        )
        return merged._bounded(binned=self._is_binned or other._is_binned)

    def value(self, rank: float) -> float:
        """Return the value of 0-based rank (interpolated for a rank that is no whole number), clipped to the sample."""
        rank = min(max(rank, 0.0), self.count - 1.0)
        below = math.floor(rank)
        at = self._value(below)
        return at if rank == below else at + (rank - below) * (self._value(below + 1) - at)

    def _value(self, rank: int) -> float:
        entry = int(np.searchsorted(self._cumulative, rank, side="right"))
        low, high, count = float(self.low[entry]), float(self.high[entry]), int(self.counts[entry])
        if count == 1 or low == high:
            return low
        position = rank - (int(self._cumulative[entry]) - count)
        return low + (high - low) * position / (count - 1)

    @property
    def _is_binned(self) -> bool:
        return self.count > self.counts.size

    def _bounded(self, *, binned: bool) -> OrderStatistics:
        if not binned and self.counts.size <= MAX_ENTRIES:
            return self
        key = (self.low + 0.0).view(np.int64) >> (52 - _KEPT_BITS)  # + 0.0 makes −0.0 and 0.0 one value
        starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        return OrderStatistics(
            self.low[starts], np.maximum.reduceat(self.high, starts), np.add.reduceat(self.counts, starts)
        )


@dataclass(frozen=True)
class Sample:
    """The accumulated replicates of one cell or shard; `ordered` is None unless a quantile is asked for."""

    moments: Moments
    ordered: OrderStatistics | None = None

    def merge(self, other: Sample) -> Sample:
        """Return both together."""
        if self.ordered is None or other.ordered is None:
            return Sample(self.moments.merge(other.moments))
        return Sample(self.moments.merge(other.moments), self.ordered.merge(other.ordered))
