"""One published sentence, one record: what it says, what it assumes or leaves out, and what decides it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from analysis.confront.published.finding import Finding
from analysis.confront.published.ground import Claimed, Derived, Ground
from analysis.vocabulary.strict_json import finite_or_none
from attnsym._page import Page

_KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, eq=False, repr=False)
class Sentence(Page):
    """
    A published sentence about attention scores and the grounds on which it is adjudicated.

    Parameters
    ----------
    key : str
        Lower-case words joined by hyphens.
    sentence : str
        What is said, in our words.
    source : str
        Authors, year, title and section; "common telling" for what many say and nobody signs.
    assumptions : tuple of str
        What it assumes, or leaves out.
    grounds : tuple of Numbers, Follows, Derived or Claimed
        What decides it. Each is evaluated anew; no verdict is stored.
    depends_on : str
        What decides between the regimes in which it holds and those in which it does not, in words.
    remark : str
        What to say instead.

    Raises
    ------
    ValueError
        For a malformed key or a sentence without grounds.
    """

    key: str
    sentence: str
    source: str
    assumptions: tuple[str, ...]
    grounds: tuple[Ground, ...]
    depends_on: str = ""
    remark: str = ""

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ValueError(f"a sentence's key must be lower-case words joined by hyphens: got {self.key!r}")
        if not self.grounds:
            raise ValueError(f"sentence {self.key!r} has no grounds: nothing would decide it")

    @property
    def claims(self) -> tuple[str, ...]:
        """The keys of the claims among its grounds."""
        return tuple(ground.claim.key for ground in self.grounds if isinstance(ground, Claimed))

    @property
    def derivations(self) -> tuple[str, ...]:
        """The keys of the derivations among its grounds."""
        return tuple(ground.key for ground in self.grounds if isinstance(ground, Derived))

    def adjudicate(self) -> Adjudication:
        """Hold the sentence against each of its grounds."""
        return Adjudication(self, tuple(ground.find() for ground in self.grounds))

    @property
    def adjudication(self) -> str:
        """
        The verdict, computed anew.

        "true", "true to leading order", "depends on ..." or "false"; "undecided" where a ground decides nothing.
        """
        return self.adjudicate().verdict

    def __str__(self) -> str:
        """Return what is said, and by whom."""
        assumed = f"\n  Assumes or leaves out: {'; '.join(self.assumptions)}." if self.assumptions else ""
        return f"{self.key}: {self.sentence}\n  Source: {self.source}.{assumed}"


@dataclass(frozen=True, repr=False)
class Adjudication(Page):
    """
    What became of a sentence.

    Attributes
    ----------
    sentence : Sentence
    findings : tuple of Finding
        One for each ground.
    """

    sentence: Sentence
    findings: tuple[Finding, ...]

    @property
    def kind(self) -> str:
        """Which of "true", "true to leading order", "depends", "false" and "undecided" it is."""
        found = {finding.holds for finding in self.findings}
        if "undecided" in found:
            return "undecided"
        if found == {"no"}:
            return "false"
        if "no" in found:
            return "depends"
        return "true" if found == {"exactly"} else "true to leading order"

    @property
    def verdict(self) -> str:
        """The kind, with what it depends on."""
        return f"depends on {self.sentence.depends_on or 'the regime'}" if self.kind == "depends" else self.kind

    @property
    def error(self) -> float:
        """How wrong it is at worst, as a share of the true number: inf where no number measures it."""
        return max(finding.error for finding in self.findings)

    @property
    def error_in_words(self) -> str:
        """The error as a table shows it: a share of the true number, or from ten times on how many times too much."""
        if math.isinf(self.error):
            return "—"
        if self.error >= 10.0:
            return f"× {self.error + 1.0:,.0f}" if self.error < 1e4 else "× over 10,000"
        percent = 100.0 * self.error
        if 0.0 < percent < 0.1:
            return "< 0.1 %"
        return "0" if percent == 0.0 else f"{percent:.1f} %" if percent < 10.0 else f"{percent:,.0f} %"

    @property
    def shown(self) -> Finding:
        """The finding that speaks most against the sentence."""
        return max(self.findings, key=lambda finding: (finding.holds == "no", finding.error))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        record = self.sentence
        plain: dict[str, Any] = {
            "key": record.key,
            "sentence": record.sentence,
            "source": record.source,
            "assumptions": list(record.assumptions),
            "adjudication": self.verdict,
            "kind": self.kind,
            "error": self.error,
            "claims": list(record.claims),
            "derivations": list(record.derivations),
            "remark": record.remark,
            "findings": [finding.to_dict() for finding in self.findings],
        }
        return dict(finite_or_none(plain))

    def __str__(self) -> str:
        """Return the page of the sentence."""
        record = self.sentence
        lines = [f"{record.key}: {self.verdict}", f"  {record.sentence}", f"  Source: {record.source}."]
        if record.assumptions:
            lines.append(f"  Assumes or leaves out: {'; '.join(record.assumptions)}.")
        for finding in self.findings:
            where = f" ({finding.regime})" if finding.regime else ""
            lines.append(f"  {_HOLDS[finding.holds]}{where}: {finding.words}")
            if finding.holds == "to leading order":
                shares = ", ".join(f"{error:.2g} at {cell}" for cell, error in finding.errors)
                lines.append(f"    errs by a share of {shares}")
            lines += [f"    {row}" for row in finding.rows]
        if record.remark:
            lines.append(f"  {record.remark}")
        return "\n".join(lines)


_HOLDS = {"exactly": "holds", "to leading order": "holds to leading order", "no": "fails", "undecided": "undecided"}


def by_how_wrong(found: list[Adjudication]) -> list[Adjudication]:
    """Sort by how wrong: false first, then what depends, what holds to leading order, what is true."""
    order = ("undecided", "false", "depends", "true to leading order", "true")
    return sorted(found, key=lambda item: (order.index(item.kind), -item.error, item.sentence.key))
