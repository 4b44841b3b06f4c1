"""What a published sentence is held against: exact numbers, proofs, and claims that were confirmed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from analysis.confront.claim import Claim
from analysis.confront.published.finding import Finding
from analysis.confront.published.numbers import Numbers
from analysis.confront.published.numbers import cells as cells


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
