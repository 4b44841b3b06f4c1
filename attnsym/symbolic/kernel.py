"""
The first decision procedure: evaluate both sides exactly at enough sizes.

Completeness lemma. Group the bound indices of a closed term by which of them are equal. A product of components that
touches s distinct indices then carries a coefficient that is a polynomial in the size, of degree at most D - s, where
D counts nested sums and powers of the size (products add, sums take the maximum), less the powers in denominators.
Expectations send monomials to monomials in moments and keep the bound. So two terms with f free indices that agree at
sizes 1 … D + 1 + f agree at every size. The lemma needs symmetry under renumbering the components; the grammar gate
refuses what has none (literal indices, other limits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import product

from attnsym.symbolic.assumptions import Facts
from attnsym.symbolic.moments import Moments
from attnsym.symbolic.polynomial import (
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
from attnsym.symbolic.terms import (
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
    sorts = sorted(_sorts(difference) | set(free.values()))
    points = {sort: _points(difference, sort, list(free.values()).count(sort)) for sort in sorts}
    for values in product(*(range(1, points[sort] + 1) for sort in sorts)):
        sizes = dict(zip(sorts, values, strict=True))
        for environment in _free_values(free, sizes):
            value = _Evaluation(sizes, facts, moments, budget, random).of(difference, environment)
            if not _vanishes(value, sizes, budget):
                return False, moments
    return True, moments


def _points(term: Term, sort: str, free: int) -> int:
    """How many sizes of this sort decide: the lemma's D + 1 + f."""
    high, low = degrees(term, sort)
    # Clearing 1/Z multiplies by sums over the keys, one for each power of 1/Z.
    cleared = inverse_power(term) if sort == WEIGHT_SORT else 0
    return max(high - low, 0) + cleared + 1 + free


def degrees(term: Term, sort: str) -> tuple[int, int]:
    """Bounds (highest, lowest) on the powers of a size that sums and explicit powers can produce."""
    match term:
        case Size(own, half_power) if own == sort:
            return -(-half_power // 2), half_power // 2
        case Add(terms):
            bounds = [degrees(part, sort) for part in terms]
            return max((high for high, _ in bounds), default=0), min((low for _, low in bounds), default=0)
        case Mul(factors):
            bounds = [degrees(factor, sort) for factor in factors]
            return sum(high for high, _ in bounds), sum(low for _, low in bounds)
        case Power(base, exponent):
            high, low = degrees(base, sort)
            return high * exponent, low * exponent
        case Sum(_, own, body):
            high, low = degrees(body, sort)
            return high + (own == sort), low
        case Mean(body):
            high, low = degrees(body, sort)
            # A known second moment may bring in the size itself (isotropic direction 1/d_k, hypothesis d_k).
            weight = component_degree(body) if sort == "d_k" else 0
            return high + weight, low - weight
        case _:
            return 0, 0


def component_degree(term: Term) -> int:
    """Highest total degree in components whose second moment is a power of d_k, divided by two."""
    return _degree(term, lambda part: isinstance(part, Component) and part.family in _SIZED) // 2


_SIZED = frozenset({"u", "S"})


def inverse_power(term: Term) -> int:
    """Highest power of 1/Z in a term."""
    return _degree(term, lambda part: isinstance(part, Component) and part.family == INVERSE_PARTITION)


def _degree(term: Term, counts: Callable[[Term], bool]) -> int:
    match term:
        case Add(terms):
            return max((_degree(part, counts) for part in terms), default=0)
        case Mul(factors):
            return sum(_degree(factor, counts) for factor in factors)
        case Power(base, exponent):
            return exponent * _degree(base, counts)
        case Sum(_, _, body) | Mean(body):
            return _degree(body, counts)
        case _:
            return int(counts(term))


def _sorts(term: Term) -> set[str]:
    match term:
        case Size(sort):
            return {sort}
        case Add(parts) | Mul(parts):
            return set().union(*(_sorts(part) for part in parts))
        case Power(base, _):
            return _sorts(base)
        case Sum(_, sort, body):
            return {sort} | _sorts(body)
        case Mean(body):
            return _sorts(body) | ({"d_k"} if component_degree(body) else set())
        case _:
            return set()


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
