"""The parts of a derivation: equations, steps, chains of steps, and what a chain may put in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sympy import IndexedBase, Symbol

from attnsym._page import one_line
from attnsym.symbolic.trusted.assumptions import Assumption
from attnsym.symbolic.typeset.boxes import Box, math_element
from attnsym.symbolic.typeset.equations import conditional, equation_box
from attnsym.symbolic.typeset.printing import Convention

Relation: TypeAlias = Literal["=", "≤"]
Role: TypeAlias = Literal["statement", "lemma", "second route"]


@dataclass(frozen=True, repr=False)
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
    supposing : tuple of Equation
        What it is conditional on: "if … then …".
    """

    lhs: Any
    rhs: Any
    relation: Relation = "="
    remainder: Any = None
    supposing: tuple[Equation, ...] = ()

    @property
    def symbols(self) -> frozenset[Any]:
        """The symbols and vectors that both sides speak of."""
        return frozenset().union(*(side.atoms(IndexedBase, Symbol) for side in (self.lhs, self.rhs)))

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
        own = equation_box(self.lhs, self.relation, self.rhs, self.remainder, convention)
        return conditional([equation._box(convention) for equation in self.supposing], own)

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.to_latex()}$"

    def __str__(self) -> str:
        """Return the Unicode line."""
        return self.to_unicode()

    def __repr__(self) -> str:
        """Return it in one line."""
        return one_line(type(self).__name__, str(self))


@dataclass(frozen=True)
class Axiom:
    """
    Something put in without proof: trusted, or supposed for the sake of "if … then …".

    Attributes
    ----------
    sentence : str
        What is trusted, and where it comes from; or what is supposed.
    equation : Equation
        The equation in which the kernel meets it.
    positive : tuple of symbols
        What the sentence says is at least 0.
    under : tuple of Assumption
        The assumptions under which the sentence is right; whatever rests on it rests on them.
    supposed : bool
        Whether nothing is claimed of it: every equation that rests on it is printed as conditional on it.
    """

    sentence: str
    equation: Equation
    positive: tuple[Any, ...] = ()
    under: tuple[Assumption, ...] = ()
    supposed: bool = False


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

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What the equation that is put in rests on."""
        return self.source.assumptions if isinstance(self.source, Chain) else self.source.under

    @property
    def supposing(self) -> tuple[Equation, ...]:
        """What the equation that is put in is conditional on."""
        if isinstance(self.source, Chain):
            return self.source.supposing
        return (self.source.equation,) if self.source.supposed else ()


@dataclass(frozen=True, repr=False)
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

    @property
    def rests_on(self) -> tuple[Assumption, ...]:
        """What the axioms and earlier results rest on that it puts in."""
        return tuple(item for known in self.known for item in known.assumptions)


@dataclass(frozen=True, repr=False)
class Chain:
    """Steps that follow one another and together prove one equation."""

    steps: tuple[Step, ...]
    role: Role = "statement"
    heading: str = ""
    remainder: Any = None

    def __str__(self) -> str:
        """Return what it proves, and each step with its rule."""
        steps = (f"  {step}   {step.rule}" for step in self.steps)
        return "\n".join([str(self.equation), *steps])

    def __repr__(self) -> str:
        """Return what it proves, in one line."""
        return one_line(type(self).__name__, f"{self.role}: {self.equation}")

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What its steps cite, and what the axioms and earlier results rest on that it puts in."""
        cited = [item for step in self.steps for item in step.rests_on]
        return tuple(dict.fromkeys([*cited, *(item for step in self.steps for item in step.cites)]))

    @property
    def supposing(self) -> tuple[Equation, ...]:
        """What was supposed on the way."""
        return tuple(dict.fromkeys(own for step in self.steps for known in step.known for own in known.supposing))

    @property
    def equation(self) -> Equation:
        """What the chain proves: its first left side against its last right side."""
        relation: Relation = "≤" if any(step.relation == "≤" for step in self.steps) else "="
        orders = sorted(
            (int(item.arguments[1]), item.arguments[0]) for item in self.assumptions if item.kind == "modulo"
        )
        dropped = Symbol(orders[0][1], real=True) ** orders[0][0] if orders else None
        remainder = self.remainder if self.remainder is not None else dropped
        return Equation(self.steps[0].lhs, self.steps[-1].rhs, relation, remainder, self.supposing)


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        """Return it in one line."""
        return one_line(type(self).__name__, str(self))
