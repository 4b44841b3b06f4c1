"""Laurent polynomials over the rationals in named, indexed generators: the arithmetic of the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import comb
from typing import TypeAlias

Generator: TypeAlias = tuple[str, tuple[object, ...]]
Monomial: TypeAlias = tuple[tuple[Generator, int], ...]
Polynomial: TypeAlias = dict[Monomial, Fraction | int]

MAX_WORK = 320_000


class TooLarge(ValueError):
    """An expression beyond the work that the kernel is willing to do."""


class NotCovered(ValueError):
    """A question that the rules do not cover under the facts given."""


class Budget:
    """Counts products of monomials, so that no input can hang the checker."""

    def __init__(self, limit: int = MAX_WORK) -> None:
        self.left = limit

    def spend(self, amount: int) -> None:
        """Take `amount` from the budget; raise `TooLarge` when it is gone."""
        self.left -= amount
        if self.left < 0:
            raise TooLarge("the expression is too large for the checker: lower a power or the number of nested sums")


def size_generator(sort: str) -> Generator:
    """Return the generator √size; its square is the size."""
    return (f"√{sort}", ())


def constant(value: Fraction | int) -> Polynomial:
    """Return a constant polynomial."""
    # Whole numbers are several times faster as int than as Fraction.
    return {(): value.numerator if value.denominator == 1 else value} if value else {}


def single(generator: Generator, power: int = 1) -> Polynomial:
    """Return generator ** power."""
    return {((generator, power),): 1} if power else {(): 1}


def times(left: Monomial, right: Monomial) -> Monomial:
    """Multiply two monomials; exponents may be negative."""
    if not left:
        return right
    if not right:
        return left
    powers = dict(left)
    for generator, power in right:
        total = powers.get(generator, 0) + power
        if total:
            powers[generator] = total
        else:
            del powers[generator]
    return tuple(sorted(powers.items()))


def accumulate(target: Polynomial, monomial: Monomial, coefficient: Fraction | int) -> None:
    """Add a term in place and keep the polynomial free of zeros."""
    total = target.get(monomial, 0) + coefficient
    if total:
        target[monomial] = total
    else:
        target.pop(monomial, None)


def add(parts: Iterable[Polynomial]) -> Polynomial:
    """Sum polynomials."""
    result: Polynomial = {}
    for part in parts:
        for monomial, coefficient in part.items():
            accumulate(result, monomial, coefficient)
    return result


def multiply(
    left: Polynomial, right: Polynomial, budget: Budget, orders: Mapping[str, int] | None = None
) -> Polynomial:
    """Multiply; a power of a generator named in `orders` vanishes from its order on."""
    pairs = len(left) * len(right)
    budget.spend(1 + pairs + (pairs * (_bits(left) + _bits(right)) >> 9))
    result: Polynomial = {}
    for a, x in left.items():
        for b, y in right.items():
            product = times(a, b)
            if not (orders and vanishes(product, orders)):
                accumulate(result, product, x * y)
    return result


def raised(base: Polynomial, exponent: int, budget: Budget, orders: Mapping[str, int] | None = None) -> Polynomial:
    """Raise to a natural power by the multinomial theorem, each term once."""
    terms = list(base.items())
    if len(terms) < 2 or exponent < 2:
        result = constant(1)
        for _ in range(exponent):
            result = multiply(result, base, budget, orders)
        return result
    budget.spend(comb(len(terms) + exponent - 1, exponent) * (3 + (exponent * _bits(base) >> 9)))
    result = {}

    def expand(position: int, left: int, monomial: Monomial, coefficient: Fraction | int) -> None:
        if not left:  # most of the tree: what comes later is not taken
            if not (orders and vanishes(monomial, orders)):
                accumulate(result, monomial, coefficient)
            return
        factor, number = terms[position]
        if position == len(terms) - 1:
            expand(position, 0, times(monomial, tuple((g, n * left) for g, n in factor)), coefficient * number**left)
            return
        for taken in range(left + 1):
            grown = times(monomial, tuple((generator, n * taken) for generator, n in factor)) if taken else monomial
            expand(position + 1, left - taken, grown, coefficient * comb(left, taken) * number**taken)

    expand(0, exponent, (), 1)
    return result


def _bits(value: Polynomial) -> int:
    """Bits of the largest coefficient: long numbers are work too."""
    return max((x.numerator.bit_length() + x.denominator.bit_length() for x in value.values()), default=0)


def reduced(value: Polynomial) -> Polynomial:
    """Put in the squares of roots: √2·√2 = 2, and the fourth root of a size squared is √size."""
    result: Polynomial = {}
    for monomial, coefficient in value.items():
        rest: Monomial = ()
        for generator, power in monomial:
            name = generator[0]
            if name.startswith("√") and name[1:].isdecimal():
                coefficient *= Fraction(int(name[1:])) ** (power // 2)
                rest = times(rest, ((generator, power % 2),) if power % 2 else ())
            elif name.startswith("⁴√"):
                rest = times(rest, ((generator, power % 2),) if power % 2 else ())
                rest = times(rest, ((size_generator(name[2:]), power // 2),) if power // 2 else ())
            else:
                rest = times(rest, ((generator, power),))
        accumulate(result, rest, coefficient)
    return result


def inverted(value: Polynomial) -> Polynomial | None:
    """1/value where the value is one term; None where it is a sum. ZeroDivisionError where it is 0."""
    if not value:
        raise ZeroDivisionError
    if len(value) > 1:
        return None
    ((monomial, coefficient),) = value.items()
    return {tuple((generator, -power) for generator, power in monomial): 1 / Fraction(coefficient)}


def vanishes(monomial: Monomial, orders: Mapping[str, int]) -> bool:
    """Whether the monomial is of an order that is dropped."""
    return any(name in orders and power >= orders[name] for (name, _), power in monomial)
