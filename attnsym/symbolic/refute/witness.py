"""The search for a finite case in which two sides differ: what makes a claim FALSE and not merely unproved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.refute.evaluator import MAX_VALUES, Evaluator, NoValue, decimal
from attnsym.symbolic.refute.laws import Law, laws
from attnsym.symbolic.refute.satisfaction import satisfies
from attnsym.symbolic.trusted.assumptions import Assumption
from attnsym.symbolic.trusted.families import COMPONENT, FAMILIES
from attnsym.symbolic.trusted.polynomial import Budget, TooLarge

DIGITS = 60
DIFFERENT = mpmath.mpf(10) ** -20
_KEYS = 3


@dataclass(frozen=True)
class Witness:
    """
    Where two sides differ.

    Attributes
    ----------
    where : str
        The finite law, or the scores.
    size : int
        d_k for a law, n_keys for scores.
    lhs, rhs : Fraction or decimal number
        The two values.
    """

    where: str
    size: int
    lhs: Any
    rhs: Any

    def __str__(self) -> str:
        """One sentence."""
        return (
            f"Counterexample: {self.where}: the left side is {_number(self.lhs)}, the right side {_number(self.rhs)}."
        )


def _number(value: Any) -> str:
    return str(value) if isinstance(value, Fraction) else mpmath.nstr(value, 12)


@mpmath.workdps(DIGITS)  # type: ignore[untyped-decorator]
def find_witness(
    lhs: Any,
    rhs: Any,
    assumptions: Iterable[Assumption],
    highest: Mapping[str, int] | None = None,
    at_most: int = 10_000,
) -> Witness | None:
    """
    Search finite laws that satisfy the assumptions for one on which the sides differ.

    Parameters
    ----------
    lhs, rhs : expression
        The claim.
    assumptions : iterable of Assumption
        What the law must satisfy, checked by enumeration as well.
    highest : mapping of str to int, optional
        Highest power of each family inside an expectation. A finite law is never normal: where normality is assumed,
        a law stands in that agrees with it up to the fourth moment, if that is all the claim can see.
    at_most : int
        How many laws to compare under.
    """
    given = tuple(assumptions)
    left, right = (sympy.sympify(side, strict=True) for side in (lhs, rhs))
    names = {
        n.BY_SYMBOL[node]
        for side in (left, right)
        for node in side.atoms(sympy.IndexedBase, sympy.Symbol)
        if node in n.BY_SYMBOL
    }
    names |= {name for item in given for name in item.arguments if name in FAMILIES}
    random = [name for name in FAMILIES if name in names and FAMILIES[name].random]
    if any(item.kind == "modulo" for item in given):
        return None
    if not given and not any(side.has(n.E, n.Var, n.Cov) for side in (left, right)):
        return _deterministic_witness(left, right)
    normal = {name for item in given if item.kind.startswith("gaussian") for name in item.arguments}
    if any((highest or {}).get(name, 5) > 4 for name in normal):
        return None
    vectors = [name for name in random if FAMILIES[name].sorts]
    scalars = [name for name in random if not FAMILIES[name].sorts]
    rooted = any(
        node.exp == sympy.Rational(1, 2) or node.exp.q == 2 for side in (left, right) for node in side.atoms(sympy.Pow)
    )
    sizes = (1, 4) if rooted else (1, 2) if normal else (2, 1, 3)
    cheap_first = sorted(given, key=lambda item: ("independent" in item.kind) + 2 * ("gaussian" in item.kind))
    budget, compared = Budget(MAX_VALUES), 0
    try:
        for law in laws(vectors, scalars, normal=bool(normal), sizes=sizes):
            budget.spend(5 * len(law.outcomes))
            if compared < at_most and all(satisfies(law, item) for item in cheap_first):
                compared += 1
                witness = _compare(left, right, Evaluator(law.d, _KEYS, law, given, budget), law)
                if witness:
                    return witness
    except TooLarge:
        pass  # not found within the work allowed: unknown, which is what None says
    return None


def _compare(left: Any, right: Any, evaluator: Evaluator, law: Law) -> Witness | None:
    free = sorted({node for side in (left, right) for node in _free_indices(side)}, key=str)
    for values in product(range(1, law.d + 1), repeat=len(free)):
        scope = dict(zip(free, values, strict=True))
        try:
            a, b = evaluator.of(left, scope), evaluator.of(right, scope)
        except NoValue:
            return None
        if _differ(a, b):
            chosen = {**scope, **evaluator.chosen}
            at = "".join(f", {name} = {value}" for name, value in chosen.items())
            return Witness(f"d_k = {law.d}{at}, {law.name}", law.d, a, b)
    return None


def _differ(a: Any, b: Any) -> bool:
    """Exactly for rationals; values with exponentials or logarithms by more than rounding at 60 digits can make."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a != b
    return bool(abs(decimal(a) - decimal(b)) > DIFFERENT * (1 + abs(decimal(a))))


def _free_indices(expression: Any) -> set[Any]:
    if isinstance(expression, sympy.Sum):
        body, *limits = expression.args
        return _free_indices(body) - {limit[0] for limit in limits}
    if isinstance(expression, (n.WeightedMean, n.WeightedVar, n.WeightedCov)):
        return set().union(*map(_free_indices, expression.args[:-1])) - {expression.args[-1]}
    if expression in n.INDICES:
        return {expression}
    return set().union(*map(_free_indices, expression.args)) if expression.args else set()


def _deterministic_witness(left: Any, right: Any) -> Witness | None:
    """Compare at given scores, keys, values and sizes, to 60 digits."""
    free = sorted({node for side in (left, right) for node in _free_indices(side)}, key=str)
    for keys, d in ((2, 2), (3, 2), (1, 1), (3, 3), (5, 5)):
        evaluator = Evaluator(d, keys, None, ())
        for values in product(range(1, min(keys, d) + 1), repeat=len(free)):
            scope = dict(zip(free, values, strict=True))
            try:
                a, b = evaluator.of(left, scope), evaluator.of(right, scope)
            except NoValue:
                return None
            if _differ(a, b):
                chosen = {**scope, **evaluator.chosen}
                at = "".join(f", {name} = {value}" for name, value in chosen.items())
                given = _shown_arrays((left, right), evaluator)
                return Witness(f"n_keys = {keys}, d_k = {d}{at}{given}", keys, a, b)
    return None


def _shown_arrays(sides: tuple[Any, ...], evaluator: Evaluator) -> str:
    """Write out the vectors that a claim speaks of, as they were given."""
    atoms = {node for side in sides for node in side.atoms(sympy.IndexedBase, sympy.Symbol)}
    names = {n.BY_SYMBOL[node] for node in atoms if node in n.BY_SYMBOL}
    names = {"s" if name == "p" else name for name in names} | ({"s"} if n.H in atoms else set())
    shown = ""
    for name, family in FAMILIES.items():
        if name in names and len(family.sorts) == 1:
            length = evaluator.d if family.sorts == (COMPONENT,) else evaluator.keys
            entries = ", ".join(str(evaluator.array(name, (place,))) for place in range(1, length + 1))
            shown += f", {name} = ({entries})"
    return shown
