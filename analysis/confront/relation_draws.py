"""Relations that look at every draw: identities, bounds and laws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from analysis.confront.cell import Cell
from analysis.confront.evidence import EPS, count_below
from analysis.confront.relation import POWER_MARGIN, Judgement, Relation, operations
from analysis.measure.estimate.accumulators import Sample


class _EveryDraw(Relation):
    """Relations that look at every draw: the smallest and the largest tell."""

    stochastic = False


@dataclass(frozen=True)
class Identity(_EveryDraw):
    """
    Every draw equals the prediction to rounding.

    Parameters
    ----------
    multiple : float
        The bound is multiple·n·eps·max(1, |prediction|), n the larger of the cell's d_k and n_keys.
    """

    multiple: float = 8.0

    def judge(
        self, sample: Sample, cell: Cell, estimator: str | None, prediction: Any, rival: Any, critical: float
    ) -> Judgement:
        """Judge the draw that is farthest from the prediction; NaN agrees with nothing."""
        low, high = sample.moments.minimum, sample.moments.maximum
        worst = low if abs(low - prediction) > abs(high - prediction) else high
        bound = self.multiple * operations(cell) * EPS * max(1.0, abs(prediction))
        agrees = abs(worst - prediction) <= bound
        separates = None if rival == prediction else max(abs(low - rival), abs(high - rival)) > bound
        note = f"largest deviation {abs(worst - prediction) / bound:.2g} of the rounding bound"
        return _deterministic(worst, prediction, rival, sample.moments.count, bound, agrees, separates, note)


@dataclass(frozen=True)
class AtMost(_EveryDraw):
    """
    No draw exceeds the prediction by more than rounding; the largest draw is reported.

    Parameters
    ----------
    attained : bool
        Some draw must also reach it to rounding: the bound is claimed to be tight.
    multiple : float
        Rounding is multiple·n·eps·max(1, |prediction|), n the larger of the cell's d_k and n_keys.
    """

    attained: bool = False
    multiple: float = 8.0

    def judge(
        self, sample: Sample, cell: Cell, estimator: str | None, prediction: Any, rival: Any, critical: float
    ) -> Judgement:
        """Judge the largest draw; a rival is excluded by a draw above it."""
        high = sample.moments.maximum if math.isfinite(sample.moments.mean) else math.nan
        rounding = self.multiple * operations(cell) * EPS * max(1.0, abs(prediction))
        agrees = high <= prediction + rounding
        note = "tightest draw"
        if self.attained and not high >= prediction - rounding:
            agrees, note = False, "the bound is not attained"
        separates = None if rival == prediction else high > rival + rounding
        return _deterministic(high, prediction, rival, sample.moments.count, rounding, agrees, separates, note)


@dataclass(frozen=True)
class Fits(Relation):
    """
    The draws follow the predicted law: Pearson's χ² over classes of equal predicted probability.

    Parameters
    ----------
    classes : int
        At least 8. Prediction and rival are laws with ``ppf``.
    """

    classes: int = 64

    stochastic: ClassVar[bool] = True

    # χ² of a multinomial has a slightly heavier tail than its limit: this many draws per class make it harmless.
    _PER_CLASS: ClassVar[int] = 200

    def __post_init__(self) -> None:
        if self.classes < 8:
            raise ValueError(f"classes must be at least 8: got {self.classes!r}")

    def needs_order(self, estimator: str | None) -> bool:
        """Always: classes are counted."""
        return True

    def judge(
        self, sample: Sample, cell: Cell, estimator: str | None, prediction: Any, rival: Any, critical: float
    ) -> Judgement:
        """Turn both χ² into z-scores of equal tail probability."""
        replicates, freedom = sample.moments.count, self.classes - 1
        statistic, rival_statistic = self._chi_squared(sample, prediction), self._chi_squared(sample, rival)
        z, rival_z = (_equivalent_z(value, freedom) for value in (statistic, rival_statistic))
        separates = rival_z > critical
        needed = self._PER_CLASS * self.classes
        # At n draws the rival's χ² is about freedom + n·δ: solve for the n that lifts it to the critical value.
        excess = max(rival_statistic - freedom, 0.0)
        wanted = (critical + POWER_MARGIN) * math.sqrt(2 * freedom) + (critical + POWER_MARGIN) ** 2
        factor = 1.0 if separates else (wanted / excess if excess > 0 else math.inf)
        return Judgement(
            estimate=statistic / freedom,
            standard_error=math.sqrt(2 / freedom),
            prediction=1.0,
            rival=rival_statistic / freedom,
            z_score=z,
            rival_z_score=rival_z,
            replicates=replicates,
            agrees=z <= critical,
            separates=separates,
            calibrated=replicates >= needed or math.isnan(z),
            factor=max(factor, needed / replicates),
            allowance=0.0,
            note=f"χ² over {self.classes} classes, per degree of freedom; rival: its own χ²",
        )

    def _chi_squared(self, sample: Sample, law: Any) -> float:
        ordered = sample.ordered
        assert ordered is not None
        if not math.isfinite(sample.moments.mean):
            return math.nan
        cuts = np.asarray(law.ppf(np.arange(1, self.classes) / self.classes), dtype=np.float64)
        below = [0, *(count_below(ordered, float(cut), inclusive=True) for cut in cuts), ordered.count]
        expected = ordered.count / self.classes
        return float(np.sum(np.square(np.diff(below) - expected)) / expected)


def _deterministic(
    estimate: float,
    prediction: float,
    rival: float,
    replicates: int,
    bound: float,
    agrees: bool,
    separates: bool | None,
    note: str,
) -> Judgement:
    return Judgement(
        estimate=estimate,
        standard_error=0.0,
        prediction=prediction,
        rival=rival,
        z_score=None,
        rival_z_score=None,
        replicates=replicates,
        agrees=agrees,
        separates=separates,
        calibrated=True,
        factor=1.0 if separates else math.inf,
        allowance=bound,
        note=note,
    )


def _equivalent_z(statistic: float, freedom: int) -> float:
    """Return the z whose two-sided normal tail equals the χ² tail; capped where the tail underflows."""
    from scipy.special import chdtrc, ndtri

    if math.isnan(statistic):
        return math.nan
    tail = float(chdtrc(freedom, statistic))
    return float(-ndtri(max(tail, 1e-300) / 2)) if tail < 1.0 else 0.0
