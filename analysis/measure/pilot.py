"""How many replicates a relative standard error takes, from a pilot that is then thrown away."""

from __future__ import annotations

import math
from contextlib import suppress

from analysis.measure.draw.cell import StudyCell
from analysis.measure.draw.samplers import draw
from analysis.measure.estimate.accumulators import Moments, OrderStatistics, Sample
from analysis.measure.rows import estimate_cell, predicted
from analysis.measure.run.seeds import settings_digest, shard_sequence
from analysis.measure.settings import Settings, statistic_label
from analysis.vocabulary.numbers import LARGEST_WHOLE

_FIRST = 4096
_LARGEST = 1 << 18
_ELEMENTS = 1 << 25  # of random numbers in the first pilot: a fraction of a second
_LARGEST_ELEMENTS = 1 << 30  # in the last: some ten seconds
_CLEAR_OF_ZERO = 5.0  # standard errors


def check_targets(settings: Settings) -> None:
    """Refuse `target_rse`, before any pilot, if an expectation of the grid is exactly 0."""
    if settings.target_rse is None:
        return
    for cell in settings.cells:
        for statistic in settings.statistics:
            if predicted(cell, statistic) == 0.0:
                raise ValueError(
                    f"target_rse: {_label(cell, statistic)} is exactly 0, where no relative error can be reached: "
                    "give replicates"
                )


def replicates_for(cell: StudyCell, settings: Settings) -> int:
    """
    Return the number of replicates that a cell takes.

    Without `target_rse` it is `replicates`. With it, a pilot on a stream of its own estimates the relative standard
    error of every statistic; the study's replicates are independent of the pilot, so that their estimate keeps its
    unbiasedness. (To go on until the error looks small stops early just when the values happen to look alike.)

    Raises
    ------
    ValueError
        Where the estimand is 0 as far as the pilot can tell: no relative error is then ever reached.
    """
    if settings.target_rse is None:
        return settings.replicates
    least, most = 1000 if settings.needs_order else 2, settings.max_replicates
    needed = max(least, *(_needed(cell, statistic, settings) for statistic in settings.statistics))
    if most is not None and needed > most:
        return most
    if needed > LARGEST_WHOLE:
        raise ValueError(f"target_rse asks for {needed:.1e} replicates at {cell.where}: ask for less")
    return math.ceil(needed)


def first_pilot(cell: StudyCell) -> int:
    """Return the replicates of the first pilot of a cell."""
    return max(256, min(_FIRST, _ELEMENTS // cell.elements))


def _needed(cell: StudyCell, statistic: str | float, settings: Settings) -> float:
    assert settings.target_rse is not None
    size = first_pilot(cell)
    largest = max(size, min(_LARGEST, _LARGEST_ELEMENTS // cell.elements))
    while True:
        found = estimate_cell(cell, _pilot(cell, size, settings), statistic, settings.confidence_level)
        if abs(found.estimate) > _CLEAR_OF_ZERO * found.standard_error:
            relative = found.standard_error / abs(found.estimate)
            with suppress(OverflowError):
                return size * (relative / settings.target_rse) ** 2
            return math.inf
        if size == largest:
            raise ValueError(
                f"target_rse: {_label(cell, statistic)} cannot be told from 0 by {size} replicates: give replicates"
            )
        size = min(8 * size, largest)


def _label(cell: StudyCell, statistic: str | float) -> str:
    return f"the {statistic_label(statistic)} of {cell.name!r} at {cell.where}"


def _pilot(cell: StudyCell, size: int, settings: Settings) -> Sample:
    digest = settings_digest(cell.name, {"pilot_of": cell.digest})
    values = draw(cell, shard_sequence(settings.seed, digest, 0), size)
    return Sample(Moments.of(values), OrderStatistics.of(values) if settings.needs_order else None)
