"""The parts of a derivation: equations, steps, chains of steps, and what a chain may put in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sympy import Symbol

from attnsym.symbolic.trusted.assumptions import Assumption
from attnsym.symbolic.typeset.boxes import Box, math_element
from attnsym.symbolic.typeset.equations import equation_box
from attnsym.symbolic.typeset.printing import Convention

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
        return self._box(convention).unicode()

    def to_latex(self, convention: Convention = "columns") -> str:
        """LaTeX without delimiters."""
        return self._box(convention).latex()

    def to_mathml(self, convention: Convention = "columns") -> str:
        """A MathML ``<math>`` element."""
        return math_element(self._box(convention))

    def _box(self, convention: Convention) -> Box:
        return equation_box(self.lhs, self.relation, self.rhs, self.remainder, convention)

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
        Name in `attnsym.symbolic.derivation.rules.RULES`.
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
        orders = sorted(
            (int(item.arguments[1]), item.arguments[0]) for item in self.assumptions if item.kind == "modulo"
        )
        dropped = Symbol(orders[0][1], real=True) ** orders[0][0] if orders else None
        remainder = self.remainder if self.remainder is not None else dropped
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
