"""
A third evaluator, by exact enumeration: it reads the notation itself and shares nothing with the kernel.

It can only refute. It gives every FALSE its witness, and the tests set it against the two decision procedures.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.refute.law import Law
from attnsym.symbolic.refute.marginals import exact_root
from attnsym.symbolic.refute.variables import Poly, Variable, mean
from attnsym.symbolic.trusted.assumptions import Assumption
from attnsym.symbolic.trusted.families import COMPONENT, KEY, family
from attnsym.symbolic.trusted.polynomial import Budget

MAX_VALUES = 700_000
_PARAMETER_NAMES = tuple(str(symbol) for symbol in n.PARAMETERS)


class NoValue(ValueError):
    """An expression without a value under this law (an irrational root, say)."""


class Evaluator:
    """
    The value of an expression: exact under a finite law, to 60 digits when scores are given.

    Parameters
    ----------
    d, keys : int
        Values of d_k and n_keys.
    law : Law or None
        The law under which expectations are taken.
    assumptions : tuple of Assumption
        What the parameters stand for: ``mean_variance(q)`` makes mu_q the mean of q.
    budget : Budget, optional
        Counts the values taken, so that a search ends.
    """

    def __init__(
        self,
        d: int,
        keys: int,
        law: Law | None,
        assumptions: tuple[Assumption, ...],
        budget: Budget | None = None,
    ) -> None:
        self.d, self.keys, self.law, self.assumptions = d, keys, law, assumptions
        self.budget = budget or Budget(MAX_VALUES)
        self.chosen: dict[str, Fraction] = {}
        self.outside: Mapping[str, Any] | None = None  # what is random and stands outside every expectation
        self._weights: list[Any] | None = None
        self._entropy: Any = None

    def of(self, node: Any, scope: Mapping[Any, int], outcome: Mapping[str, Any] | None = None) -> Any:
        """Return the value of `node`; indices get their values from `scope`, components theirs from `outcome`."""
        self.budget.spend(1)

        def value(part: Any) -> Any:
            return self.of(part, scope, outcome)

        if isinstance(node, (n.E, n.Var, n.Cov)):
            return self.expectation(node, scope)
        match node:
            case sympy.Rational():
                return Fraction(int(node.p), int(node.q))
            case sympy.Symbol():
                return self.symbol(node, outcome)
            case sympy.Indexed():
                return self.indexed(node, scope, outcome)
            case sympy.KroneckerDelta():
                return Fraction(int(scope[node.args[0]] == scope[node.args[1]]))
            case sympy.Add():
                return sum((value(part) for part in node.args), Fraction(0))
            case sympy.Mul():
                result = Fraction(1)
                for part in node.args:
                    result = self.times(result, value(part))
                return result
            case sympy.exp():
                return mpmath.exp(decimal(value(node.args[0])))
            case sympy.Pow():
                return self.power(value(node.args[0]), node.args[1])
            case sympy.log():
                return mpmath.log(decimal(value(node.args[0])))
            case sympy.Sum():
                return self.sum(node, scope, outcome)
            case n.D():
                return self.derivative(node, scope)
            case n.WeightedMean() | n.WeightedVar() | n.WeightedCov():
                return self.weighted(node, scope)
            case n.Dot():
                return self.dot(node.args[0], node.args[1], outcome)
            case n.Trace():
                return self.trace(*node.args)
        if node == sympy.pi:
            return mpmath.pi
        raise NoValue(f"no value for {type(node).__name__}")

    def times(self, one: Any, two: Any) -> Any:
        """Multiply, and charge for polynomials what they cost."""
        if isinstance(one, Poly) and isinstance(two, Poly):
            self.budget.spend(len(one.terms) * len(two.terms))
        return one * two

    def power(self, base: Any, exponent: Any) -> Any:
        if isinstance(base, Poly) and exponent.is_Integer and exponent > 0:
            result = base
            for _ in range(int(exponent) - 1):
                result = self.times(result, base)
            return result
        return _power(base, exponent)

    def size(self, sort: str) -> int:
        """The value of a size; d_model is as large as d_k."""
        return self.keys if sort == KEY else self.d

    def symbol(self, node: Any, outcome: Mapping[str, Any] | None) -> Any:
        if node in n.SIZES.values():
            return Fraction(self.size(str(node)))
        name = n.BY_SYMBOL.get(node)
        if name is not None:
            return self.drawn(name, outcome)[0]
        if node == n.H:
            if self._entropy is None:
                self._entropy = -sum(p * mpmath.log(p) for p in self.weights())
            return self._entropy
        if node == n.log_Z:
            return mpmath.log(sum(mpmath.exp(decimal(self.array("s", (key,)))) for key in range(1, self.keys + 1)))
        return self.parameter(str(node))

    def drawn(self, name: str, outcome: Mapping[str, Any] | None) -> tuple[Any, ...]:
        """The components of a random vector."""
        known = self.outside if outcome is None else outcome
        if known is None:
            raise NoValue(f"{name} is random and stands outside every expectation")
        found: tuple[Any, ...] = known[name]
        return found

    def parameter(self, name: str) -> Any:
        """A parameter tied to the law by an assumption has the law's value; any other has a value of its own."""
        if name in self.chosen:
            return self.chosen[name]
        kinds = {(item.kind, argument) for item in self.assumptions for argument in item.arguments}
        vector = name.rpartition("_")[2]
        if name.startswith(("mu_", "sigma_")) and ("mean_variance", vector) in kinds:
            first = self.mean(lambda o: o[vector][0])
            spread = self.mean(lambda o: o[vector][0] ** 2) - first**2
            return first if name.startswith("mu_") else _power(spread, sympy.Rational(1, 2))
        if name.startswith("m_") and name.endswith(")"):
            order, vector = name[2:-1].split("(")
            if {("identical", vector), ("fourth_moment", vector)} & kinds:
                return self.mean(lambda o: o[vector][0] ** int(order))
        for item in self.assumptions if name == "rho" else ():
            if item.kind == "aligned":
                return self.covariance(*item.arguments)
        known = name in _PARAMETER_NAMES
        value = Fraction(1, 2 + _PARAMETER_NAMES.index(name)) if known else Fraction(2, 41 + 2 * len(self.chosen))
        self.chosen[name] = value
        return value

    def indexed(self, node: Any, scope: Mapping[Any, int], outcome: Mapping[str, Any] | None) -> Any:
        name = n.name_of(node.base) or ""
        place = tuple(scope[index] for index in node.indices)
        known = family(name)
        if known and known.random and self.law is not None:
            return self.drawn(name, outcome)[
                place[0] - 1 if len(place) == 1 else (place[0] - 1) * self.d + place[1] - 1
            ]
        if name == "p":
            return self.weights()[place[0] - 1]
        if name.startswith("C_"):
            vector = name[2:]
            if not any(item.kind == "second_moments" and item.arguments == (vector,) for item in self.assumptions):
                return self.array(name, (min(place), max(place)))
            return self.mean(lambda o: o[vector][place[0] - 1] * o[vector][place[1] - 1])
        return self.array(name, place)

    def array(self, name: str, place: tuple[int, ...]) -> Fraction:
        """Entry of an array that is given: small rationals without pattern."""
        code = sum(map(ord, name)) + 31 * place[0] + 17 * (place[1] if len(place) > 1 else 0)
        return Fraction(code * code % 23 - 9, 7)

    def weights(self) -> list[Any]:
        if self._weights is None:
            self._weights = self._softmax()
        return self._weights

    def _softmax(self) -> list[Any]:
        powers = [mpmath.exp(decimal(self.array("s", (key,)))) for key in range(1, self.keys + 1)]
        total = sum(powers)
        return [power / total for power in powers]

    def mean(self, function: Any) -> Fraction:
        if self.law is None:
            raise NoValue("no law")
        return sum((weight * mean(function(outcome)) for weight, outcome in self.law.outcomes), Fraction(0))

    def covariance(self, first: str, second: str) -> Fraction:
        """Covariance of the first components of two vectors."""
        both = self.mean(lambda outcome: outcome[first][0] * outcome[second][0])
        return both - self.mean(lambda outcome: outcome[first][0]) * self.mean(lambda outcome: outcome[second][0])

    def conditional(self, node: Any, scope: Mapping[Any, int]) -> Any:
        """An expectation or variance given vectors whose components are variables of the law themselves."""
        if self.law is None or len(self.law.outcomes) > 1:
            raise NoValue("an expectation given a vector, under a law that is no polynomial in variables")
        outcome = self.law.outcomes[0][1]
        held: set[Variable] = set()
        for vector in node.args[1:]:
            for value in outcome[n.name_of(vector) or ""]:
                own = value.variables() if isinstance(value, Poly) else set()
                if len(own) > 1 or (own and value.linear() is None):
                    raise NoValue("a vector that does not show the variables behind it")
                held |= own
        inside = self.of(node.args[0], scope, outcome)
        first = inside.given(held) if isinstance(inside, Poly) else inside
        if isinstance(node, n.E):
            return first
        square = self.times(inside, inside)
        return (square.given(held) if isinstance(square, Poly) else square) - self.times(first, first)

    def expectation(self, node: Any, scope: Mapping[Any, int]) -> Any:
        if len(node.args) > 1 and not isinstance(node, n.Cov):
            return self.conditional(node, scope)
        if isinstance(node, n.E):
            return self.mean(lambda outcome: self.of(node.args[0], scope, outcome))
        one, two = node.args[0], node.args[-1]
        first, second, both = Fraction(0), Fraction(0), Fraction(0)
        for weight, outcome in self.law.outcomes if self.law else ():
            x = self.of(one, scope, outcome)
            y = x if one is two else self.of(two, scope, outcome)
            first, second = first + weight * mean(x), second + weight * mean(y)
            both = both + weight * mean(self.times(x, y))
        return both - first * second

    def sum(self, node: Any, scope: Mapping[Any, int], outcome: Mapping[str, Any] | None) -> Any:
        body, *limits = node.args
        ranges = [range(1, self.size(str(limit[2])) + 1) for limit in limits]
        total = Fraction(0)
        for values in product(*ranges):
            inner = {**scope, **dict(zip([limit[0] for limit in limits], values, strict=True))}
            total = total + self.of(body, inner, outcome)
        return total

    def dot(self, one: Any, two: Any, outcome: Mapping[str, Any] | None) -> Any:
        known = [family(n.name_of(vector) or "") for vector in (one, two)]
        sort = next((own.sorts[0] for own in known if own and not own.flexible), None)
        sort = sort or next((own.sorts[0] for own in known if own), COMPONENT)
        places = range(1, self.size(sort) + 1)
        pairs = ((self.of(one[n.i], {n.i: r}, outcome), self.of(two[n.i], {n.i: r}, outcome)) for r in places)
        return sum((self.times(x, y) for x, y in pairs), Fraction(0))

    def trace(self, one: Any, two: Any) -> Any:
        pairs = product(range(1, self.d + 1), repeat=2)
        return sum((self.of(one[n.i, n.j] * two[n.j, n.i], {n.i: x, n.j: y}) for x, y in pairs), Fraction(0))

    def weighted(self, node: Any, scope: Mapping[Any, int]) -> Any:
        *functions, index = node.args
        one, two = functions[0], functions[-1]
        rows = [
            (weight, self.of(one, {**scope, index: key}), self.of(two, {**scope, index: key}))
            for key, weight in enumerate(self.weights(), 1)
        ]
        first, second = sum(w * x for w, x, _ in rows), sum(w * y for w, _, y in rows)
        if isinstance(node, n.WeightedMean):
            return first
        return sum(w * x * y for w, x, y in rows) - first * second

    def derivative(self, node: Any, scope: Mapping[Any, int]) -> Any:
        """Central difference: at 60 digits a step of 1e-18 leaves an error near 1e-36."""
        function, variable = node.args
        name, place = n.name_of(variable.base) or "", tuple(scope[index] for index in variable.indices)
        step = Fraction(1, 10**18)
        up, down = (_Shifted(self, name, place, sign * step).of(function, scope) for sign in (1, -1))
        return decimal(up - down) / decimal(2 * step)


class _Shifted(Evaluator):
    """The evaluator at a point moved along one component; scores follow a moved query."""

    def __init__(self, origin: Evaluator, name: str, place: tuple[int, ...], step: Fraction) -> None:
        super().__init__(origin.d, origin.keys, origin.law, origin.assumptions, origin.budget)
        self.origin, self.name, self.place, self.step = origin, name, place, step

    def array(self, name: str, place: tuple[int, ...]) -> Fraction:
        value = self.origin.array(name, place)
        if name == self.name:
            return value + self.step * (place == self.place)
        if name == "s" and self.name in ("q", "K"):
            scale: Fraction = self.parameter("scale")
            if self.name == "q":
                return value + scale * self.step * self.origin.array("K", (*place, *self.place))
            key, component = self.place
            return value + scale * self.step * self.origin.array("q", (component,)) * (place == (key,))
        return value


def decimal(value: Any) -> Any:
    """Return a rational as an mpmath number at the working precision; leave others as they are."""
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, Poly):
        raise NoValue("a power of something random that is no whole number")
    if base == 0 and exponent < 0:
        raise NoValue("division by zero")
    if exponent.is_Integer:
        return base ** int(exponent)
    root = exact_root(base) if isinstance(base, Fraction) and exponent.q == 2 else None
    if root is not None:
        return root ** int(2 * exponent)
    if base < 0:
        raise NoValue("root of a negative number")
    return mpmath.power(decimal(base), decimal(Fraction(int(exponent.p), int(exponent.q))))
