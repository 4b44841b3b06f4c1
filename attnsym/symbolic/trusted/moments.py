"""The expectation of one monomial under stated facts: split by independence, then put in what is known."""

from __future__ import annotations

from itertools import groupby

from attnsym.symbolic.trusted.assumptions import Facts
from attnsym.symbolic.trusted.polynomial import (
    Budget,
    Monomial,
    Polynomial,
    add,
    constant,
    multiply,
    single,
    size_generator,
    times,
)

MOMENT = "E[]"


class Moments:
    """
    Expectations of monomials in random components.

    Each rule below is an equality that holds for every law satisfying the facts; what no rule covers stays as an
    opaque moment. Different indices stand for different components.
    """

    def __init__(self, facts: Facts, budget: Budget) -> None:
        self.facts = facts
        self.budget = budget
        self.blocks: set[Monomial] = set()
        self._cache: dict[Monomial, Polynomial] = {}
        self._values: dict[Monomial, Polynomial] = {}

    def mean(self, monomial: Monomial) -> Polynomial:
        """Return E[monomial] as a polynomial in known constants and opaque moments."""
        if monomial not in self._cache:
            result = constant(1)
            for block in self._split(monomial) if monomial else ():
                self.blocks.add(block)
                result = self._times(result, self._value(block))
            self._cache[monomial] = result
        return self._cache[monomial]

    def parameter(self, name: str) -> Polynomial:
        """
        Return the value of a parameter, under the facts that say what it is.

        A name that some fact ties to a law follows every other fact about that law, so that assuming more never
        loses a proof: with ``zero_mean(q)`` and ``mean_variance(q)``, μ_q is 0.
        """
        says = self.facts.says
        kind, family = name[:2], name[2:]
        if kind == "μ_" and says("mean_variance", family):
            return self._power(family, (), 1)
        if kind == "σ_" and says("mean_variance", family) and says("unit_variance", family):
            return constant(1)
        if kind == "m_":
            order, family = name[2:-1].split("(")
            self.blocks.add((((family, ()), int(order)),))
            if says("identical", family) or (order == "4" and says("fourth_moment", family)):
                return self._power(family, (), int(order))
        for f, g in self.facts.aligned if name == "ρ" else ():
            pair = self.mean(tuple(sorted((((f, (0,)), 1), ((g, (0,)), 1)))))
            means = self._times(self._power(f, (0,), 1), self._power(g, (0,), 1))
            return add([pair, self._times(constant(-1), means)])
        return single((name, ()))

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
            if len(block) == 1:
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
        if n == 1 and says("mean_variance", family):
            return single((f"μ_{family}", ()))
        if n == 2 and says("unit_variance", family):
            return add([constant(1), self._square(self._power(family, index, 1))])
        if n == 2 and says("mean_variance", family):
            return add([single((f"σ_{family}", ()), 2), self._square(self._power(family, index, 1))])
        if n > 2 and says("gaussian", family):
            mean = self._power(family, index, 1)
            lower = self._times(mean, self._power(family, index, n - 1))
            spread = self._times(self._variance(family, index), self._power(family, index, n - 2))
            return add([lower, self._times(constant(n - 1), spread)])
        if says("identical", family) or (n == 4 and says("fourth_moment", family)):
            return single((f"m_{n}({family})", ()))
        return opaque

    def _pair(self, block: Monomial) -> Polynomial:
        """E[x^a y^b] for two components that no independence separates."""
        ((f, i), a), ((g, j), b) = block
        says = self.facts.says
        if f == g and a == b == 1 and says("isotropic", f):
            return constant(0)
        if f != g and i == j:
            if a == b == 1 and says("aligned", f, g):
                means = self._times(self._power(f, i, 1), self._power(g, j, 1))
                return add([single(("ρ", ())), means])
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

    def _times(self, left: Polynomial, right: Polynomial) -> Polynomial:
        return multiply(left, right, self.budget)
