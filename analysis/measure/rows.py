"""From the accumulated replicates of a cell to a row of a study."""

from __future__ import annotations

from analysis.measure.cell import Cell
from analysis.measure.estimate.accumulators import Sample
from analysis.measure.estimate.estimators import Estimate, bernoulli_mean, estimate
from analysis.measure.result import StudyRow
from analysis.measure.settings import Settings, statistic_label


def row_of(cell: Cell, sample: Sample, statistic: str | float, settings: Settings) -> StudyRow:
    """Return the row of one statistic of one cell."""
    found = estimate_cell(cell, sample, statistic, settings.confidence_level)
    prediction = predict_cell(cell, statistic)
    error = found.standard_error
    return StudyRow(
        quantity=cell.quantity if isinstance(cell.quantity, str) else cell.name,
        statistic=statistic_label(statistic),
        law=cell.law_name,
        d_k=cell.d_k,
        n_keys=cell.n_keys,
        scale=cell.scale_name,
        alignment=cell.alignment,
        key_correlation=cell.key_correlation,
        score=cell.score_name,
        softcap=cell.softcap,
        is_causal=cell.is_causal,
        estimate=found.estimate,
        standard_error=error,
        interval=found.interval,
        confidence_level=settings.confidence_level,
        replicates=sample.moments.count,
        prediction=prediction,
        z_score=None if prediction is None or error == 0.0 else (found.estimate - prediction) / error,
        sampler=cell.sampler,
        precision=cell.precision,
        seed=settings.seed,
        calibrated=found.calibrated,
    )


def estimate_cell(cell: Cell, sample: Sample, statistic: str | float, level: float) -> Estimate:
    """Return the estimate of one statistic; a share of events gets the interval of a proportion."""
    if cell.is_event and statistic == "mean":
        return bernoulli_mean(sample.moments, level)
    return estimate(sample, statistic, level)


def predict_cell(cell: Cell, statistic: str | float) -> float | None:
    """Return the exact value where one is known."""
    from analysis.predict.of_cell import predict

    return predict(
        cell.quantity,
        statistic,
        d_k=cell.d_k,
        n_keys=cell.n_keys,
        scale=cell.scale,
        law=cell.law,
        alignment=cell.alignment,
        key_correlation=cell.key_correlation,
        score=cell.score,
        softcap=cell.softcap,
        is_causal=cell.is_causal,
    )
