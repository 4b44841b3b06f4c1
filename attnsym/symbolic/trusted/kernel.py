"""The first decision procedure: evaluate both sides exactly at as many sizes as the completeness lemma asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product

from attnsym.symbolic.trusted import lemma
from attnsym.symbolic.trusted.assumptions import Facts
from attnsym.symbolic.trusted.moments import Moments
from attnsym.symbolic.trusted.polynomial import (
    Budget,
    Generator,
    Polynomial,
    accumulate,
    add,
    constant,
    multiply,
    single,
    size_generator,
)
from attnsym.symbolic.trusted.terms import (
    EXPONENTIAL,
    INVERSE_PARTITION,
    WEIGHT_SORT,
    Add,
    Component,
    Delta,
    Mean,
    Mul,
    Number,
    Parameter,
    Power,
    Size,
    Sum,
    Term,
)

INVERSE: Generator = (INVERSE_PARTITION, ())


def equal(difference: Term, free: Mapping[int, str], facts: Facts, random: frozenset[str]) -> tuple[bool, Moments]:
    """
    Decide whether `difference` vanishes at every size of every sort, for every law satisfying `facts`.

    Parameters
    ----------
    difference : Term
        Left side minus right side.
    free : mapping of int to str
        The free indices and their sorts; the equation is claimed for every value of them.
    facts : Facts
        The assumptions cited.
    random : frozenset of str
        Families of components that `Mean` acts on; everything else passes through it.

    Returns
    -------
    (bool, Moments)
        The decision, and the moments that had to be finite.
    """
    budget = Budget()
    moments = Moments(facts, budget)
    sorts = sorted(lemma.sorts(difference) | set(free.values()))
    ranges = [range(1, lemma.points(difference, sort, list(free.values()).count(sort)) + 1) for sort in sorts]
    for values in product(*ranges):
        sizes = dict(zip(sorts, values, strict=True))
        for environment in _free_values(free, sizes):
            value = _Evaluation(sizes, facts, moments, budget, random).of(difference, environment)
            if not _vanishes(value, sizes, budget):
                return False, moments
    return True, moments


def _free_values(free: Mapping[int, str], sizes: Mapping[str, int]) -> Iterator[dict[int, int]]:
    """Values of the free indices, one for each pattern of equal and different (symmetry does the rest)."""
    for values in product(*(range(1, sizes[sort] + 1) for sort in free.values())):
        environment = dict(zip(free, values, strict=True))
        highest = dict.fromkeys(sizes, 0)
        for index, value in environment.items():
            if value > highest[free[index]] + 1:
                break
            highest[free[index]] = max(highest[free[index]], value)
        else:
            yield environment


def _vanishes(value: Polynomial, sizes: Mapping[str, int], budget: Budget) -> bool:
    """Put the sizes in, clear 1/Z, and see whether everything cancels."""
    settled: dict[int, Polynomial] = {}
    for monomial, coefficient in value.items():
        rest, inverse = [], 0
        for generator, power in monomial:
            size = sizes.get(generator[0][1:]) if generator[0].startswith("√") else None
            if generator == INVERSE:
                inverse = power
            elif size is None:
                rest.append((generator, power))
            else:
                coefficient *= Fraction(size) ** (power // 2)
                if power % 2:
                    rest.append((generator, 1))
        accumulate(settled.setdefault(inverse, {}), tuple(rest), coefficient)
    partition = add(single((EXPONENTIAL, (n,))) for n in range(1, sizes.get(WEIGHT_SORT, 0) + 1))
    cleared: Polynomial = {}
    for power in range(max(settled, default=0) + 1):
        cleared = add([multiply(cleared, partition, budget), settled.get(power, {})])
    return not cleared


class _Evaluation:
    """The value of a term at given sizes, as a polynomial in components, parameters and moments."""

    def __init__(
        self, sizes: Mapping[str, int], facts: Facts, moments: Moments, budget: Budget, random: frozenset[str]
    ) -> None:
        self.sizes, self.facts, self.moments, self.budget, self.random = sizes, facts, moments, budget, random

    def of(self, term: Term, environment: Mapping[int, int]) -> Polynomial:
        match term:
            case Number(number):
                return constant(number)
            case Parameter(name, power):
                return self._parameter(name, power)
            case Size(sort, half_power):
                return single(size_generator(sort), half_power)
            case Component(family, indices):
                return self._component(family, tuple(environment[index] for index in indices))
            case Delta(left, right):
                return constant(int(environment[left] == environment[right]))
            case Add(terms):
                return add([self.of(part, environment) for part in terms])
            case Mul(factors):
                return self._product(factors, environment)
            case Power(base, exponent):
                value, result = self.of(base, environment), constant(1)
                for _ in range(exponent):
                    result = self._times(result, value)
                return result
            case Sum(index, sort, body):
                values = range(1, self.sizes[sort] + 1)
                self.budget.spend(len(values))
                return add([self.of(body, {**environment, index: value}) for value in values])
            case Mean(body):
                return self._mean(self.of(body, environment))

    def _product(self, factors: tuple[Term, ...], environment: Mapping[int, int]) -> Polynomial:
        """Multiply; components and deltas first, since one δ = 0 spares the rest."""
        powers: dict[Generator, int] = {}
        others: list[Term] = []
        for factor in factors:
            match factor:
                case Delta(left, right):
                    if environment[left] != environment[right]:
                        return {}
                case Component(family, indices) if not family.startswith("C_"):
                    place = self._place(family, tuple(environment[index] for index in indices))
                    powers[place] = powers.get(place, 0) + 1
                case _:
                    others.append(factor)
        result: Polynomial = {tuple(sorted(powers.items())): 1}
        for factor in others:
            if not result:
                return result
            result = self._times(result, self.of(factor, environment))
        return result

    def _parameter(self, name: str, power: int) -> Polynomial:
        return parameter(name, power, self.facts, self.moments)

    def _component(self, family: str, indices: tuple[int, ...]) -> Polynomial:
        if family.startswith("C_") and self.facts.says("second_moments", family[2:]):
            return self.moments.second(family[2:], *indices)
        return single(self._place(family, indices))

    def _place(self, family: str, indices: tuple[int, ...]) -> Generator:
        if family.startswith("C_"):  # a matrix of second moments is symmetric
            indices = tuple(sorted(indices))
        return self.facts.representative(family, indices)

    def _mean(self, value: Polynomial) -> Polynomial:
        parts = []
        for monomial, coefficient in value.items():
            inner = tuple(item for item in monomial if item[0][0] in self.random)
            outer = tuple(item for item in monomial if item[0][0] not in self.random)
            parts.append(self._times({outer: coefficient}, self.moments.mean(inner)))
        return add(parts)

    def _times(self, left: Polynomial, right: Polynomial) -> Polynomial:
        return multiply(left, right, self.budget, self.facts.orders)


def parameter(name: str, power: int, facts: Facts, moments: Moments) -> Polynomial:
    """Return a power of a parameter."""
    if name in facts.orders:
        if power < 0:
            raise ValueError(f"{name} is small here (modulo), so it cannot stand in a denominator")
        if power >= facts.orders[name]:
            return {}
    if power < 0:
        return single((name, ()), power)
    value, result = moments.parameter(name), constant(1)
    for _ in range(power):
        result = multiply(result, value, moments.budget)
    return result
