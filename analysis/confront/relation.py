"""How a prediction and a measurement confront each other."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from analysis.confront.cell import Cell
from analysis.confront.evidence import EPS, ESTIMATORS, Evidence, evidence_from
from analysis.measure.estimate.accumulators import Sample

# A rival is expected to be rejected with probability .999 at the budget that "not separated" names.
POWER_MARGIN = 3.0


@dataclass(frozen=True)
class Judgement:
    """
    The outcome of one cell.

    Attributes
    ----------
    estimate, standard_error, prediction, rival : float
        `standard_error` is 0 where nothing is random; for `Fits` the estimate is χ² per degree of freedom.
    z_score, rival_z_score : float or None
        Distance in standard errors from what the prediction (the rival) allows; None for a deterministic verdict.
    replicates : int
    allowance : float
        How far from the prediction the claim lets the expectation (or a draw) lie.
    agrees : bool
        The draws do not contradict the prediction at the critical z, or by more than rounding.
    separates : bool or None
        They contradict the rival; None where rival and prediction coincide.
    calibrated : bool
        The tail of the test is calibrated at this number of replicates; otherwise the cell is shown but not judged.
    factor : float
        How many times these replicates would make the cell separate the rival; 1 if it does, inf if none would.
    note : str
    """

    estimate: float
    standard_error: float
    prediction: float
    rival: float
    z_score: float | None
    rival_z_score: float | None
    replicates: int
    agrees: bool
    separates: bool | None
    calibrated: bool
    factor: float
    allowance: float
    note: str = ""

    @property
    def allowed(self) -> str:
        """The allowance in words: "exactly", "rounding", or ± a number and its share of the prediction."""
        if self.allowance == 0.0:
            return "exactly"
        if self.allowance <= 1e-6 * max(1.0, abs(self.prediction)):
            return "rounding"
        return f"±{self.allowance:.2g}" + (f" ({self.allowance / abs(self.prediction):.2g})" if self.prediction else "")


class Relation(ABC):
    """How a prediction and the draws of one cell confront each other."""

    stochastic: ClassVar[bool]

    def check(self, estimator: str | None, cell: Cell) -> None:  # noqa: B027 - most relations take any cell
        """Raise ValueError if the relation cannot judge such a cell."""

    def needs_order(self, estimator: str | None) -> bool:
        """Whether the order statistics of the draws must be kept beside their moments."""
        return False

    @abstractmethod
    def judge(
        self, sample: Sample, cell: Cell, estimator: str | None, prediction: Any, rival: Any, critical: float
    ) -> Judgement:
        """Return the outcome of a cell from its accumulated draws, at the critical z of the family."""


class _WithinStandardErrors(Relation):
    """Relations that compare one estimate with one number."""

    stochastic = True

    @abstractmethod
    def allowance(self, value: float, cell: Cell) -> float:
        """Return how far from `value` the expectation may lie."""

    def check(self, estimator: str | None, cell: Cell) -> None:
        """Raise ValueError for an unknown estimator."""
        if estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}: got {estimator!r} at {cell}")

    def needs_order(self, estimator: str | None) -> bool:
        """Only for a median."""
        return estimator == "median"

    def judge(
        self, sample: Sample, cell: Cell, estimator: str | None, prediction: Any, rival: Any, critical: float
    ) -> Judgement:
        """Judge by z, or as an identity where all draws agree to rounding."""
        assert estimator is not None
        evidence = evidence_from(sample, estimator)
        if evidence.is_constant(operations(cell)):
            return self._judge_constant(evidence, cell, prediction, rival)
        slack, rival_slack = self.allowance(prediction, cell), self.allowance(rival, cell)
        z = evidence.distance(prediction - slack, prediction + slack)
        rival_z = evidence.distance(rival - rival_slack, rival + rival_slack)
        needed = evidence.replicates_for_tail(critical)
        separates = None if rival == prediction else abs(rival_z) > critical
        distance = abs(rival - prediction) - rival_slack - slack
        return Judgement(
            estimate=evidence.value,
            standard_error=evidence.standard_error,
            prediction=prediction,
            rival=rival,
            z_score=z,
            rival_z_score=rival_z,
            replicates=sample.moments.count,
            agrees=abs(z) <= critical,
            separates=separates,
            calibrated=sample.moments.count >= needed or math.isnan(z),  # draws that are no numbers agree with nothing
            factor=_factor(evidence, distance, needed, critical, separates),
            allowance=slack,
            note=self.remark(evidence, cell, prediction),
        )

    def remark(self, evidence: Evidence, cell: Cell, prediction: float) -> str:
        """Return what else the cell shows."""
        return ""

    def _judge_constant(self, evidence: Evidence, cell: Cell, prediction: float, rival: float) -> Judgement:
        bound = 8 * operations(cell) * EPS * max(1.0, abs(prediction), abs(evidence.moments.mean))
        separates = None
        if rival != prediction:
            separates = abs(evidence.value - rival) > bound + self.allowance(rival, cell)
        return Judgement(
            estimate=evidence.value,
            standard_error=0.0,
            prediction=prediction,
            rival=rival,
            z_score=None,
            rival_z_score=None,
            replicates=evidence.moments.count,
            agrees=abs(evidence.value - prediction) <= bound + self.allowance(prediction, cell),
            separates=separates,
            calibrated=True,
            factor=1.0 if separates else math.inf,
            allowance=bound + self.allowance(prediction, cell),
            note="all draws equal: judged as an identity",
        )


@dataclass(frozen=True)
class Exactly(_WithinStandardErrors):
    """The expectation equals the prediction: judged by a z-score, or as an identity where the draws do not vary."""

    def allowance(self, value: float, cell: Cell) -> float:
        """Nothing."""
        return 0.0


@dataclass(frozen=True)
class ToLeadingOrder(_WithinStandardErrors):
    """
    The expectation is prediction·(1 + r) with |r| ≤ constant·x^(-order).

    A z-test would reject a true asymptotic as soon as there are enough replicates. The rate and its constant are part
    of the claim, since a rate without a constant cannot be contradicted by finitely many cells.

    Parameters
    ----------
    variable : str or callable ``(cell) -> float``
        x: a setting of the cell, or a function of it.
    order : float
        Positive.
    constant : float or callable ``(cell) -> float``
        Positive.
    """

    variable: str | Callable[[Cell], float]
    order: float
    constant: float | Callable[[Cell], float]

    def __post_init__(self) -> None:
        for name in ("order", "constant"):
            value = getattr(self, name)
            if not callable(value) and not value > 0:
                raise ValueError(f"{name} must be positive: got {value!r}")

    def allowance(self, value: float, cell: Cell) -> float:
        """Return constant·x^(-order)·|value|."""
        constant = self.constant(cell) if callable(self.constant) else self.constant
        return float(constant * self._rate(cell) * abs(value))

    def remark(self, evidence: Evidence, cell: Cell, prediction: float) -> str:
        """Return the residual's coefficient, which is the same in every cell if the rate is right."""
        unit = self._rate(cell) * prediction
        if unit == 0.0:
            return ""
        coefficient, error = (evidence.value - prediction) / unit, abs(evidence.standard_error / unit)
        return f"r = {coefficient:+.2g} ± {error:.1g} times x^(-{self.order:g})"

    def _rate(self, cell: Cell) -> float:
        x = self.variable(cell) if callable(self.variable) else getattr(cell, self.variable)
        return float(float(x) ** -self.order)


def operations(cell: Cell) -> int:
    """Return the length of the longest sum behind a draw: the larger of the cell's d_k and n_keys."""
    return max(int(cell.get("d_k", 1)), int(cell.get("n_keys", 1)), 1)


def _factor(evidence: Evidence, distance: float, needed: float, critical: float, separates: bool | None) -> float:
    if separates is None or distance <= 0:
        return math.inf
    tail = needed / evidence.moments.count
    if separates:
        return max(tail, 1.0)
    return max(tail, ((critical + POWER_MARGIN) * evidence.standard_error / distance) ** 2)
