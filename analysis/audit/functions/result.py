"""The result of an audit of a function: findings, recovered facts, JSON and HTML."""

from __future__ import annotations

import dataclasses
import html
import json
import os
from dataclasses import dataclass
from typing import Any

from analysis.audit.functions.findings import SEVERITIES, Finding
from analysis.audit.functions.scale_law import ScaleLaw
from analysis.audit.functions.session import Session
from analysis.vocabulary.output_file import write_whole
from analysis.vocabulary.scale import Scale
from analysis.vocabulary.strict_json import finite_or_none
from analysis.vocabulary.text import printable
from attnsym._page import Page


@dataclass(frozen=True, repr=False)
class CallableAudit(Page):
    """
    What `audit_callable` found.

    Attributes
    ----------
    name, framework, dtype, layout : the function, and how it was called.
    findings : tuple of Finding
        Errors first, then warnings, then notes (variants and limits, no faults).
    scale : ScaleLaw or None
        The recovered scale and its law; None where it could not be read.
    intended_scale : str or None
    softcap : float or None
        The recovered cap.
    visibility : str
        What is visible without a mask: "all keys", "causal top-left", "window (2, 0)", ….
    causal : str or None
        What the causal flag makes visible; None without such an argument.
    mask : str or None
        The kinds of mask that act as documented; None without such an argument.
    grouped : tuple of int or None
        Key head that each of four query heads reads when there are two; None where that is refused.
    skipped : tuple of (probe, reason)
    """

    name: str
    framework: str
    dtype: str
    layout: str
    findings: tuple[Finding, ...]
    scale: ScaleLaw | None
    intended_scale: str | None
    softcap: float | None
    visibility: str
    causal: str | None
    mask: str | None
    grouped: tuple[int, ...] | None
    skipped: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, s: Session, name: str, intended: Scale | None) -> CallableAudit:
        """Collect the facts of a finished session."""
        get = s.facts.get
        return cls(
            name, s.caller.framework, s.caller.dtype, s.caller.layout,
            tuple(sorted(s.findings, key=lambda item: SEVERITIES.index(item.severity))), get("law"),
            None if intended is None else intended.label, get("softcap"), get("visibility", "not read"), get("causal"),
            get("mask"), get("grouped"), tuple(s.skipped.items()),
        )  # fmt: skip

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The errors and warnings."""
        return tuple(item for item in self.findings if item.severity != "note")

    def to_records(self) -> list[dict[str, Any]]:
        """Return the findings as dictionaries."""
        return [dataclasses.asdict(item) for item in self.findings]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready dictionaries."""
        plain = dataclasses.asdict(self)
        plain["skipped"] = [list(pair) for pair in self.skipped]
        return {name: finite_or_none(value) for name, value in plain.items()}

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` to a file."""
        write_whole(path, json.dumps(self.to_dict(), indent=2, allow_nan=False))

    def lines(self) -> tuple[str, ...]:
        """Return the page: what the function is, then each finding with evidence, line and fix."""
        scale = "not read" if self.scale is None else f"{self.scale.name} ({self.scale.value:.6g} here)"
        facts = [f"scale {scale}", f"visible: {self.visibility}"]
        facts += [f"soft-cap {self.softcap:.6g}"] if self.softcap is not None else []
        facts += [f"causal flag: {self.causal}"] if self.causal else []
        facts += [f"mask: {self.mask}"] if self.mask else []
        head = f"{printable(self.name)} ({self.framework} {self.dtype}, {self.layout}): {'; '.join(facts)}."
        counts = ", ".join(_counted(sum(f.severity == s for f in self.findings), s) for s in SEVERITIES)
        body = [
            f"[{f.severity}] {f.title} {f.evidence}" + ("" if f.severity == "note" else f"{_where(f)} Fix: {f.fix}")
            for f in self.findings
        ]
        return (
            head,
            counts,
            *body,
            *(f"not probed: {printable(what)} ({printable(why)})" for what, why in self.skipped),
        )

    def __str__(self) -> str:
        """Return the page."""
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        names = ("severity", "title", "evidence", "likely_line", "fix")
        head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in names)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(getattr(f, name))}</td>" for name in names) + "</tr>"
            for f in self.findings
        )
        return (
            f"<p>{html.escape(self.lines()[0])}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _where(item: Finding) -> str:
    if item.likely_line:
        return f" Line: {item.likely_line}."
    return f" Typical: {item.typical}." if item.typical else ""
