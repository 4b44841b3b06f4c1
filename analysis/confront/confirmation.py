"""What `confirm` returns: a verdict for each claim, the cells behind it, and how they are shown."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from html import escape
from typing import Any

from analysis.confront.cell import Scalar
from analysis.confront.claim import Claim
from analysis.confront.derived import Support, in_words
from analysis.confront.relation import Judgement
from analysis.vocabulary.frames import dataframe
from analysis.vocabulary.output_file import write_whole
from analysis.vocabulary.strict_json import finite_or_none
from analysis.vocabulary.versions import library_versions
from attnsym._page import Page


class ClaimVerdict(StrEnum):
    """Only CONFIRMED is a pass."""

    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    NOT_SEPARATED = "not separated"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, kw_only=True)
class CellResult(Judgement):
    """
    The outcome of one cell, a `Judgement` with the settings it belongs to.

    Attributes
    ----------
    settings : dict
        The cell's settings.
    """

    settings: dict[str, Scalar]


@dataclass(frozen=True, repr=False)
class ClaimResult(Page):
    """
    The verdict on one claim.

    Attributes
    ----------
    claim : Claim
    verdict : ClaimVerdict
    reason : str
        One sentence.
    support : Support
        How the number is reached besides being measured, and what a derivation leaves out.
    derivation_verdict : str or None
        "TRUE", "FALSE" or "UNKNOWN"; None without a derivation.
    budget_to_separate : float or None
        The budget at which "not separated" would be expected to become a verdict; None if there is none or no need.
    cells : tuple of CellResult
    """

    claim: Claim
    verdict: ClaimVerdict
    reason: str
    support: Support
    derivation_verdict: str | None
    budget_to_separate: float | None
    cells: tuple[CellResult, ...]

    @property
    def shown(self) -> CellResult:
        """The cell that speaks most against the claim: the one for its row of the table."""
        judged = [cell for cell in self.cells if cell.calibrated] or list(self.cells)
        return max(judged, key=lambda cell: (not cell.agrees, cell.separates is not None, abs(cell.z_score or 0.0)))

    @property
    def rival_z_score(self) -> float | None:
        """The largest |z| of the rival over the judged cells; None where no cell has one."""
        scores = [abs(c.rival_z_score) for c in self.cells if c.rival_z_score is not None and c.calibrated]
        return max(scores, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        claim = self.claim
        return {
            "key": claim.key,
            "statement": claim.statement,
            "source": claim.source,
            "assumptions": list(claim.assumptions),
            "is_code_check": claim.is_code_check,
            "route": self.support.route,
            "missing": list(self.support.missing),
            "derivation": claim.derivation,
            "derivation_verdict": self.derivation_verdict,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "rival_in_words": claim.mistake,
            "budget_to_separate": self.budget_to_separate,
            "cells": [{key: finite_or_none(value) for key, value in asdict(cell).items()} for cell in self.cells],
        }

    def __str__(self) -> str:
        """Return the verdict, what was claimed, and the cell that speaks most against it."""
        lines = [f"{self.claim.key}: {self.verdict.value}", f"  {self.claim.statement}", f"  {self.reason}"]
        lines.append(f"  {self.support.route}" + "".join(f"; {text}" for text in self.support.missing))
        lines += [f"  The mistake to be excluded: {self.claim.mistake}."] * bool(self.claim.mistake)
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class Confirmation(Page):
    """
    The result of `confirm`.

    Attributes
    ----------
    claims : tuple of ClaimResult
    budget : float
    seed : int
    family_wise_alpha : float
        Probability that any true claim is rejected by chance.
    critical_z : float
        The |z| beyond which a cell contradicts a prediction or a rival.
    versions : dict of str to str
    """

    claims: tuple[ClaimResult, ...]
    budget: float
    seed: int
    family_wise_alpha: float
    critical_z: float
    versions: dict[str, str] = field(default_factory=library_versions)

    @property
    def passed(self) -> bool:
        """Whether every claim is confirmed."""
        return all(result.verdict is ClaimVerdict.CONFIRMED for result in self.claims)

    def __getitem__(self, key: str) -> ClaimResult:
        """Return the result of the claim with this key."""
        for result in self.claims:
            if result.claim.key == key:
                return result
        raise KeyError(key)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one dictionary per cell, the claim's key and verdict in each."""
        return [
            {"claim": result.claim.key, "verdict": result.verdict.value, **asdict(cell)}
            for result in self.claims
            for cell in result.cells
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, ready for strict JSON; numbers that are not finite become None."""
        return {
            "passed": self.passed,
            "budget": self.budget,
            "seed": self.seed,
            "family_wise_alpha": self.family_wise_alpha,
            "critical_z": self.critical_z,
            "versions": self.versions,
            "claims": [result.to_dict() for result in self.claims],
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` to a file."""
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)
        write_whole(path, text + "\n")

    def __str__(self) -> str:
        """Return the table and what stands below it."""
        rows = [list(_HEADER), *(_row(result) for result in self.claims)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.insert(1, "  ".join("─" * width for width in widths))
        return "\n".join([*lines, "", *self._footer()])

    def _repr_html_(self) -> str:
        header = "".join(f"<th>{escape(name)}</th>" for name in _HEADER)
        body = "".join(
            f'<tr title="{escape(result.claim.statement)}">'
            + "".join(f"<td>{escape(text)}</td>" for text in _row(result))
            + "</tr>"
            for result in self.claims
        )
        footer = "".join(f"<p>{escape(line)}</p>" for line in self._footer())
        return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>{footer}"

    def _footer(self) -> Iterator[str]:
        cells = [cell for result in self.claims for cell in result.cells]
        unjudged = sum(not cell.calibrated for cell in cells)
        confirmed = sum(result.verdict is ClaimVerdict.CONFIRMED for result in self.claims)
        checks = sum(result.claim.is_code_check for result in self.claims)
        of_code = f", {checks} of them checks of code," if checks else ""
        yield f"{confirmed} of {len(self.claims)} claims{of_code} confirmed over {len(cells)} cells."
        yield (
            "A row shows the cell that speaks most against its claim, and the largest z of the rival over all cells. "
            "z is the distance in standard errors from what the claim (the rival) allows; beyond "
            f"{self.critical_z:.2f} it is contradicted. Allowed is how far the expectation may lie from the predicted "
            "number: nothing, what rounding makes, or the remainder of a leading order. The probability that any true "
            "claim is rejected by chance is "
            f"at most {self.family_wise_alpha:g}."
        )
        if unjudged:
            yield f"{unjudged} cells have too few replicates for the tail of their estimator: shown, not judged."
        for result in self.claims:
            for gap in result.support.missing:
                yield f"{result.claim.key}: {result.support.route}: {gap}"
        for result in self.claims:
            if result.verdict is not ClaimVerdict.CONFIRMED:
                yield f"{result.claim.key}: {result.verdict}: {result.reason}"

    def _line(self) -> str:
        return next(self._footer())

    def to_dataframe(self) -> Any:
        """Return `to_records` as a pandas DataFrame, one row a cell, its settings in one column."""
        records = self.to_records()
        return dataframe(records, list(records[0]) if records else ["claim", "verdict"])


_HEADER = ("claim", "route", "predicted", "allowed", "measured", "z", "rival", "rival z", "verdict")


def cell_table(result: ClaimResult) -> str:
    """Return a claim with its text and every cell, one a line."""
    claim = result.claim
    lines = [
        f"{claim.key}: {claim.statement}",
        claim.meaning,
        f"Assumes: {'; '.join(map(in_words, claim.assumptions))}.",
        f"Source: {claim.source}.",
        f"Route: {result.support.route}" + "".join(f"; {gap}" for gap in result.support.missing) + ".",
        claim.mistake and f"Rival: {claim.mistake}.",
    ]
    rows = [["cell", "predicted", "allowed", "measured", "z", "rival", "rival z", "judged"]]
    for cell in result.cells:
        setting = " ".join(f"{name}={value}" for name, value in cell.settings.items())
        judged = ("agrees" if cell.agrees else "contradicts") if cell.calibrated else "no"
        numbers = [_number(cell.prediction), cell.allowed, *_numbers(cell)[1:]]
        rows.append([setting, *numbers, _z(cell, cell.rival_z_score), judged])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    table = ["  " + "  ".join(x.ljust(w) for x, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([line for line in lines if line] + table + [f"  {result.verdict}: {result.reason}"])


def _row(result: ClaimResult) -> list[str]:
    shown = result.shown
    route = result.support.route
    if result.derivation_verdict not in (None, "TRUE"):
        route = f"derivation {result.derivation_verdict}"
    rival_z = result.rival_z_score
    excluded = "exact" if any(cell.separates for cell in result.cells if cell.calibrated) else "—"
    return [
        result.claim.key,
        route,
        _number(shown.prediction),
        shown.allowed,
        *_numbers(shown)[1:],
        f"{rival_z:.1f}" if rival_z is not None and math.isfinite(rival_z) else excluded,
        result.verdict.value,
    ]


def _numbers(cell: CellResult) -> list[str]:
    return [_number(cell.prediction), _measured(cell), _z(cell, cell.z_score), _number(cell.rival)]


def _measured(cell: CellResult) -> str:
    if cell.standard_error == 0.0 or not math.isfinite(cell.standard_error):
        return _number(cell.estimate)
    digits = max(0, 1 - math.floor(math.log10(cell.standard_error)))
    if digits > 6 or abs(cell.estimate) >= 1e6:
        return f"{cell.estimate:z.4g} ± {cell.standard_error:.1g}"
    return f"{cell.estimate:.{digits}f} ± {cell.standard_error:.{digits}f}"


def _number(value: float) -> str:
    return f"{value:z.5g}" if math.isfinite(value) else "—"


def _z(cell: CellResult, z_score: float | None) -> str:
    if z_score is None:
        return "exact"
    return f"{z_score:z.1f}" if math.isfinite(z_score) else "—"
