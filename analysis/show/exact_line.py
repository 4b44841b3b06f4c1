"""The exact line of a series between its points: the prediction evaluated on a dense grid, where its settings allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from analysis.predict.of_cell import predict
from analysis.vocabulary.laws import law_pair
from analysis.vocabulary.mechanism import RowMechanism
from analysis.vocabulary.scale import resolve_scale
from analysis.vocabulary.setting import Setting

PER_OCTAVE = 4
_SLOW = ("max_weight",)  # a third of a second a point: the line joins the exact values at the points


def exact_line(rows: Sequence[Any], axis: str) -> tuple[list[float], list[float]]:
    """
    Return x and y of the exact line through a series.

    Parameters
    ----------
    rows : sequence of StudyRow
        One series: they differ in `axis` only.
    axis : {"d_k", "n_keys", "scale"}

    Returns
    -------
    x, y : lists of float
        A dense grid where the rows' names say all that a prediction needs; else, with user-made laws or scales, the
        rows' own predictions. Empty where no exact value is known.
    """
    known = [row for row in rows if row.prediction is not None]
    own = [place(row, axis) for row in known], [row.prediction for row in known]
    if len(known) < 2 or axis == "scale" or known[0].quantity in _SLOW:
        return own
    least, most = (int(extreme(place(row, axis) for row in known)) for extreme in (min, max))
    count = 1 + round(PER_OCTAVE * np.log2(most / least)) if most > least else 1
    grid = sorted({*np.geomspace(least, most, count).round().astype(int).tolist(), *(int(x) for x in own[0])})
    try:
        y = [_predicted(known[0], **{axis: x}) for x in grid]
    except (ValueError, AttributeError):  # a callable's name is no law and no scale
        return own
    return own if None in y else ([float(x) for x in grid], [float(value) for value in y if value is not None])


def place(row: Any, axis: str) -> float:
    """Return where a row stands on the x axis; a scale by its value at the row's sizes."""
    if axis == "scale":
        return float(resolve_scale(row.scale)(row.d_k, row.n_keys))
    return float(getattr(row, axis))


def _predicted(row: Any, **moved: int) -> float | None:
    sizes = {"d_k": row.d_k, "n_keys": row.n_keys} | moved
    statistic = row.statistic.removeprefix("quantile_")
    mechanism: dict[str, Any] = {item.name: getattr(row, item.name, item.default) for item in fields(RowMechanism)}
    setting = Setting(
        quantity=row.quantity,
        **sizes,
        scale=resolve_scale(row.scale)(sizes["d_k"], sizes["n_keys"]),
        laws=law_pair(row.law),
        alignment=row.alignment,
        key_correlation=row.key_correlation,
        score=row.score,
        softcap=row.softcap,
        is_causal=row.is_causal,
        mechanism=RowMechanism(**mechanism),
    )
    return predict(setting, statistic if statistic == row.statistic else float(statistic))
