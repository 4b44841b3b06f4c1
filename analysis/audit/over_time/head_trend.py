"""The record of one head over the steps of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from analysis.audit.tensors.columns import Column

STANDS_OUT = 3.0
TREND_COLUMNS = (
    Column("layer", "layer", "layer"),
    Column("head", "head", "head"),
    Column("first_variance", "var", "variance, first step"),
    Column("last_variance", "last", "variance, last step"),
    Column("rate", "rate", "growth of log variance per step"),
    Column("rate_standard_error", "±", "standard error"),
    Column("onset", "since", "since step"),
    Column("factor", "by", "factor that changed most since"),
    Column("factor_ratio", "×", "multiplied by"),
    Column("clip_factor", "clip", "clip kᵀq by"),
)


@dataclass(frozen=True)
class HeadTrend:
    """
    One head over the steps of a run.

    Attributes
    ----------
    layer, head, key_head : the head, and whose keys it reads.
    variance, entropy, largest : tuple of float
        At every step: of the scores within a row, over its maximum, the largest |score| (of weights, its bound).
    self_score : tuple of float
        Of weights, at every step, the mean score of a token with itself above that with another; NaN of tensors.
    rate, rate_standard_error : growth of log variance per step, by least squares, and its standard error from the
        scatter about the line (NaN for fewer than three steps).
    entropy_rate, entropy_rate_standard_error : the same of the entropy over its maximum.
    largest_rate, largest_rate_standard_error : the same of the logarithm of the largest |score|.
    degrees_of_freedom : of the error of `rate`.
    onset : the step from which the variance grows: least squares of a level with a line after it, as log variance.
    crossed : dict of str to int or None
        The first step at which the variance or the largest score is above its target, or the entropy below.
    crossing : dict of str to (step, standard error) or None
        Of what has not crossed: the step at which the line through the steps from `onset` on would, an extrapolation;
        None where it leads elsewhere, or not within ten times the run.
    factor, factor_ratio : the factor of the variance that changed most from `onset` to the last step.
    clip_factor, query_factor, key_factor : what the product kᵀq of the last step must be multiplied by to be back at
        the targets of variance and largest score, and what W_q and W_k (biases too) then are: its root each, or all of
        it and 1 where several query heads read the key head. None within the targets; of heads that normalise q and k
        after the projection the last two are None, since W_q and W_k do not set the size of their scores.
    """

    layer: str
    head: int
    key_head: int
    variance: tuple[float, ...]
    entropy: tuple[float, ...]
    largest: tuple[float, ...]
    self_score: tuple[float, ...]
    rate: float
    rate_standard_error: float
    entropy_rate: float
    entropy_rate_standard_error: float
    largest_rate: float
    largest_rate_standard_error: float
    degrees_of_freedom: int
    onset: int
    crossed: Mapping[str, int | None]
    crossing: Mapping[str, tuple[float, float] | None]
    factor: str
    factor_ratio: float
    clip_factor: float | None
    query_factor: float | None
    key_factor: float | None

    @property
    def first_variance(self) -> float:
        """The variance at the first step."""
        return self.variance[0]

    @property
    def last_variance(self) -> float:
        """The variance at the last step."""
        return self.variance[-1]

    @property
    def attends_to_itself(self) -> bool:
        """A token's score with itself has come to stand out of its others by more than three of their deviations."""
        first, last = (
            abs(score) / math.sqrt(variance) if variance > 0 else math.nan
            for score, variance in ((self.self_score[0], self.variance[0]), (self.self_score[-1], self.variance[-1]))
        )
        return last > STANDS_OUT and last > 2 * first
