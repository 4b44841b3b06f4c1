"""Rows of a watched run as metrics of a tracker: functions for `on_row`, from the tracker's own object."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from analysis.audit.live.history import WatchRow

COLUMNS = ("largest_score", "largest_signed_score", "within_row_variance", "entropy_ratio", "predicted_entropy_ratio")
_NUMBERS = {field.name for field in dataclasses.fields(WatchRow) if str(field.type) == "float"}

OnRow = Callable[[WatchRow], None]


def tensorboard_rows(writer: Any, *, columns: Sequence[str] = COLUMNS) -> OnRow:
    """
    Return a function for `on_row` that writes scalars to a TensorBoard `SummaryWriter`.

    Parameters
    ----------
    writer : the object with ``add_scalar(tag, value, step)``, of torch.utils.tensorboard or tensorboardX.
    columns : of `WatchRow`, floating ones; the tag of each is ``attention/MODULE/HEAD/COLUMN``.

    Raises
    ------
    ValueError
        For a column that `WatchRow` has not, or that is no floating number.
    """
    names = _columns(columns)

    def write(row: WatchRow) -> None:
        for tag, value in _metrics(row, names).items():
            writer.add_scalar(tag, value, row.step)

    return write


def wandb_rows(run: Any, *, columns: Sequence[str] = COLUMNS) -> OnRow:
    """
    Return a function for `on_row` that adds metrics to a run of Weights & Biases.

    They are joined to what the run logs next (``commit=False``), so that the run's own step is left alone; charts of
    ``attention/…`` are drawn over ``attention/step``, the pass that was watched. Parameters and errors are those of
    `tensorboard_rows`, with the object that ``wandb.init`` returns.
    """
    names = _columns(columns)
    run.define_metric("attention/step", hidden=True)
    run.define_metric("attention/*", step_metric="attention/step")

    def write(row: WatchRow) -> None:
        run.log({"attention/step": row.step, **_metrics(row, names)}, commit=False)

    return write


def mlflow_rows(mlflow: Any, *, columns: Sequence[str] = COLUMNS) -> OnRow:
    """
    Return a function for `on_row` that logs metrics to MLflow's active run.

    Parameters and errors are those of `tensorboard_rows`, with the module ``mlflow`` or anything that has its
    ``log_metrics(metrics, step=…)``. Characters that MLflow refuses in a name become ``_``.
    """
    names = _columns(columns)

    def write(row: WatchRow) -> None:
        metrics = {re.sub(r"[^\w\-. /]", "_", tag): value for tag, value in _metrics(row, names).items()}
        if metrics:
            mlflow.log_metrics(metrics, step=row.step)

    return write


def _columns(columns: Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    unknown = [name for name in names if name not in _NUMBERS]
    if unknown or not names:
        raise ValueError(f"columns must be floating columns of WatchRow: got {unknown[0] if unknown else 'none'!r}")
    return names


def _metrics(row: WatchRow, names: Sequence[str]) -> dict[str, float]:
    """Return the finite ones under their tags: a chart has no place for what was not seen."""
    place = f"attention/{row.module}/" + (f"call {row.call}/" if row.call else "") + str(row.head)
    values = {f"{place}/{name}": float(getattr(row, name)) for name in names}
    return {tag: value for tag, value in values.items() if math.isfinite(value)}
