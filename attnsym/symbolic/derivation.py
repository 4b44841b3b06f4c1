"""Steps, chains and derivations: written by people, judged by the kernel each time somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import sympy

from attnsym.symbolic import page
from attnsym.symbolic.assumptions import Assumption, assumption
from attnsym.symbolic.printing import Convention
from attnsym.symbolic.rules import RULES
from attnsym.symbolic.verdict import Verdict

Relation: TypeAlias = Literal["=", "≤"]
Role: TypeAlias = Literal["statement", "lemma", "second route"]


@dataclass(frozen=True)
class Equation:
    """
    Two expressions of the notation and how they compare.

    Attributes
    ----------
    lhs, rhs : expression
        The two sides.
    relation : {"=", "≤"}
        How they compare.
    remainder : expression or None
        For a series: the power from which on terms were dropped, shown as O(remainder).
    """

    lhs: Any
    rhs: Any
    relation: Relation = "="
    remainder: Any = None

    def to_unicode(self, convention: Convention = "columns") -> str:
        """One line of Unicode."""
        return page.equation_box(self, convention).unicode()

    def to_latex(self, convention: Convention = "columns") -> str:
        """LaTeX without delimiters."""
        return page.equation_box(self, convention).latex()

    def to_mathml(self, convention: Convention = "columns") -> str:
        """A MathML ``<math>`` element."""
        return page.equation_mathml(self, convention)

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.to_latex()}$"

    def __str__(self) -> str:
        """Return the Unicode line."""
        return self.to_unicode()


@dataclass(frozen=True)
class Axiom:
    """
    Something trusted without proof.

    Attributes
    ----------
    sentence : str
        What is trusted, and where it comes from.
    equation : Equation
        The equation in which the kernel meets it.
    positive : tuple of symbols
        What the sentence says is at least 0.
    """

    sentence: str
    equation: Equation
    positive: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Known:
    """An axiom, or a chain proved earlier, times a multiplier and summed over indices."""

    source: Axiom | Chain
    multiplier: Any = 1
    over: tuple[Any, ...] = ()

    @property
    def equation(self) -> Equation:
        """The equation that is put in."""
        return self.source.equation


@dataclass(frozen=True)
class Step(Equation):
    """
    One step: two expressions, the rule that names it and the assumptions that it cites.

    Attributes
    ----------
    lhs, rhs : expression
        What the step says is equal (or ordered).
    relation : {"=", "≤"}
        How they compare.
    rule : str
        Name in `attnsym.symbolic.rules.RULES`.
    cites : tuple of Assumption
        The assumptions, and no others, under which the kernel judges the step.
    note : str
        A sentence for the reader.
    known : tuple of Known
        Axioms and earlier results put in.
    slack : expression or None
        For "≤": rhs - lhs, written so that one can see that it is at least 0.
    """

    rule: str = "definition"
    cites: tuple[Assumption, ...] = ()
    note: str = ""
    known: tuple[Known, ...] = ()
    slack: Any = None


@dataclass(frozen=True)
class Chain:
    """Steps that follow one another and together prove one equation."""

    steps: tuple[Step, ...]
    role: Role = "statement"
    heading: str = ""
    remainder: Any = None

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What its steps cite, and what the earlier results cite that it puts in."""
        earlier = (known.source for step in self.steps for known in step.known)
        cited = [item for source in earlier if isinstance(source, Chain) for item in source.assumptions]
        return tuple(dict.fromkeys([*cited, *(item for step in self.steps for item in step.cites)]))

    @property
    def equation(self) -> Equation:
        """What the chain proves: its first left side against its last right side."""
        relation: Relation = "≤" if any(step.relation == "≤" for step in self.steps) else "="
        dropped = [step.remainder for step in self.steps if step.remainder is not None]
        remainder = self.remainder if self.remainder is not None else (dropped[0] if dropped else None)
        return Equation(self.steps[0].lhs, self.steps[-1].rhs, relation, remainder)


@dataclass(frozen=True)
class Statement:
    """The equations that a derivation proves."""

    equations: tuple[Equation, ...]

    def to_unicode(self, convention: Convention = "columns") -> str:
        """The equations, separated by semicolons."""
        return "; ".join(equation.to_unicode(convention) for equation in self.equations)

    def to_latex(self, convention: Convention = "columns") -> str:
        """The equations, separated by wide spaces."""
        return r",\qquad ".join(equation.to_latex(convention) for equation in self.equations)

    def to_mathml(self, convention: Convention = "columns") -> str:
        """One ``<math>`` element for each equation."""
        return "\n".join(equation.to_mathml(convention) for equation in self.equations)

    def __str__(self) -> str:
        return self.to_unicode()


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
        from attnsym.symbolic.checking import check

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

        The vocabulary is `attnsym.symbolic.weakest.VOCABULARY` with what the derivation itself assumes; a set that
        merely strengthens another is left out.

        Raises
        ------
        ValueError
            If the statement is not about moments of one score kᵀq.
        """
        from attnsym.symbolic.weakest import weakest

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


def line(
    rule: str,
    rhs: Any,
    *cites: str,
    note: str = "",
    known: tuple[Known, ...] = (),
    relation: Relation = "=",
    slack: Any = None,
) -> Callable[[Any], Step]:
    """Write one line of a chain: ``= rhs`` by `rule` under the assumptions cited."""
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}: known are {', '.join(RULES)}")
    cited = tuple(assumption(text) for text in cites)
    right = sympy.sympify(rhs, strict=True)
    orders = [item.arguments for item in cited if item.kind == "modulo"]
    remainder = sympy.Symbol(orders[0][0], real=True) ** int(orders[0][1]) if orders else None
    return lambda lhs: Step(lhs, right, relation, remainder, rule, cited, note, known, slack)


def chain(
    start: Any,
    *lines: Callable[[Any], Step],
    role: Role = "statement",
    heading: str = "",
    remainder: Any = None,
) -> Chain:
    """Connect lines into a chain: each starts where the one before ended."""
    steps: list[Step] = []
    current = sympy.sympify(start, strict=True)
    for make in lines:
        steps.append(make(current))
        current = steps[-1].rhs
    return Chain(tuple(steps), role, heading, remainder)
