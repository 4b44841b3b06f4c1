"""The first decision procedure: evaluate both sides exactly at as many sizes as the completeness lemma asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product

from attnsym.symbolic.trusted import lemma
from attnsym.symbolic.trusted.facts import Facts
from attnsym.symbolic.trusted.moments import Moments
from attnsym.symbolic.trusted.polynomial import (
    Budget,
    Generator,
    Polynomial,
    accumulate,
    add,
    constant,
    inverted,
    multiply,
    raised,
    reduced,
    single,
    size_generator,
    times,
)
from attnsym.symbolic.trusted.terms import (
    EXPONENTIAL,
    INVERSE_PARTITION,
    WEIGHT_SORT,
    Add,
    Claim,
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
Values = Mapping[str, Polynomial]


def equal(claim: Claim, facts: Facts, values: Values | None = None) -> tuple[bool, Moments]:
    """
    Decide whether the difference vanishes at every size of every sort, for every law satisfying `facts`.

    Parameters
    ----------
    claim : Claim
        The equation.
    facts : Facts
        The assumptions cited.
    values : mapping of str to Polynomial, optional
        What the roots of the claim are.

    Returns
    -------
    (bool, Moments)
        The decision, and the moments that had to be finite.

    Raises
    ------
    ZeroDivisionError
        If a denominator is 0 under the facts.
    """
    budget = Budget()
    moments = Moments(facts, budget, values)
    difference, free, below = claim.difference, claim.free, claim.denominators
    involved = set().union(*(lemma.sorts(term, facts) for term in (difference, *below.values())))
    sorts = sorted(involved | set(free.values()))
    ranges = [
        range(1, lemma.points(difference, sort, list(free.values()).count(sort), facts, below) + 1) for sort in sorts
    ]
    for point in product(*ranges):
        sizes = dict(zip(sorts, point, strict=True))
        for environment in _free_values(free, sizes):
            evaluation = _Evaluation(sizes, facts, moments, budget, claim)
            value = evaluation.of(difference, environment)
            inverses: dict[Generator, Polynomial] = {
                (name, ()): evaluation.of(term, environment) for name, term in below.items()
            }
            if not _vanishes(value, sizes, budget, inverses, evaluation):
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


def _vanishes(
    value: Polynomial,
    sizes: Mapping[str, int],
    budget: Budget,
    inverses: Mapping[Generator, Polynomial],
    evaluation: _Evaluation,
) -> bool:
    """Clear every denominator and 1/Z, put the sizes in, and see whether everything cancels."""
    for generator, below in inverses.items():
        value = cleared(value, generator, below, budget)
    partition = add(single((EXPONENTIAL, (n,))) for n in range(1, sizes.get(WEIGHT_SORT, 0) + 1))
    value = cleared(value, INVERSE, partition, budget)
    return not reduced(_sized(evaluation.on_the_sphere(value), sizes))


def cleared(value: Polynomial, inverse: Generator, below: Polynomial, budget: Budget) -> Polynomial:
    """Multiply by the denominator until no inverse of it is left."""
    settled: dict[int, Polynomial] = {}
    for monomial, coefficient in value.items():
        rest = tuple(item for item in monomial if item[0] != inverse)
        accumulate(settled.setdefault(dict(monomial).get(inverse, 0), {}), rest, coefficient)
    result: Polynomial = {}
    for power in range(max(settled, default=0) + 1):
        result = add([multiply(result, below, budget), settled.get(power, {})])
    return result


def _sized(value: Polynomial, sizes: Mapping[str, int]) -> Polynomial:
    """Put in the sizes; odd powers of √size stay, since a perfect square must not make them rational."""
    result: Polynomial = {}
    for monomial, coefficient in reduced(value).items():
        rest = []
        for generator, power in monomial:
            size = sizes.get(generator[0][1:]) if generator[0].startswith("√") else None
            if size is None:
                rest.append((generator, power))
            else:
                coefficient *= Fraction(size) ** (power // 2)
                rest += [(generator, 1)] * (power % 2)
        accumulate(result, tuple(rest), coefficient)
    return result


class _Evaluation:
    """The value of a term at given sizes, as a polynomial in components, parameters and moments."""

    def __init__(self, sizes: Mapping[str, int], facts: Facts, moments: Moments, budget: Budget, claim: Claim) -> None:
        self.sizes, self.facts, self.moments, self.budget = sizes, facts, moments, budget
        self.random, self.sorts = claim.random, claim.sorts

    def of(self, term: Term, environment: Mapping[int, int]) -> Polynomial:
        self.budget.spend(1)
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
            case Power(Component(family, indices), exponent) if exponent < 0:
                return single(self._place(family, tuple(environment[index] for index in indices)), exponent)
            case Power(base, exponent):
                return raised(self.of(base, environment), exponent, self.budget, self.facts.orders)
            case Sum(index, sort, body):
                values = range(1, self.sizes[sort] + 1)
                self.budget.spend(len(values))
                return add([self.of(body, {**environment, index: value}) for value in values])
            case Mean(body, given):
                return self._mean(self.of(body, environment), given)

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

    def _mean(self, value: Polynomial, given: tuple[str, ...]) -> Polynomial:
        parts = []
        value = self.on_the_sphere(value)
        self.budget.spend(6 * len(value))
        for monomial, coefficient in value.items():
            inner, outer = self.facts.parted(monomial, self.random, given)
            parts.append(self._times({outer: coefficient}, self.moments.mean(inner)))
        return add(parts)

    def on_the_sphere(self, value: Polynomial) -> Polynomial:
        """Write the last component of a vector of length 1 through the others: w_d² = 1 − Σ_{i<d} w_i²."""
        for family in self.facts.units - self.facts.constant:
            size = self.sizes.get(self.sorts.get(family, ("",))[0], 0)
            last: Generator = (family, (size,))
            squares: list[Polynomial] = [{(((family, (n,)), 2),): -1} for n in range(1, size)]
            others = add([constant(1), *squares])
            while any(dict(monomial).get(last, 0) > 1 for monomial in value):
                parts: list[Polynomial] = []
                for monomial, coefficient in value.items():
                    high = dict(monomial).get(last, 0) > 1
                    rest = times(monomial, ((last, -2),)) if high else monomial
                    parts.append(self._times({rest: coefficient}, others if high else constant(1)))
                value = add(parts)
        return value

    def _times(self, left: Polynomial, right: Polynomial) -> Polynomial:
        return multiply(left, right, self.budget, self.facts.orders)


def parameter(name: str, exponent: int, facts: Facts, moments: Moments) -> Polynomial:
    """Return a power of a parameter."""
    if name in facts.orders:
        if exponent < 0:
            raise ValueError(f"{name} is small here (modulo), so it cannot stand in a denominator")
        if exponent >= facts.orders[name]:
            return {}
    value = moments.parameter(name)
    if exponent < 0:
        inverse = inverted(value)
        if inverse is None:  # a sum has no inverse among the polynomials: a name of its own
            return single((name, ()), exponent)
        value, exponent = inverse, -exponent
    result = constant(1)
    for _ in range(exponent):
        result = multiply(result, value, moments.budget)
    return result
