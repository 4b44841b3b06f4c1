"""Lines through the steps of a run: slope, onset and crossing, each with its standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FARTHEST = 10.0
SIGNIFICANT = 3.0


@dataclass(frozen=True)
class Line:
    """
    A least-squares line y = level + slope·(step − centre).

    Attributes
    ----------
    slope, slope_standard_error : per step; the error from the scatter about the line, NaN for fewer than three points.
    level, level_standard_error : at the mean of the steps, where the two errors are uncorrelated.
    centre : that mean.
    degrees : points less two.
    """

    slope: float
    slope_standard_error: float
    level: float
    level_standard_error: float
    centre: float
    degrees: int


def line(steps: Sequence[float], values: Sequence[float]) -> Line:
    """Return the line through the points whose value is finite, NaN for fewer than two."""
    x, y = _finite(steps, values)
    if len(x) < 2:
        return Line(math.nan, math.nan, math.nan, math.nan, math.nan, degrees=0)
    centred, degrees = x - x.mean(), len(x) - 2
    square = float(centred @ centred)
    slope = float(centred @ y / square)
    rest = y - y.mean() - slope * centred
    scatter = math.sqrt(float(rest @ rest) / degrees) if degrees else math.nan
    errors = scatter / math.sqrt(square), scatter / math.sqrt(len(x))
    return Line(slope, errors[0], float(y.mean()), errors[1], float(x.mean()), degrees)


def onset(steps: Sequence[int], values: Sequence[float]) -> int:
    """
    Return the step from which values leave their level, by least squares.

    Of y = a + b·max(0, step − c) with c one of the steps but the last two, the c with the least sum of squares.
    """
    x, y = _finite(steps, values)
    if len(x) < 4:
        return int(x[0]) if len(x) else int(steps[0])
    y = y - y.mean()
    explained = []
    for knot in x[:-2]:
        bend = np.maximum(0.0, x - knot)
        bend -= bend.mean()
        explained.append(float(bend @ y) ** 2 / float(bend @ bend))
    return int(x[int(np.argmax(explained))])


def crossing(fitted: Line, target: float, steps: Sequence[int]) -> tuple[float, float] | None:
    """
    Return the step after the last at which the line meets the target, and its standard error (delta method).

    None without three points, for a slope within three standard errors of 0 or away from the target, and for a
    crossing farther off than ten times the run so far.
    """
    if not abs(fitted.slope) > SIGNIFICANT * fitted.slope_standard_error or not math.isfinite(target):
        return None
    ahead = (target - fitted.level) / fitted.slope
    step = fitted.centre + ahead
    if not steps[-1] < step < steps[-1] + FARTHEST * (steps[-1] - steps[0]):
        return None
    error = math.hypot(fitted.level_standard_error, fitted.slope_standard_error * ahead) / abs(fitted.slope)
    return step, error


def _finite(steps: Sequence[float], values: Sequence[float]) -> tuple[Array, Array]:
    x, y = np.array(steps, np.float64), np.array(values, np.float64)
    keep = np.isfinite(y)
    return x[keep], y[keep]
