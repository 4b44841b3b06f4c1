"""Derivations: written by people, judged by the kernel each time somebody asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from attnsym._page import Page
from attnsym.symbolic.derivation import checking, page, weakest
from attnsym.symbolic.derivation.argument import Argument
from attnsym.symbolic.trusted.assumptions import Assumption, assumption
from attnsym.symbolic.typeset.printing import Convention
from attnsym.symbolic.verdict import Verdict


@dataclass(frozen=True, repr=False)
class Derivation(Argument, Page):
    """
    A derivation: what it says, under which assumptions, and why.

    The attributes are those of `Argument`.
    """

    def check(self) -> Verdict:
        """
        Judge every step under the assumptions it cites, by both decision procedures.

        Returns
        -------
        Verdict
            TRUE when every step holds and the chains connect; otherwise `step` names the first that fails, and the
            verdict is FALSE if a finite law satisfying the remaining assumptions contradicts the statement (exact
            enumeration), UNKNOWN if none was found.
        """
        return checking.check(self)

    def without(self, withdrawn: str | Assumption) -> Derivation:
        """
        Return the same chain with one assumption taken away.

        Raises
        ------
        ValueError
            If the derivation does not make this assumption.
        """
        text = str(withdrawn).replace(" ", "")
        matches = [item for item in self.assumptions if text in (item.kind, str(item).replace(" ", ""))]
        if len(matches) != 1:
            listed = ", ".join(map(str, self.assumptions)) or "nothing"
            raise ValueError(f"{self.key} assumes {listed}: cannot withdraw {withdrawn}")
        return replace(self, withdrawn=self.withdrawn | {assumption(matches[0])})

    def weakest_assumptions(self) -> tuple[tuple[Assumption, ...], ...]:
        """
        Return the minimal sets of assumptions, within a vocabulary, under which all that is stated holds.

        The vocabulary is independence, correlation, means, variances and one law, of and between the vectors that the
        statement speaks of, with what the derivation itself assumes; a set that merely strengthens another is left out.

        Raises
        ------
        ValueError
            If the statement is about something else than moments of vectors, or its equations about different ones.
        """
        return weakest.weakest(self)

    def weakest_by_statement(self) -> tuple[weakest.Needs, ...]:
        """
        Return for each equation stated, apart, the minimal sets of assumptions under which it holds.

        Equations that are truncated, conditional or not about moments of vectors alone are left out, and so are those
        that no set of the vocabulary gives. The vocabulary is that of `weakest_assumptions`.
        """
        return weakest.by_statement(self)

    def to_unicode(self, convention: Convention = "columns") -> str:
        """The derivation as a page of text; `convention` is "columns" (kᵀq) or "rows" (qkᵀ)."""
        return page.unicode_page(self, convention)

    def to_latex(self, convention: Convention = "columns") -> str:
        """The derivation as ``aligned`` blocks that amsmath and MathJax render."""
        return page.latex_page(self, convention)

    def to_mathml(self, convention: Convention = "columns") -> str:
        """The derivation as an HTML fragment with MathML, which is valid XML."""
        return page.mathml_page(self, convention)

    def to_record(self) -> dict[str, Any]:
        """The derivation and its verdict as plain strings and lists, for JSON."""
        verdict = self.check()
        return {
            "key": self.key,
            "title": self.title,
            "statement": [str(equation) for equation in self.statement.equations],
            "assumptions": [str(item) for item in self.assumptions],
            "withdrawn": [str(item) for item in sorted(self.withdrawn)],
            "verdict": verdict.truth.value,
            "reason": verdict.reason,
            "step": None if verdict.step is None else verdict.step + 1,
            "witness": None if verdict.witness is None else str(verdict.witness),
            "finite_moments": list(verdict.moments),
            "axioms": list(verdict.axioms),
            "source": self.source,
            "steps": [
                {
                    "equation": str(step),
                    "rule": step.rule,
                    "cites": [str(item) for item in step.cites],
                    "note": step.note,
                }
                for step in self.steps
            ],
        }

    def _repr_html_(self) -> str:
        return self.to_mathml()

    def _repr_latex_(self) -> str:
        return self.to_latex()

    def __str__(self) -> str:
        return self.to_unicode()

    def _line(self) -> str:
        return f"{self.key}: {self.statement}"
