"""
The second decision procedure: a normal form at symbolic size.

Every term becomes a combination of sums over *distinct* indices. Σ_i f(i) splits into the values of i that are already
in use and one new index different from all of them; a product of two such sums splits by which of their indices
coincide; an index that a monomial no longer mentions is summed away and leaves the factor (size - indices in use).
Two terms are equal when, for each pattern of equal free indices, all coefficients cancel as polynomials in the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations, product

from attnsym.symbolic.trusted.facts import Facts
from attnsym.symbolic.trusted.kernel import parameter
from attnsym.symbolic.trusted.labels import entangled, matchings, rename, signature
from attnsym.symbolic.trusted.moments import MOMENT, Moments
from attnsym.symbolic.trusted.polynomial import (
    Budget,
    Generator,
    Monomial,
    Polynomial,
    accumulate,
    add,
    constant,
    multiply,
    reduced,
    single,
    size_generator,
    times,
    vanishes,
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


def equal(claim: Claim, facts: Facts, values: Mapping[str, Polynomial] | None = None) -> bool:
    """Decide whether the difference vanishes at every size, as `kernel.equal` does, at symbolic size."""
    budget = Budget()
    for environment, fixed in _patterns(claim.free):
        form = _Form(facts, claim.random, claim.sorts, fixed, budget, Moments(facts, budget, values))
        value = form.of(claim.difference, environment)
        for name, below in claim.denominators.items():
            value = form.cleared(value, (name, ()), form.of(below, environment))
        if reduced(form.on_the_sphere(form.without_partition(value))):
            return False
    return True


def value(term: Term, claim: Claim, facts: Facts, values: Mapping[str, Polynomial] | None = None) -> Polynomial:
    """
    Return the normal form of a term at symbolic size: what is left of it under the facts, free indices all different.

    Raises
    ------
    TooLarge
        Beyond the work that the kernel is willing to do.
    """
    budget = Budget()
    fixed = dict(claim.free)
    form = _Form(facts, claim.random, claim.sorts, fixed, budget, Moments(facts, budget, values))
    return reduced(form.on_the_sphere(form.of(term, {index: index for index in fixed})))


def _patterns(free: Mapping[int, str]) -> Iterator[tuple[dict[int, int], dict[int, str]]]:
    """Each way in which free indices of one sort may coincide: index -> label, and label -> sort."""

    def extend(
        indices: list[int], environment: dict[int, int], fixed: dict[int, str]
    ) -> Iterator[tuple[dict[int, int], dict[int, str]]]:
        if not indices:
            yield environment, fixed
            return
        index, sort = indices[0], free[indices[0]]
        for label in [*(known for known in fixed if fixed[known] == sort), -1 - len(fixed)]:
            yield from extend(indices[1:], {**environment, index: label}, {**fixed, label: sort})

    yield from extend(list(free), {}, {})


class _Form:
    """Sums over distinct labels. Negative labels are free or held fixed; labels from 0 on are summed over."""

    def __init__(
        self,
        facts: Facts,
        random: frozenset[str],
        sorts: Mapping[str, tuple[str, ...]],
        fixed: dict[int, str],
        budget: Budget,
        moments: Moments | None = None,
    ) -> None:
        self.facts, self.random, self.sorts, self.fixed, self.budget = facts, random, sorts, fixed, budget
        self.moments = moments or Moments(facts, budget)
        self.representatives: dict[Monomial, Monomial] = {}

    def of(self, term: Term, environment: Mapping[int, int]) -> Polynomial:
        self.budget.spend(1)
        match term:
            case Number(number):
                return constant(number)
            case Parameter(name, power):
                return parameter(name, power, self.facts, self.moments)
            case Size(sort, half_power):
                return single(size_generator(sort), half_power)
            case Component(family, indices):
                return self._component(family, tuple(environment[index] for index in indices))
            case Delta(left, right):
                return constant(int(environment[left] == environment[right]))
            case Add(terms):
                return add(self.of(part, environment) for part in terms)
            case Mul(factors):
                result = constant(1)
                for factor in factors:
                    result = self.multiply(result, self.of(factor, environment))
                return result
            case Power(Component(family, indices), exponent) if exponent < 0:
                ((((place, _),), _),) = self._component(family, tuple(environment[n] for n in indices)).items()
                return single(place, exponent)
            case Power(base, exponent):
                value, result = self.of(base, environment), constant(1)
                for _ in range(exponent):
                    result = self.multiply(result, value)
                return result
            case Sum(index, sort, body):
                return self._sum(index, sort, body, environment)
            case Mean(body, given):
                return self._mean(self.of(body, environment), given)

    def _component(self, family: str, labels: tuple[int, ...]) -> Polynomial:
        if family.startswith("C_") and self.facts.says("second_moments", family[2:]):
            return self.moments.second(family[2:], *labels)
        family, kept = self.facts.representative(family, labels)
        symmetric = family.startswith("C_")
        return single((family, tuple(sorted(kept)) if symmetric else kept))  # type: ignore[type-var]

    def _sum(self, index: int, sort: str, body: Term, environment: Mapping[int, int]) -> Polynomial:
        used = [label for label, own in self.fixed.items() if own == sort]
        parts = [self.of(body, {**environment, index: label}) for label in used]
        new = -1 - len(self.fixed)
        inside = _Form(self.facts, self.random, self.sorts, {**self.fixed, new: sort}, self.budget, self.moments)
        inside.representatives = self.representatives
        return add([*parts, self._bind(inside.of(body, {**environment, index: new}), new, sort)])

    def _bind(self, value: Polynomial, label: int, sort: str) -> Polynomial:
        """Turn a fixed label into one that is summed over."""
        result: Polynomial = {}
        for monomial, coefficient in value.items():
            bound = self._bound(monomial)
            fresh = len(bound)
            renamed = rename(monomial, {label: fresh})
            term: Polynomial = {renamed: coefficient}
            if fresh not in self._bound(renamed):
                # An index nobody mentions takes size - (labels in use) values.
                term = self._times(term, self._values_left(sort, [own for own in bound.values() if own == sort]))
            for piece, factor in term.items():
                accumulate(result, self._canonical(piece), factor)
        return result

    def _values_left(self, sort: str, bound: list[str]) -> Polynomial:
        in_use = sum(own == sort for own in self.fixed.values()) + len(bound)
        return add([single(size_generator(sort), 2), constant(-in_use)])

    def multiply(self, left: Polynomial, right: Polynomial) -> Polynomial:
        """Multiply two sums: their labels may coincide in every way that keeps each side's labels distinct."""
        result: Polynomial = {}
        bounds = {b: self._bound(b) for b in right}
        for a, x in left.items():
            ours = self._bound(a)
            for b, y in right.items():
                theirs = bounds[b]
                for matching in matchings(ours, theirs):
                    self.budget.spend(2 + len(a) + (x.numerator.bit_length() + y.numerator.bit_length() >> 9))
                    fresh = iter(range(len(ours), len(ours) + len(theirs)))
                    renaming = {label: matching[label] if label in matching else next(fresh) for label in theirs}
                    monomial = times(a, rename(b, renaming))
                    if not vanishes(monomial, self.facts.orders):
                        accumulate(result, self._canonical(monomial), x * y)
        return result

    def _mean(self, value: Polynomial, given: tuple[str, ...]) -> Polynomial:
        result: Polynomial = {}
        for monomial, coefficient in value.items():
            bound = self._bound(monomial)
            inner, outer = self.facts.parted(monomial, self.random, given)
            for moment, factor in self.moments.mean(inner).items():
                rest = times(outer, moment)
                if vanishes(rest, self.facts.orders):
                    continue
                left = self._bound(rest)
                self._collect(result, rest, coefficient * factor, [bound[n] for n in bound if n not in left])
        return result

    def _collect(self, result: Polynomial, monomial: Monomial, coefficient: object, gone: list[str]) -> None:
        """Add a monomial from which the labels of sorts `gone` have vanished."""
        term: Polynomial = {monomial: coefficient}  # type: ignore[dict-item]
        remaining = list(self._bound(monomial).values())
        for sort in gone:
            term = self._times(term, self._values_left(sort, [own for own in remaining if own == sort]))
            remaining.append(sort)
        for piece, factor in term.items():
            accumulate(result, self._canonical(piece), factor)

    def without_partition(self, value: Polynomial) -> Polynomial:
        """Multiply by powers of Z until no 1/Z is left."""
        fixed = [single((EXPONENTIAL, (label,))) for label, sort in self.fixed.items() if sort == WEIGHT_SORT]
        return self.cleared(value, INVERSE, add([*fixed, single((EXPONENTIAL, (0,)))]))

    def on_the_sphere(self, value: Polynomial) -> Polynomial:
        """Sum the squares of a vector of length 1: over labels not in use, 1 less the squares of those in use."""
        while self.facts.units:
            result: Polynomial = {}
            changed = False
            for monomial, coefficient in value.items():
                found = self._lone_square(monomial)
                pieces = {monomial: 1} if found is None else self._summed(monomial, *found)
                changed = changed or found is not None
                for piece, factor in pieces.items():
                    accumulate(result, self._canonical(piece), coefficient * factor)
            if not changed:
                break
            self.budget.spend(1 + len(result))
            value = result
        return value

    def _lone_square(self, monomial: Monomial) -> tuple[Generator, Generator | None] | None:
        """A factor w_l² whose label l occurs nowhere else: the component, and the moment that it stands in, if any."""
        bound = self._bound(monomial)
        seen: list[tuple[Generator, int, Generator | None]] = []
        for generator, power in monomial:
            inside: Monomial = generator[1] if generator[0] == MOMENT else ()  # type: ignore[assignment]
            seen += [(own, n * power, generator) for own, n in inside] if inside else [(generator, power, None)]
        for label in bound:
            places = [(own, n, where) for own, n, where in seen if label in own[1]]
            if len(places) == 1 and places[0][0][0] in self.facts.units and places[0][1] == 2:
                own, _, where = places[0]
                if where is None or dict(monomial)[where] == 1:
                    return own, where
        return None

    def _summed(self, monomial: Monomial, own: Generator, where: Generator | None) -> Polynomial:
        (label,) = own[1]
        bound = self._bound(monomial)
        sort = bound[label]  # type: ignore[index]
        used = [*(at for at, s in self.fixed.items() if s == sort), *(at for at, s in bound.items() if s == sort)]
        rest = tuple(item for item in monomial if item[0] != (where or own))
        block: Monomial = where[1] if where else ()  # type: ignore[assignment]
        left = tuple(item for item in block if item[0] != own)
        parts: list[Polynomial] = []
        for at in (None, *(at for at in used if at != label)):
            square: Monomial = () if at is None else (((own[0], (at,)), 2),)
            inner: Polynomial = self.moments.mean(times(left, square)) if where else {square: 1}
            parts.append(self._times({rest: 1 if at is None else -1}, inner))
        return add(parts)

    def cleared(self, value: Polynomial, inverse: Generator, below: Polynomial) -> Polynomial:
        """Multiply by a denominator until no inverse of it is left."""
        settled: dict[int, Polynomial] = {}
        for monomial, coefficient in value.items():
            rest = tuple(item for item in monomial if item[0] != inverse)
            accumulate(settled.setdefault(dict(monomial).get(inverse, 0), {}), rest, coefficient)
        result: Polynomial = {}
        for power in range(max(settled, default=0) + 1):
            result = add([self.multiply(result, below), settled.get(power, {})])
        return result

    def _times(self, left: Polynomial, right: Polynomial) -> Polynomial:
        return multiply(left, right, self.budget, self.facts.orders)

    def _bound(self, monomial: Monomial) -> dict[int, str]:
        """The labels that a monomial sums over, with their sorts."""
        found: dict[int, str] = {}
        for (name, labels), _ in monomial:
            if name == MOMENT:
                found |= self._bound(labels)  # type: ignore[arg-type]
            else:
                for label, sort in zip(labels, self.sorts.get(name, ()), strict=False):
                    if label >= 0:  # type: ignore[operator]
                        found[label] = sort  # type: ignore[index]
        return found

    def _canonical(self, monomial: Monomial) -> Monomial:
        """Choose one representative among all renamings of the labels summed over."""
        if monomial not in self.representatives:
            self.representatives[monomial] = self._choose(monomial)
        return self.representatives[monomial]

    def _choose(self, monomial: Monomial) -> Monomial:
        bound = self._bound(monomial)
        if not bound:
            return monomial
        # Labels that share no factor with another are told apart by what the monomial says of them alone.
        tied = entangled(monomial)
        classes: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        for label in bound:
            classes.setdefault((bound[label], signature(monomial, label)), []).append(label)
        orders = product(
            *(
                permutations(group) if any(label in tied for label in group) else (group,)
                for _, group in sorted(classes.items())
            )
        )
        candidates = []
        for order in orders:
            self.budget.spend(len(monomial))
            labels = [label for group in order for label in group]
            candidates.append(rename(monomial, {label: n for n, label in enumerate(labels)}))
        return min(candidates)
