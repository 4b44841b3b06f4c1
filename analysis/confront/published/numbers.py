"""A number of a published sentence against the exact one, case by case, and against draws through the core."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise, product
from typing import TYPE_CHECKING, Literal, TypeAlias

from analysis.confront.cell import Cell, Scalar
from analysis.confront.published.finding import Finding, Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Relation: TypeAlias = Literal["equal", "at most", "at least", "other than", "limit"]
Sampler: TypeAlias = "Callable[[Cell, np.random.Generator, int], NDArray[np.float64]]"

ROUNDING = 1e-9  # of two float64 routes to one number
# Of a measurement that must agree with the exact number: chance alone crosses it once in 5e8 comparisons.
CRITICAL = 6.0
# Scores that a measurement draws, and the longest row that it draws.
_NUMBERS = 400_000
_LONGEST = 20_000

_SAYS = {"equal": "says", "limit": "says"}


@dataclass(frozen=True)
class Numbers:
    """
    A number of the sentence against the exact one, case by case, smallest first.

    Parameters
    ----------
    what : str
        Which number, in words.
    says, finds : callable ``(cell) -> float``
        What the sentence gives, and what is exact.
    cells : tuple of Cell
    relation : {"equal", "at most", "at least", "other than", "limit"}
        How the sentence relates the true number to its own. A limit holds to leading order if its error falls from
        case to case and at least halves.
    within : float
        The share that "about" allows; rounding by default.
    regime : str
        Where these cases stand, in words, if the sentence is true in some places only.
    sample : callable ``(cell, rng, replicates) -> array`` or None
        Draws through the core whose mean must agree with the exact number; None where nothing is random, or where a
        mean of draws would not be trustworthy.
    replicates : int
        Draws at a cell; fewer, 64 at least, where rows are long.
    smallest : tuple of Cell
        Smaller cases, from the smallest up, among which the counterexample of a sentence that fails is sought before
        `cells`. They change no verdict.
    undrawn : str
        Why nothing is drawn, where there is no sampler.
    """

    what: str
    says: Callable[[Cell], float]
    finds: Callable[[Cell], float]
    cells: tuple[Cell, ...]
    relation: Relation = "equal"
    within: float = ROUNDING
    regime: str = ""
    sample: Sampler | None = None
    replicates: int = 4_000
    smallest: tuple[Cell, ...] = ()
    undrawn: str = "nothing in it is random"

    def find(self) -> Finding:
        """Return what the numbers say of the sentence."""
        measurable = self.measurable
        rows = tuple(
            Row(cell, *self._pair(cell), self.measure(cell) if cell in measurable else None) for cell in self.cells
        )
        shares = [self._error(row.says, row.exact) for row in rows]
        errors = tuple((str(row.cell), share) for row, share in zip(rows, shares, strict=True))
        if disagreement := self._disagreement(rows):
            return Finding("undecided", self.regime, "measurement", disagreement, math.inf, errors, rows)
        if max(shares) <= self.within:
            worst = rows[shares.index(max(shares))]
            return Finding("exactly", self.regime, "exact numbers", self._words(worst), 0.0, errors, rows)
        if self.relation == "limit":
            falls = all(later < earlier for earlier, later in pairwise(shares))
            holds = "to leading order" if falls and shares[-1] <= shares[0] / 2 else "no"
            return Finding(holds, self.regime, "exact numbers", self._words(rows[-1]), shares[-1], errors, rows)
        words = self._words(self._counterexample())
        return Finding("no", self.regime, "exact numbers", words, max(shares), errors, rows)

    def measure(self, cell: Cell, seed: int = 0) -> tuple[float, float]:
        """Return the mean of the draws at a cell and its standard error."""
        assert self.sample is not None
        count = max(64, min(self.replicates, _NUMBERS // int(cell.get("n_keys", 1))))
        return _measured(self.sample, self.what, cell, count, seed)

    @property
    def measurable(self) -> tuple[Cell, ...]:
        """The cells that are measured beside the exact number: all that are small enough, where there is a sampler."""
        small = (cell for cell in self.cells if int(cell.get("n_keys", 1)) <= _LONGEST)
        return tuple(small) if self.sample is not None else ()

    def _pair(self, cell: Cell) -> tuple[float, float]:
        return float(self.says(cell)), float(self.finds(cell))

    def _counterexample(self) -> Row:
        """Return the first case that fails, from the smallest up; the caller knows that there is one."""
        cases = (Row(cell, *self._pair(cell)) for cell in chain(self.smallest, self.cells))
        return next(row for row in cases if self._error(row.says, row.exact) > self.within)

    def _disagreement(self, rows: tuple[Row, ...]) -> str:
        for row in rows:
            if row.measured is not None:
                mean, error = row.measured
                if not abs(mean - row.exact) <= CRITICAL * error + ROUNDING * max(1.0, abs(row.exact)):
                    return f"{self.what}: measured {mean:.5g} ± {error:.2g}, not {row.exact:.5g} at {row.cell}"
        return ""

    def _words(self, row: Row) -> str:
        verb = _SAYS.get(self.relation, f"says {self.relation}")
        words = f"{self.what}: it {verb} {row.says:.5g}, exact is {row.exact:.5g}"
        return words + (f" at {row.cell}" if row.cell.settings else "")

    def _error(self, says: float, finds: float) -> float:
        gap = says - finds
        if not math.isfinite(gap):
            return math.inf
        size = max(abs(finds), 1e-300) if abs(finds) > ROUNDING else 1.0
        if self.relation == "other than":  # no number measures how wrong a wrong "not" is
            return 0.0 if abs(gap) / size > self.within else math.inf
        if self.relation == "at most":
            gap = max(-gap, 0.0)
        elif self.relation == "at least":
            gap = max(gap, 0.0)
        return abs(gap) / size


def cells(**settings: Iterable[Scalar]) -> tuple[Cell, ...]:
    """Return the cross product of the settings, the last varying fastest."""
    return tuple(Cell(tuple(zip(settings, values, strict=True))) for values in product(*settings.values()))


@cache
def _measured(sample: Sampler, what: str, cell: Cell, count: int, seed: int) -> tuple[float, float]:
    """Return the mean of the draws and its standard error; the stream is named by what is measured and where."""
    import numpy as np

    from analysis.measure.run.seeds import settings_digest, shard_sequence

    sequence = shard_sequence(seed, settings_digest(what, dict(cell.settings)), 0)
    draws = sample(cell, np.random.Generator(np.random.PCG64(sequence)), count)
    return float(np.mean(draws)), float(np.std(draws, ddof=1) / math.sqrt(len(draws)))
