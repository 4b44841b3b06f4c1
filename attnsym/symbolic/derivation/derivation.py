"""Derivations: written by people, judged by the kernel each time somebody asks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from attnsym.symbolic.derivation.steps import Axiom, Chain, Statement, Step
from attnsym.symbolic.trusted.assumptions import Assumption, assumption
from attnsym.symbolic.typeset import page
from attnsym.symbolic.typeset.printing import Convention
from attnsym.symbolic.verdict import Verdict


@dataclass(frozen=True)
class Derivation:
    """
    A derivation: what it says, under which assumptions, and why.

    Attributes
    ----------
    key, title : str
        Its name in `DERIVATIONS`, and a line for people.
    chains : tuple of Chain
        Lemmas, the chains that prove the statement, and second routes.
    source : str
        Paper and section, or "derived here".
    remark : str
        What is easily misread.
    withdrawn : frozenset of Assumption
        Assumptions taken away by `without`.
    """

    key: str
    title: str
    chains: tuple[Chain, ...]
    source: str
    remark: str = ""
    withdrawn: frozenset[Assumption] = field(default=frozenset())

    @property
    def statement(self) -> Statement:
        """What is proved."""
        return Statement(tuple(chain.equation for chain in self.chains if chain.role == "statement"))

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps of all chains, in reading order."""
        return tuple(step for chain in self.chains for step in chain.steps)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions that some step cites and that were not withdrawn, in order of first use."""
        cited = dict.fromkeys(item for step in self.steps for item in step.cites)
        return tuple(item for item in cited if item not in self.withdrawn)

    @property
    def axioms(self) -> tuple[Axiom, ...]:
        """What is trusted without proof."""
        sources = (known.source for step in self.steps for known in step.known)
        return tuple(dict.fromkeys(source for source in sources if isinstance(source, Axiom)))

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
        from attnsym.symbolic.derivation.checking import check

        return check(self)

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
        Return the minimal sets of assumptions, within the listed vocabulary, under which the statement holds.

        The vocabulary is `weakest.VOCABULARY` with what the derivation itself assumes; a set that
        merely strengthens another is left out.

        Raises
        ------
        ValueError
            If the statement is not about moments of one score kᵀq.
        """
        from attnsym.symbolic.derivation.weakest import weakest

        return weakest(self)

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

    def _repr_latex_(self) -> str:
        return self.to_latex()

    def __str__(self) -> str:
        return self.to_unicode()
