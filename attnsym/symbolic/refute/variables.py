"""
Polynomials in independent variables of known laws: what a component may be under a law that no finite list describes.

The arithmetic is this wing's own and shares nothing with the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from attnsym.symbolic.trusted.assumptions import law_moment

Variable: TypeAlias = tuple[str, int]
Powers: TypeAlias = tuple[tuple[Variable, int], ...]


class Poly:
    """A polynomial with rational coefficients in independent variables ``(law, number)`` of mean 0 and variance 1."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Powers, Fraction]) -> None:
        self.terms = {powers: value for powers, value in terms.items() if value}

    def mean(self) -> Fraction:
        """The expectation, exactly: powers of different variables are independent."""
        total = Fraction(0)
        for powers, value in self.terms.items():
            for (law, _), power in powers:
                value *= law_moment(law, power)
            total += value
        return total

    def variables(self) -> set[Variable]:
        """The variables that occur."""
        return {variable for powers in self.terms for variable, _ in powers}

    def renamed(self, number: int) -> Poly:
        """The same polynomial in variables of its own."""
        return Poly({tuple(((law, number + n), e) for (law, n), e in powers): v for powers, v in self.terms.items()})

    def linear(self) -> dict[Variable, Fraction] | None:
        """The coefficients of a linear polynomial (its constant under ``("", 0)``), None for any other."""
        found: dict[Variable, Fraction] = {}
        for powers, value in self.terms.items():
            if powers and (len(powers) > 1 or powers[0][1] > 1):
                return None
            found[powers[0][0] if powers else ("", 0)] = value
        return found

    def _items(self) -> Iterator[tuple[Powers, Fraction]]:
        return iter(self.terms.items())

    def __add__(self, other: Any) -> Poly:
        terms = dict(self.terms)
        for powers, value in _poly(other).terms.items():
            terms[powers] = terms.get(powers, Fraction(0)) + value
        return Poly(terms)

    def __mul__(self, other: Any) -> Poly:
        if not isinstance(other, Poly):
            return Poly({powers: value * other for powers, value in self.terms.items()})
        terms: dict[Powers, Fraction] = {}
        for one, x in self._items():
            for two, y in other._items():
                powers = dict(one)
                for variable, power in two:
                    powers[variable] = powers.get(variable, 0) + power
                key = tuple(sorted(powers.items()))
                terms[key] = terms.get(key, Fraction(0)) + x * y
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

    def __lt__(self, other: Any) -> bool:
        return repr(self.terms) < repr(getattr(other, "terms", other))


def standard(law: str) -> Poly:
    """One variable of mean 0 and variance 1."""
    return Poly({(((law, 0), 1),): Fraction(1)})


def mean(value: Any) -> Any:
    """The expectation of a number or polynomial."""
    return value.mean() if isinstance(value, Poly) else value


def _poly(value: Any) -> Poly:
    return value if isinstance(value, Poly) else Poly({(): Fraction(value)})
