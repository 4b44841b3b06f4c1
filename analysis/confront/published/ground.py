"""What a published sentence is held against: exact numbers, proofs, and claims that were confirmed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from analysis.confront.cell import Cell, Scalar
from analysis.confront.claim import Claim

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Relation: TypeAlias = Literal["equal", "at most", "at least", "limit"]
_ROUNDING = 1e-9  # of two float64 routes to one number
# Of a measurement that must agree with the exact number: chance alone crosses it once in 5e8 comparisons.
_CRITICAL = 6.0
# Scores that a measurement draws, and the longest row that it draws.
_NUMBERS = 400_000
_LONGEST = 20_000


@dataclass(frozen=True)
class Finding:
    """
    What came of holding a sentence against one ground.

    Attributes
    ----------
    holds : str
        "exactly", "to leading order", "no", or "undecided".
    regime : str
        Where this ground looks; empty where the sentence makes no difference.
    by : str
        The instrument: a claim, a derivation, exact numbers.
    words : str
        One sentence with the case and the numbers: of a sentence that fails, the smallest counterexample.
    error : float
        How wrong the sentence is there, as a share of the true number; 0 where it holds exactly, inf where no number
        measures it.
    errors : tuple of (str, float)
        The share by which it errs at each case, in order.
    """

    holds: str
    regime: str
    by: str
    words: str
    error: float = 0.0
    errors: tuple[tuple[str, float], ...] = ()


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
    relation : {"equal", "at most", "at least", "limit"}
        How the sentence relates the true number to its own. A limit holds to leading order if its error falls from
        case to case and at least halves.
    within : float
        The share that "about" allows; rounding by default.
    regime : str
        Where these cases stand, in words, if the sentence is true in some places only.
    sample : callable ``(cell, rng, replicates) -> array`` or None
        Draws through the core whose mean must agree with the exact number.
    replicates : int
        Draws at a cell; fewer, 64 at least, where rows are long.
    """

    what: str
    says: Callable[[Cell], float]
    finds: Callable[[Cell], float]
    cells: tuple[Cell, ...]
    relation: Relation = "equal"
    within: float = _ROUNDING
    regime: str = ""
    sample: Callable[[Cell, np.random.Generator, int], NDArray[np.float64]] | None = None
    replicates: int = 4_000

    def find(self) -> Finding:
        """Return what the numbers say of the sentence."""
        rows = [(cell, float(self.says(cell)), float(self.finds(cell))) for cell in self.cells]
        errors = tuple((str(cell), self._error(says, finds)) for cell, says, finds in rows)
        if disagreement := self._disagreement():
            return Finding("undecided", self.regime, "measurement", disagreement, math.inf, errors)
        shares = [error for _, error in errors]
        holds = "exactly" if max(shares) <= self.within else "no"
        at = next((place for place, error in enumerate(shares) if error > self.within), int(shares.index(max(shares))))
        if self.relation == "limit" and holds == "no":
            falls = all(later < earlier for earlier, later in pairwise(shares))
            at = len(rows) - 1
            holds = "to leading order" if falls and shares[-1] <= shares[0] / 2 else "no"
        cell, says, finds = rows[at]
        verb = {"equal": "says", "limit": "says", "at most": "says at most", "at least": "says at least"}[self.relation]
        words = f"{self.what}: it {verb} {says:.5g}, exact is {finds:.5g}" + (f" at {cell}" if cell.settings else "")
        return Finding(holds, self.regime, "exact numbers", words, 0.0 if holds == "exactly" else shares[at], errors)

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

    def _disagreement(self) -> str:
        for cell in self.measurable:
            mean, error = self.measure(cell)
            exact = float(self.finds(cell))
            if not abs(mean - exact) <= _CRITICAL * error + _ROUNDING * max(1.0, abs(exact)):
                return f"{self.what}: measured {mean:.5g} ± {error:.2g}, not {exact:.5g} at {cell}"
        return ""

    def _error(self, says: float, finds: float) -> float:
        gap = says - finds
        if self.relation == "at most":
            gap = max(-gap, 0.0)
        elif self.relation == "at least":
            gap = max(gap, 0.0)
        if math.isnan(gap):
            return math.inf
        size = max(abs(finds), 1e-300) if abs(finds) > _ROUNDING else 1.0
        return abs(gap) / size


@dataclass(frozen=True)
class Follows:
    """
    An equality that the sentence says follows, or does not follow, from some assumptions.

    Parameters
    ----------
    lhs, rhs : str
        In the notation of `attnsym.symbolic`.
    assuming : tuple of str
    follows : bool
        What the sentence says: a sentence that calls an assumption necessary says that without it this does not follow.
    regime : str
    """

    lhs: str
    rhs: str
    assuming: tuple[str, ...]
    follows: bool = True
    regime: str = ""

    def find(self) -> Finding:
        """Let the checker decide it."""
        verdict = _proved(self.lhs, self.rhs, self.assuming)
        statement = f"{self.lhs} = {self.rhs}" + (f" under {', '.join(self.assuming)}" if self.assuming else "")
        truth = verdict.truth.value
        if truth == "UNKNOWN":
            return Finding("undecided", self.regime, "checker", f"{statement}: {verdict.reason}", math.inf)
        holds = (truth == "TRUE") is self.follows
        words = f"{statement} is {truth}" + (f". {verdict.witness}" if verdict.witness else "")
        return Finding("exactly" if holds else "no", self.regime, "checker", words, 0.0 if holds else math.inf)


@dataclass(frozen=True)
class Derived:
    """A derivation of the catalogue that is the sentence's own."""

    key: str
    regime: str = ""

    def find(self) -> Finding:
        """Check the derivation anew."""
        truth, statement = _checked(self.key)
        holds = {"TRUE": "exactly", "FALSE": "no"}.get(truth, "undecided")
        words = f"derivation {self.key}: {statement} is {truth}"
        return Finding(holds, self.regime, "derivation", words, 0.0 if holds == "exactly" else math.inf)


@dataclass(frozen=True)
class Claimed:
    """A claim whose statement is the sentence's own; its verdict decides."""

    claim: Claim
    regime: str = ""

    def find(self) -> Finding:
        """Confirm the claim at its own replicates."""
        verdict, reason = _confirmed(self.claim)
        from analysis.confront.relation import ToLeadingOrder

        good = "to leading order" if isinstance(self.claim.relation, ToLeadingOrder) else "exactly"
        holds = {"confirmed": good, "rejected": "no"}.get(verdict, "undecided")
        words = f"claim {self.claim.key}: {self.claim.statement}: {verdict}; {reason}"
        return Finding(holds, self.regime, "claim", words, 0.0 if verdict == "confirmed" else math.inf)


Ground: TypeAlias = Numbers | Follows | Derived | Claimed


def cells(**settings: Iterable[Scalar]) -> tuple[Cell, ...]:
    """Return the cross product of the settings, the last varying fastest."""
    return tuple(Cell(tuple(zip(settings, values, strict=True))) for values in product(*settings.values()))


@cache
def _measured(
    sample: Callable[[Cell, np.random.Generator, int], NDArray[np.float64]],
    what: str,
    cell: Cell,
    count: int,
    seed: int,
) -> tuple[float, float]:
    """Return the mean of the draws and its standard error; the stream is named by what is measured and where."""
    import numpy as np

    from analysis.measure.run.seeds import settings_digest, shard_sequence

    sequence = shard_sequence(seed, settings_digest(what, dict(cell.settings)), 0)
    draws = sample(cell, np.random.Generator(np.random.PCG64(sequence)), count)
    return float(np.mean(draws)), float(np.std(draws, ddof=1) / math.sqrt(len(draws)))


@cache
def _proved(lhs: str, rhs: str, assuming: tuple[str, ...]) -> Any:
    from attnsym.symbolic import prove

    return prove(lhs, rhs, assuming)


@cache
def _checked(key: str) -> tuple[str, str]:
    from attnsym.symbolic import derive

    derivation = derive(key)
    return derivation.check().truth.value, str(derivation.statement)


_VERDICTS: dict[int, tuple[Claim, tuple[str, str]]] = {}


def _confirmed(claim: Claim) -> tuple[str, str]:
    """Return the verdict on a claim and its reason, measured once a process."""
    if id(claim) not in _VERDICTS:
        from analysis.confront.judge import confirm

        result = confirm([claim], workers=1).claims[0]
        _VERDICTS[id(claim)] = (claim, (result.verdict.value, result.reason))
    return _VERDICTS[id(claim)][1]
