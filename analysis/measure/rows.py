"""From the accumulated replicates of a cell to a row of a study."""

from __future__ import annotations

import math

from analysis.measure.draw.cell import StudyCell
from analysis.measure.estimate.accumulators import Sample
from analysis.measure.estimate.estimators import Estimate, bernoulli_mean, estimate
from analysis.measure.result import StudyRow
from analysis.measure.settings import Settings, statistic_label
from analysis.predict.of_cell import predict


def row_of(cell: StudyCell, sample: Sample, statistic: str | float, settings: Settings) -> StudyRow:
    """Return the row of one statistic of one cell."""
    found = estimate_cell(cell, sample, statistic, settings.confidence_level)
    prediction, error = predicted(cell, statistic), found.standard_error
    quantity = cell.quantity if isinstance(cell.quantity, str) else cell.name
    return StudyRow(
        **{**cell.settings, "quantity": quantity},
        **vars(found),
        statistic=statistic_label(statistic),
        confidence_level=settings.confidence_level,
        replicates=sample.moments.count,
        prediction=prediction,
        z_score=None if prediction is None or error == 0.0 else (found.estimate - prediction) / error,
        seed=settings.seed,
    )


def predicted(cell: StudyCell, statistic: str | float) -> float | None:
    """Return the exact value where one is known, and is a number that a float holds."""
    try:
        value = predict(cell, statistic)
    except ArithmeticError:
        return None
    return value if value is not None and math.isfinite(value) else None


def estimate_cell(cell: StudyCell, sample: Sample, statistic: str | float, level: float) -> Estimate:
    """Return the estimate of one statistic; a share of events gets the interval of a proportion."""
    if cell.is_event and statistic == "mean":
        return bernoulli_mean(sample.moments, level)
    return estimate(sample, statistic, level)
