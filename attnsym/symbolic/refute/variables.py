"""
Polynomials in independent variables of known laws: the components of a vector under a law at hand.

The arithmetic is this wing's own and shares nothing with the kernel's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from attnsym.symbolic.trusted.assumptions import law_moment

# A law is known by name, or as a list of values with their probabilities.
Distribution: TypeAlias = str | tuple[tuple[Fraction, Fraction], ...]
Variable: TypeAlias = tuple[int, Distribution]
Powers: TypeAlias = tuple[tuple[Variable, int], ...]

SIGNS = ((Fraction(1), Fraction(1, 2)), (Fraction(-1), Fraction(1, 2)))


@lru_cache(maxsize=4096)
def moment(law: Distribution, order: int) -> Fraction:
    """E[xⁿ]."""
    if isinstance(law, str):
        return law_moment(law, order)
    return sum((weight * value**order for value, weight in law), Fraction(0))


class Poly:
    """A polynomial with rational coefficients in independent variables ``(number, law)``, no two of one number."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Powers, Any]) -> None:
        self.terms = {powers: value for powers, value in terms.items() if value}

    def mean(self) -> Fraction:
        """The expectation, exactly: powers of different variables are independent."""
        total = Fraction(0)
        for powers, value in self.terms.items():
            for (_, law), power in powers:
                value = value * moment(law, power)
            total = total + value
        return total

    def given(self, held: Collection[Variable]) -> Poly:
        """The expectation given some of the variables: a polynomial in those."""
        terms: dict[Powers, Any] = {}
        for powers, value in self.terms.items():
            kept = tuple(item for item in powers if item[0] in held)
            for (_, law), power in (item for item in powers if item[0] not in held):
                value = value * moment(law, power)
            terms[kept] = terms.get(kept, 0) + value
        return Poly(terms)

    def at(self, point: Callable[[Variable], Fraction]) -> Any:
        """The value where each variable has the value that `point` gives it."""
        total: Any = Fraction(0)
        for powers, value in self.terms.items():
            for own, power in powers:
                value = value * point(own) ** power
            total = total + value
        return total

    def variables(self) -> set[Variable]:
        """The variables that occur."""
        return {variable for powers in self.terms for variable, _ in powers}

    def renamed(self, number: int) -> Poly:
        """The same polynomial in variables of its own."""
        return Poly({tuple(((number + n, law), e) for (n, law), e in powers): v for powers, v in self.terms.items()})

    def linear(self) -> dict[Variable, Fraction] | None:
        """The coefficients of a linear polynomial (its constant under `CONSTANT`), None for any other."""
        found: dict[Variable, Fraction] = {}
        for powers, value in self.terms.items():
            if powers and (len(powers) > 1 or powers[0][1] > 1):
                return None
            found[powers[0][0] if powers else CONSTANT] = value
        return found

    def __add__(self, other: Any) -> Poly:
        terms = dict(self.terms)
        for powers, value in _poly(other).terms.items():
            terms[powers] = terms.get(powers, 0) + value
        return Poly(terms)

    def __mul__(self, other: Any) -> Poly:
        if not isinstance(other, Poly):
            return Poly({powers: value * other for powers, value in self.terms.items()})
        terms: dict[Powers, Any] = {}
        for one, x in self.terms.items():
            for two, y in other.terms.items():
                key = _times(one, two)
                terms[key] = terms.get(key, 0) + x * y
        return Poly(terms)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Poly:
        return self * Fraction(-1)

    def __sub__(self, other: Any) -> Poly:
        return self + (-_poly(other))

    def __rsub__(self, other: Any) -> Poly:
        return _poly(other) + -self

    def __pow__(self, exponent: int) -> Poly:
        result = Poly({(): Fraction(1)})
        for _ in range(exponent):
            result = result * self
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Poly, Fraction, int)) and self.terms == _poly(other).terms

    def __hash__(self) -> int:
        constant = self.terms.get((), Fraction(0))
        return hash(constant) if self.terms.keys() <= {()} else hash(frozenset(self.terms.items()))


CONSTANT: Variable = (-1, "")


def _times(one: Powers, two: Powers) -> Powers:
    powers = dict(one)
    for variable, power in two:
        total = powers.get(variable, 0) + power
        powers[variable] = total % 2 if variable[1] is SIGNS else total  # the square of a sign is 1
    return tuple(sorted(item for item in powers.items() if item[1]))


def variable(law: Distribution) -> Poly:
    """One variable with this law."""
    return Poly({(((0, law), 1),): 1})


def mean(value: Any) -> Any:
    """The expectation of a number or polynomial."""
    return value.mean() if isinstance(value, Poly) else value


def _poly(value: Any) -> Poly:
    if isinstance(value, Poly):
        return value
    return Poly({(): Fraction(value) if isinstance(value, int) else value})
