"""The third question that people ask: what is it? A closed form by one procedure, confirmed by the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import sympy

from attnsym._page import Page
from attnsym.symbolic.deciding import decide, roots
from attnsym.symbolic.derivation.steps import Equation
from attnsym.symbolic.language import notation as n
from attnsym.symbolic.language.expressions import read
from attnsym.symbolic.language.gate import read_claim
from attnsym.symbolic.language.reader import GrammarError
from attnsym.symbolic.language.writing import lacking, written
from attnsym.symbolic.proving import DISAGREE, own_vectors, told
from attnsym.symbolic.trusted import normal_form
from attnsym.symbolic.trusted.assumptions import Assumption
from attnsym.symbolic.trusted.facts import Facts
from attnsym.symbolic.trusted.terms import Claim
from attnsym.symbolic.typeset.moments import named_moments


class NotDetermined(ValueError):
    """
    Raised where the assumptions do not say what an expression is.

    Attributes
    ----------
    missing : tuple of str
        What would have to be known, with the assumptions that would say it.
    partial : expression
        The form with what is missing left as it stands.
    """

    def __init__(self, message: str, missing: tuple[str, ...], partial: Any) -> None:
        super().__init__(message)
        self.missing, self.partial = missing, partial


@dataclass(frozen=True, repr=False)
class ClosedForm(Page):
    """
    What an expression is, under assumptions.

    Attributes
    ----------
    value : expression
        The closed form, in the sizes and the parameters.
    required : tuple of str
        Expectations that must be finite.
    statement : Equation
        The equality of the expression and its value; `prove` decides it TRUE under the same assumptions.
    assumptions : tuple of Assumption
        Those given.
    """

    value: Any
    required: tuple[str, ...]
    statement: Equation
    assumptions: tuple[Assumption, ...] = ()

    def __str__(self) -> str:
        """Return the statement, and what must be finite."""
        finite = f"\nFinite must be: {', '.join(self.required)}." if self.required else ""
        return f"{self.statement}{finite}"

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.statement.to_latex()}$"

    def _repr_html_(self) -> str:
        under = "".join(
            f"<li>{escape(item.sentence)} <code>{escape(str(item))}</code></li>" for item in self.assumptions
        )
        finite = f"<p>Finite must be: {escape(', '.join(self.required))}.</p>" if self.required else ""
        return f"{self.statement.to_mathml()}{f'<ul>{under}</ul>' if under else ''}{finite}"


def closed_form(expression: Any, assuming: Iterable[str | Assumption] = ()) -> ClosedForm:
    """
    Return the closed form of an expectation, variance, covariance, or of an expression in them.

    The normal form at symbolic size gives it; evaluation at as many sizes as decide confirms it. With `CentralMoment`
    and `Cumulant` it covers central moments and cumulants.

    Parameters
    ----------
    expression : expression or str
        In the notation of this module, without free indices of sums: ``E(Dot(k, q)**6)``.
    assuming : iterable of str or Assumption
        As for `prove`.

    Returns
    -------
    ClosedForm
        The value, exact for every size; the moments that must be finite; the statement.

    Raises
    ------
    GrammarError
        If the expression is outside what the checker can decide.
    NotDetermined
        If the assumptions do not determine it: what is missing, and the form with that left symbolic.
    """
    given = told(assuming)
    if isinstance(expression, str):
        expression = read(expression, own_vectors(given))
    claim, facts = read_claim(expression, 0, (), given), Facts(given)
    value, missing = _value(claim, facts)
    pair = _alike(claim)
    if pair is not None:  # Cov(q_i, q_j) is one thing for i = j and another for i ≠ j
        one, two = pair
        same, lost = _value(read_claim(expression.xreplace({two: one}), 0, (), given), facts)
        value = sympy.Mul(n.delta(one, two), same - value) + value if same != value else value
        missing = tuple(dict.fromkeys([*missing, *lost]))
    if missing:
        raise NotDetermined(
            f"the assumptions do not determine {expression}: missing is {'; '.join(missing)}. "
            f"With that left as it stands it is {value}",
            missing,
            value,
        )
    decision = decide(expression, value, given)
    if decision.disagree:
        raise ValueError(DISAGREE)
    if not decision.holds:
        raise GrammarError(f"the value of {expression} depends on which of its free indices coincide: fix them first")
    statement = Equation(sympy.sympify(expression, strict=True), value)
    return ClosedForm(value, named_moments(decision.moments), statement, given)


def _value(claim: Claim, facts: Facts) -> tuple[Any, tuple[str, ...]]:
    """The normal form in the notation, free indices all different, and what it lacks."""
    names = {number: index for index, number in claim.indices.items()}
    try:
        values = roots(claim, facts)
        form = normal_form.value(claim.difference, claim, facts, values)
        below = {
            name: written(normal_form.value(term, claim, facts, values), claim, names)
            for name, term in claim.denominators.items()
        }
        value = written(form, claim, names, below)
    except ZeroDivisionError:
        raise GrammarError("it divides by what the assumptions make 0") from None
    if not value.has(sympy.Sum, n.Operator, sympy.exp):
        value = sympy.factor(value)
    return value, lacking(form, names)


def _alike(claim: Claim) -> tuple[Any, Any] | None:
    """The two free indices of a claim that has exactly two, of one size."""
    if len(claim.indices) != 2 or len(set(claim.free.values())) > 1:
        return None
    one, two = sorted(claim.indices, key=str)
    return one, two
