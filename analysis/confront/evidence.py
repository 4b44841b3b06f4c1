"""How far a value lies from the draws of one cell, in standard errors, and when that distance can be trusted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from analysis.measure.estimate.accumulators import Moments, OrderStatistics, Sample
from analysis.measure.estimate.estimators import estimate

EPS = float(np.finfo(np.float64).eps)
ESTIMATORS = ("mean", "variance", "rms", "median")

# A cell joins the family of tests only where the tail of its z is no more than twice the normal tail at the critical z,
# and where no single draw carries more than about 6 % of the sum of squares.
MAX_LOG_INFLATION = math.log(2.0)
MAX_KURTOSIS_PER_DRAW = 4e-3

_LEVEL = 0.95  # of an interval that is not used here


@dataclass(frozen=True)
class Evidence(ABC):
    """
    An estimate with what a test needs to know about it.

    Attributes
    ----------
    value, standard_error : float
        In the unit of the claim.
    moments : Moments
        Of the draws.
    """

    value: float
    standard_error: float
    moments: Moments

    @abstractmethod
    def distance(self, low: float, high: float) -> float:
        """Return the signed distance from [low, high] in standard errors; 0 inside, NaN if anything is NaN."""

    @abstractmethod
    def replicates_for_tail(self, critical: float) -> float:
        """Return the replicates from which on the tail of the distance beyond `critical` is calibrated."""

    def is_constant(self, terms: int) -> bool:
        """Whether all draws agree to rounding, after `terms` operations each: then there is nothing random to test."""
        spread = self.moments.maximum - self.moments.minimum
        return spread <= 8 * terms * EPS * max(abs(self.moments.maximum), abs(self.moments.minimum))


@dataclass(frozen=True)
class Average(Evidence):
    """
    An average of independent terms: the mean, the variance, or the root of the mean square.

    Attributes
    ----------
    skewness, kurtosis : float
        Of the influence of one draw on the estimate; 0 and 3 if it is normal.
    power : int
        The estimate is this root of the average (2 for a root mean square).
    """

    skewness: float
    kurtosis: float
    power: int = 1

    def distance(self, low: float, high: float) -> float:
        """Return the distance on the scale of the average, where the terms are independent."""
        average, low, high = (value**self.power for value in (self.value, low, high))
        error = self.standard_error * self.power * self.value ** (self.power - 1)
        if not all(map(math.isfinite, (average, low, high))):
            return math.nan
        gap = min(average - low, 0.0) + max(average - high, 0.0)
        if gap == 0.0:
            return 0.0
        return gap / error if error > 0 else math.copysign(math.inf, gap)

    def replicates_for_tail(self, critical: float) -> float:
        """
        Return the replicates from which on the tail is calibrated.

        The tail of a studentised mean is the normal tail times about exp(|skewness|·z³/(3√n) + z⁴/(4n)).

        References
        ----------
        P. Hall, The Bootstrap and Edgeworth Expansion (1992), section 2.6: the leading terms at large z.
        """
        if not (math.isfinite(self.skewness) and math.isfinite(self.kurtosis)):
            return math.inf
        by_skewness = (abs(self.skewness) * critical**3 / (3 * MAX_LOG_INFLATION)) ** 2
        by_student = critical**4 / (4 * MAX_LOG_INFLATION)
        return max(by_skewness + by_student, self.kurtosis / MAX_KURTOSIS_PER_DRAW)


@dataclass(frozen=True)
class Rank(Evidence):
    """The median, judged by the sign test, which is exact for every continuous law."""

    ordered: OrderStatistics

    def distance(self, low: float, high: float) -> float:
        """Return how far the share of draws below `low` (or above `high`) is from one half."""
        if not all(map(math.isfinite, (self.moments.mean, low, high))):
            return math.nan
        half, error = self.ordered.count / 2, math.sqrt(self.ordered.count) / 2
        if self.value < low:
            return min(0.0, half - count_below(self.ordered, low, inclusive=False)) / error
        if self.value > high:
            return max(0.0, half - count_below(self.ordered, high, inclusive=True)) / error
        return 0.0

    def replicates_for_tail(self, critical: float) -> float:
        """Return (critical + 1)²: the tail of a fair coin is lighter than the normal one, and ends at √n."""
        return (critical + 1.0) ** 2


def evidence_from(sample: Sample, estimator: str) -> Evidence:
    """
    Return the estimate with its error and the shape of its tail.

    Parameters
    ----------
    sample : Sample
        Two replicates at least; with order statistics for a median.
    estimator : {"mean", "variance", "rms", "median"}
    """
    moments = sample.moments
    found = estimate(sample, estimator, _LEVEL)
    if estimator == "median":
        assert sample.ordered is not None
        return Rank(found.estimate, found.standard_error, moments, sample.ordered)
    influence = moments.influence(estimator)
    with np.errstate(all="ignore"):
        variance, third, fourth = (np.float64(moments.expect(influence, power)) for power in (2, 3, 4))
        skewness, kurtosis = third / variance**1.5, fourth / variance**2
    power = 2 if estimator == "rms" else 1
    return Average(found.estimate, found.standard_error, moments, float(skewness), float(kurtosis), power)


def count_below(ordered: OrderStatistics, value: float, *, inclusive: bool) -> int:
    """Return how many values lie below `value`; an entry that stands for several counts by its middle."""
    middles = (ordered.low + ordered.high) / 2
    entries = int(np.searchsorted(middles, value, side="right" if inclusive else "left"))
    return int(ordered.counts[:entries].sum())
