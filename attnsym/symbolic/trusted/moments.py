"""The expectation of one monomial under stated facts: split by independence, then put in what is known."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from attnsym.symbolic.trusted.assumptions import law_moment
from attnsym.symbolic.trusted.facts import Facts
from attnsym.symbolic.trusted.families import family as known_family
from attnsym.symbolic.trusted.polynomial import (
    Budget,
    Generator,
    Monomial,
    Polynomial,
    add,
    constant,
    multiply,
    single,
    size_generator,
    times,
)
from attnsym.symbolic.trusted.terms import EXPONENTIAL, INVERSE_PARTITION, WEIGHT_SORT

MOMENT = "E[]"
INVERSE: Generator = (INVERSE_PARTITION, ())


class Moments:
    """
    Expectations of monomials in random components.

    Each rule below is an equality that holds for every law satisfying the facts; what no rule covers stays as an
    opaque moment. Different indices stand for different components.
    """

    def __init__(self, facts: Facts, budget: Budget, values: Mapping[str, Polynomial] | None = None) -> None:
        self.facts = facts
        self.values = values or {}
        self.budget = budget
        self.blocks: set[Monomial] = set()
        self._cache: dict[Monomial, Polynomial] = {}
        self._patterns: dict[object, Polynomial] = {}
        self._values: dict[Monomial, Polynomial] = {}
        self._covariance: Polynomial | None = None

    def mean(self, monomial: Monomial) -> Polynomial:
        """Return E[monomial] as a polynomial in known constants and opaque moments."""
        if monomial not in self._cache:
            # The facts do not know one index from another: what is known of a pattern is known of all of its kind.
            pattern = _pattern(monomial)
            if pattern not in self._patterns:
                result = constant(1)
                for block in self._split(monomial) if monomial else ():
                    self.blocks.add(block)
                    result = self._times(result, self._value(block))
                if any(name == MOMENT for term in result for (name, _), _ in term):
                    self._cache[monomial] = result
                    return result
                self._patterns[pattern] = result
            self._cache[monomial] = self._patterns[pattern]
        return self._cache[monomial]

    def parameter(self, name: str) -> Polynomial:
        """
        Return the value of a parameter, under the facts that say what it is.

        A name that some fact ties to a law follows every other fact about that law, so that assuming more never
        loses a proof: with ``zero_mean(q)`` and ``mean_variance(q)``, μ_q is 0.
        """
        facts = self.facts
        if name in self.values:
            return self.values[name]
        kind, family = name[:2], name[2:]
        if kind == "μ_" and facts.declares("mean_variance", family):
            return self._power(facts.root(family), self._place(family), 1)
        if kind == "σ_" and facts.declares("mean_variance", family):
            return self._deviation(facts.root(family))
        if kind == "m_":
            order, family = name[2:-1].split("(")
            self.blocks.add((((family, ()), int(order)),))
            if facts.declares("identical", family) or (order == "4" and facts.declares("fourth_moment", family)):
                return self._power(facts.root(family), self._place(family), int(order))
        return self._common_covariance() if name == "ρ" else single((name, ()))

    def _place(self, family: str) -> tuple[object, ...]:
        """Indices of one component, whichever: what it shares with all the others is asked for."""
        known = known_family(family)
        return self.facts.representative(family, (0,) * len(known.sorts if known else ()))[1]

    def _deviation(self, family: str) -> Polynomial:
        """The standard deviation that all components share."""
        if self.facts.says("unit_variance", family):
            return constant(1)
        if self.facts.says("isotropic", family):
            return single(size_generator("d_k"), -1)
        return single((f"σ_{self.facts.named['mean_variance', family]}", ()))

    def _common_covariance(self) -> Polynomial:
        """The one covariance ρ of all aligned pairs: what is known of any of them holds for all."""
        if self._covariance is None:
            self._covariance = single(("ρ", ()))
            for f, g in self.facts.aligned:
                value = self._known_covariance(f, g)
                if value is not None and (len(value) < 2 or self._covariance == single(("ρ", ()))):
                    self._covariance = value
                if value == {}:
                    break
        return self._covariance

    def _known_covariance(self, f: str, g: str) -> Polynomial | None:
        """Cov(f_i, g_i) where other facts say what it is."""
        one, two = (f, self._place(f)), (g, self._place(g))
        if f == g:
            variance = self._variance(*one)
            opaque = any(name == MOMENT for monomial in variance for (name, _), _ in monomial)
            return None if opaque else variance
        pair: Monomial = tuple(sorted(((one, 1), (two, 1))))
        return {} if len(self._split(pair)) > 1 else None

    def second(self, family: str, first: object, second: object) -> Polynomial:
        """Return E[x_i x_j], which the matrix of second moments abbreviates."""
        places = [self.facts.representative(family, (index,)) for index in (first, second)]
        return self.mean(times(((places[0], 1),), ((places[1], 1),)))

    def _split(self, block: Monomial) -> list[Monomial]:
        """Cut a monomial into factors whose expectations multiply."""
        families = {name for (name, _), _ in block}
        indices = {index for (_, index), _ in block}
        says = self.facts.says
        parts: list[Monomial] = []
        if len(families) > 1:
            for group in self.facts.groups:
                if families <= group:
                    parts = [tuple(part) for _, part in groupby(block, lambda item: item[0][0])]
            for first, group in self.facts.apart:
                if not parts and first in families and families <= group:
                    parts = [
                        tuple(item for item in block if item[0][0] == first),
                        tuple(item for item in block if item[0][0] != first),
                    ]
        if not parts and len(block) > 1 and self.facts.fixed & families:
            parts = [tuple(item for item in block if (item[0][0] in self.facts.fixed) is own) for own in (True, False)]
            parts = [(item,) for item in parts[0]] + [part for part in parts[1:] if part]
        # A component that is the same for every index () belongs to all of them, and splits from none.
        if not parts and len(indices) > 1 and () not in indices:
            (name, *others) = families
            within = not others and says("independent_components", name)
            if within or any(families <= pair for pair in self.facts.pairs):
                by_index = sorted(block, key=lambda item: item[0][1])
                parts = [tuple(sorted(part)) for _, part in groupby(by_index, lambda item: item[0][1])]
        if not parts and len(block) == 2 and [power for _, power in block] == [1, 1]:
            names = sorted(name for (name, _), _ in block)
            if says("uncorrelated", *(names if names[0] != names[1] else names[:1])):
                parts = [(item,) for item in block]
        return [piece for part in parts for piece in self._split(part)] if parts else [block]

    def _value(self, block: Monomial) -> Polynomial:
        """E[block] where no independence separates the factors."""
        if block not in self._values:
            if block[-1][0][0] == EXPONENTIAL and self.facts.says("exchangeable", "p"):
                self._values[block] = _exchanged(block)
            elif len(block) == 1:
                (((family, index), power),) = block
                self._values[block] = self._single(family, index, power)
            else:
                self._values[block] = self._pair(block) if len(block) == 2 else single((MOMENT, block))
        return self._values[block]

    def _power(self, family: str, index: tuple[object, ...], n: int) -> Polynomial:
        return self._value((((family, index), n),)) if n else constant(1)

    def _single(self, family: str, index: tuple[object, ...], n: int) -> Polynomial:
        """E[x^n] for one component x."""
        says = self.facts.says
        opaque = single((MOMENT, (((family, index), n),)))
        if says("induction_hypothesis", family) and n <= 2:
            return constant(0) if n == 1 else single(size_generator("d_k"), 2)
        if says("isotropic", family) and n <= 2:
            return constant(0) if n == 1 else single(size_generator("d_k"), -2)
        if n == 1 and says("zero_mean", family):
            return constant(0)
        if n > 1 and family in self.facts.fixed:
            return self._raised(self._power(family, index, 1), n)
        if n == 2 and self.facts.spread_evenly(family):
            return single(size_generator("d_k"), -2)
        named, number = self.facts.named, self._number(family, n)
        if number is not None:
            return number
        if n == 1 and says("mean_variance", family):
            return single((f"μ_{named['mean_variance', family]}", ()))
        if n == 2 and says("unit_variance", family):
            return add([constant(1), self._square(self._power(family, index, 1))])
        if n == 2 and says("mean_variance", family):
            return add([self._square(self._deviation(family)), self._square(self._power(family, index, 1))])
        if n > 2 and says("gaussian", family):
            mean = self._power(family, index, 1)
            lower = self._times(mean, self._power(family, index, n - 1))
            spread = self._times(self._variance(family, index), self._power(family, index, n - 2))
            return add([lower, self._times(constant(n - 1), spread)])
        kind = "identical" if says("identical", family) else "fourth_moment"
        if kind == "identical" or (n == 4 and says(kind, family)):
            return single((f"m_{n}({named[kind, family]})", ()))
        return opaque

    def _number(self, family: str, n: int) -> Polynomial | None:
        """E[x^n] where it was given as a number, or by the name of a law."""
        if (family, n) in self.facts.numbers:
            value, size = self.facts.numbers[family, n]
            return self._times(constant(value), single(size_generator(size), -2)) if size else constant(value)
        law = self.facts.laws.get(family)
        return None if law is None else constant(law_moment(law, n))

    def _pair(self, block: Monomial) -> Polynomial:
        """E[x^a y^b] for two components that no independence separates."""
        ((f, i), a), ((g, j), b) = block
        says = self.facts.says
        if f == g and a == b == 1 and says("isotropic", f):
            return constant(0)
        if f != g and (i == j or () in (i, j)):  # a component that is the same for every index has them all
            if a == b == 1 and says("aligned", f, g):
                means = self._times(self._power(f, i, 1), self._power(g, j, 1))
                return add([self._common_covariance(), means])
            if a + b > 2 and says("gaussian_pairs", f, g):
                return self._stein(block)
        return single((MOMENT, block))

    def _stein(self, block: Monomial) -> Polynomial:
        """Stein's identity for a normal pair: E[x·h] = E[x]E[h] + Var(x)E[∂h/∂x] + Cov(x,y)E[∂h/∂y]."""
        ((f, i), a), ((g, j), b) = block
        mean, other = self._power(f, i, 1), self._power(g, j, 1)

        def moment(m: int, n: int) -> Polynomial:
            return self.mean(tuple(item for item in (((f, i), m), ((g, j), n)) if item[1]))

        covariance = add([moment(1, 1), self._times(constant(-1), self._times(mean, other))])
        terms = [self._times(mean, moment(a - 1, b))]
        if a > 1:
            terms.append(self._times(constant(a - 1), self._times(self._variance(f, i), moment(a - 2, b))))
        terms.append(self._times(constant(b), self._times(covariance, moment(a - 1, b - 1))))
        return add(terms)

    def _variance(self, family: str, index: tuple[object, ...]) -> Polynomial:
        square = self._square(self._power(family, index, 1))
        return add([self._power(family, index, 2), self._times(constant(-1), square)])

    def _square(self, value: Polynomial) -> Polynomial:
        return self._times(value, value)

    def _raised(self, value: Polynomial, n: int) -> Polynomial:
        result = constant(1)
        for _ in range(n):
            result = self._times(result, value)
        return result

    def _times(self, left: Polynomial, right: Polynomial) -> Polynomial:
        return multiply(left, right, self.budget)


def _pattern(monomial: Monomial) -> object:
    """The factors of a monomial gathered by index, the indices forgotten where each factor bears at most one."""
    if any(len(index) > 1 for (_, index), _ in monomial):
        order: dict[object, int] = {}
        return tuple(
            (name, tuple(order.setdefault(at, len(order)) for at in index), power) for (name, index), power in monomial
        )
    by_index: dict[tuple[object, ...], list[tuple[str, int]]] = {}
    for (name, index), power in monomial:
        by_index.setdefault(index, []).append((name, power))
    return tuple(sorted((bool(index), tuple(factors)) for index, factors in by_index.items()))


def _exchanged(block: Monomial) -> Polynomial:
    """Weights that are alike in law: E[pᵢ] = 1/n_keys, and no moment of one of them depends on which it is."""
    if block == ((INVERSE, 1), (block[-1][0], 1)):
        return single(size_generator(WEIGHT_SORT), -2)
    names = [name for (name, _), _ in block]
    if names == [INVERSE[0], EXPONENTIAL]:
        return single((MOMENT, (block[0], ((EXPONENTIAL, (-1000,)), block[1][1]))))
    return single((MOMENT, block))
