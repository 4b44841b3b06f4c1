"""The one function that decides: both procedures, under the assumptions given and no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import mpmath
import sympy

from attnsym.symbolic.language.gate import read_claim
from attnsym.symbolic.language.reader import MAX_ROOT, GrammarError
from attnsym.symbolic.trusted import kernel, normal_form
from attnsym.symbolic.trusted.assumptions import Assumption
from attnsym.symbolic.trusted.facts import Facts
from attnsym.symbolic.trusted.families import SORTS
from attnsym.symbolic.trusted.polynomial import Budget, Monomial, Polynomial, constant, multiply, single
from attnsym.symbolic.trusted.terms import Claim, Parameter, Power, subtract


@dataclass(frozen=True)
class Decision:
    """
    What the two procedures found.

    Attributes
    ----------
    holds : bool
        Whether both prove it.
    moments : frozenset of Monomial
        The moments that they met.
    disagree : bool
        Whether one of them proves it and the other does not: then nothing is proved.
    given : frozenset of str
        What expectations held fixed.
    doubtful : bool
        Whether a denominator is not seen to differ from 0.
    """

    holds: bool
    moments: frozenset[Monomial]
    disagree: bool = False
    given: frozenset[str] = frozenset()
    doubtful: bool = False


def decide(
    left: Any, right: Any, assumptions: Iterable[Assumption] = (), known: tuple[tuple[Any, Any], ...] = ()
) -> Decision:
    """
    Decide left = right under `assumptions`; it holds when both procedures say so.

    Parameters
    ----------
    left, right : expression
        In the notation; no index is bound twice, sums run from 1 to a size.
    assumptions : iterable of Assumption
        All that may be used.
    known : tuple of (expression, multiplier)
        Expressions that are 0 by an earlier result; the claim decided is left - right = Σ multiplier · expression.

    Raises
    ------
    GrammarError
        If an expression is outside the grammar, or divides by what the assumptions make 0.
    TooLarge
        If it is beyond the work that the procedures are willing to do.
    """
    told = tuple(assumptions)
    claim, facts = read_claim(left, right, known, told), Facts(told)
    try:
        values, met = roots(claim, facts), set()
        for inside in claim.roots.values():
            met |= kernel.equal(replace(claim, difference=inside, denominators={}), facts)[1].blocks
        below = [normal_form.value(own, claim, facts, values) for own in claim.denominators.values()]
        if {} in below:
            raise ZeroDivisionError
        doubtful = not all(map(is_positive, below))
        holds, moments = kernel.equal(claim, facts, values)
        agreed = not holds or normal_form.equal(claim, facts, values)
    except ZeroDivisionError:
        raise GrammarError("it divides by what the assumptions make 0") from None
    return Decision(holds and agreed, frozenset(moments.blocks | met), not agreed, claim.given, doubtful)


def roots(claim: Claim, facts: Facts) -> Mapping[str, Polynomial]:
    """
    Return the roots of the claim that have a closed form: √Var(kᵀq) is √d_k where the variance is d_k.

    A root of anything but one term with an even power of every parameter stays a name of its own.
    """
    found: dict[str, Polynomial] = {}
    for name, inside in claim.roots.items():
        root = _root(normal_form.value(inside, claim, facts))
        square = replace(claim, difference=subtract(inside, Power(Parameter(name), 2)), denominators={})
        if root is not None and kernel.equal(square, facts, {name: root})[0]:
            found[name] = root
    return found


def _root(value: Polynomial) -> Polynomial | None:
    """The square root of one positive term, or None."""
    if not value:
        return {}
    ((monomial, coefficient), *others) = value.items()
    exact = Fraction(coefficient)
    if others or exact < 0 or exact.numerator * exact.denominator > MAX_ROOT**2:
        return None
    result = constant(Fraction(1, exact.denominator))
    for prime, power in sympy.factorint(exact.numerator * exact.denominator).items():
        part = times_root(int(prime), int(power))
        result = multiply(result, part, Budget())
    for (name, labels), power in monomial:
        if name.startswith("√") and not name[1:].isdecimal():
            part = single((name, ()), power // 2) if power % 2 == 0 else single((f"⁴{name}", ()), power)
        elif name.startswith("σ_") and power % 2 == 0:
            part = single((name, labels), power // 2)
        else:
            return None
        result = multiply(result, part, Budget())
    return result


def times_root(prime: int, power: int) -> Polynomial:
    """√(prime^power)."""
    return multiply(constant(prime ** (power // 2)), single((f"√{prime}", ()), power % 2), Budget())


def is_positive(value: Polynomial) -> bool:
    """Whether a normal form is seen to be above 0: positive terms in sizes, deviations and squares."""
    return bool(value) and all(
        coefficient > 0 and all(name.startswith(("√", "σ_")) or power % 2 == 0 for (name, _), power in monomial)
        for monomial, coefficient in value.items()
    )


@dataclass(frozen=True)
class SizeFunction:
    """A side of a claim that under the assumptions depends on the sizes alone."""

    value: Polynomial

    @property
    def sizes(self) -> set[str]:
        """The sizes that it depends on."""
        return {name[1:] for monomial in self.value for (name, _), _ in monomial}

    def at(self, sizes: Mapping[str, int]) -> Any:
        """Its value: exact where no odd power of a root is in it."""
        total: Any = Fraction(0)
        for monomial, coefficient in self.value.items():
            term: Any = Fraction(coefficient)
            for (name, _), power in monomial:
                size = sizes[name[1:]]
                term = term * Fraction(size) ** (power // 2)
                if power % 2:
                    exact = mpmath.mpf(term.numerator) / term.denominator if isinstance(term, Fraction) else term
                    term = mpmath.sqrt(size) * exact
            total = total + term
        return total


def size_function(side: Any, assumptions: Iterable[Assumption]) -> SizeFunction | None:
    """Return one side of a claim as a function of the sizes, where under the assumptions it depends on nothing else."""
    told = tuple(assumptions)
    try:
        claim, facts = read_claim(side, 0, (), told), Facts(told)
        value = normal_form.value(claim.difference, claim, facts, roots(claim, facts))
    except (ValueError, ZeroDivisionError):
        return None
    known = {f"√{sort}" for sort in SORTS}
    return SizeFunction(value) if all(name in known for term in value for (name, _), _ in term) else None
