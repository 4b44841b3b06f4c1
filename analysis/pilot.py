"""How many replicates a relative standard error takes, from a pilot that is then thrown away."""

from __future__ import annotations

import math

from analysis.accumulators import Moments, OrderStatistics, Sample
from analysis.cells import Cell
from analysis.samplers import draw
from analysis.seeds import settings_digest, shard_sequence
from analysis.settings import Settings, is_quantile, statistic_label
from analysis.study_rows import estimate_cell, predict_cell

_FIRST = 4096
_LARGEST = 1 << 18
_ELEMENTS = 1 << 25  # of random numbers in the first pilot: a fraction of a second
_CLEAR_OF_ZERO = 5.0  # standard errors


def replicates_for(cell: Cell, settings: Settings) -> int:
    """
    Return the number of replicates that a cell takes.

    Without `target_rse` it is `replicates`. With it, a pilot on a stream of its own estimates the relative standard
    error of every statistic; the study's replicates are independent of the pilot, so that their estimate keeps its
    unbiasedness. (To go on until the error looks small stops early just when the values happen to look alike.)

    Raises
    ------
    ValueError
        Where the estimand is 0, exactly or as far as the pilot can tell: no relative error is then ever reached.
    """
    if settings.target_rse is None:
        return settings.replicates
    needed = max(_needed(cell, statistic, settings) for statistic in settings.statistics)
    least = 1000 if any(is_quantile(statistic) for statistic in settings.statistics) else 2
    return max(least, needed if settings.max_replicates is None else min(needed, settings.max_replicates))


def _needed(cell: Cell, statistic: str | float, settings: Settings) -> int:
    assert settings.target_rse is not None
    label = f"the {statistic_label(statistic)} of {cell.name!r} at {cell.where}"
    if predict_cell(cell, statistic) == 0.0:
        raise ValueError(
            f"target_rse: {label} is exactly 0, so no relative error can be reached: give replicates instead"
        )
    size = max(256, min(_FIRST, _ELEMENTS // cell.elements))
    while True:
        found = estimate_cell(cell, _pilot(cell, size, settings), statistic, settings.confidence_level)
        if found.standard_error == 0.0 or abs(found.estimate) > _CLEAR_OF_ZERO * found.standard_error:
            break
        if size >= _LARGEST:
            raise ValueError(f"target_rse: {label} cannot be told from 0 by {size} replicates: give replicates instead")
        size *= 8
    if found.estimate == 0.0:
        raise ValueError(f"target_rse: {label} is 0 in all of {size} replicates: give replicates instead")
    relative = found.standard_error / abs(found.estimate)
    return max(2, math.ceil(size * (relative / settings.target_rse) ** 2))


def _pilot(cell: Cell, size: int, settings: Settings) -> Sample:
    digest = settings_digest(cell.name, {"pilot_of": cell.digest})
    values = draw(cell, shard_sequence(settings.seed, digest, 0), size)
    return Sample(Moments.of(values), OrderStatistics.of(values) if settings.needs_order else None)
