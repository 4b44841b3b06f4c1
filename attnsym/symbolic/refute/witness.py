"""The search for a finite case in which two sides differ: what makes a claim FALSE and not merely unproved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, product
from typing import Any

import mpmath
import sympy

from attnsym.symbolic.deciding import size_function
from attnsym.symbolic.language import notation as n
from attnsym.symbolic.refute.evaluator import MAX_VALUES, Evaluator, NoValue, decimal
from attnsym.symbolic.refute.law import Law
from attnsym.symbolic.refute.laws import laws
from attnsym.symbolic.refute.marginals import ANY, LAWS, NORMALS, Marginal, normal, one_sided, with_moments
from attnsym.symbolic.refute.satisfaction import satisfies
from attnsym.symbolic.refute.variables import Poly, Variable
from attnsym.symbolic.trusted.assumptions import Assumption, given_moment
from attnsym.symbolic.trusted.families import COMPONENT, FAMILIES, family
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
    """Exact where it is rational and short."""
    if isinstance(value, Fraction) and max(value.numerator.bit_length(), value.denominator.bit_length()) <= 160:
        return str(value)
    return ("about " if isinstance(value, Fraction) else "") + str(mpmath.nstr(decimal(value), 12))


@dataclass
class Search:
    """
    What a search for a counterexample found.

    Attributes
    ----------
    witness : Witness or None
        Where the sides differ.
    compared : int
        How many laws that satisfy the assumptions were compared under.
    tried : int
        How many laws were tried.
    sizes : tuple of int
        The sizes of those compared.
    reached : Law or None
        A law of independent components that satisfies the assumptions, the same at every size.
    finished : bool
        Whether the search came to its end within the work allowed.
    """

    witness: Witness | None = None
    compared: int = 0
    tried: int = 0
    sizes: tuple[int, ...] = ()
    finished: bool = True
    reached: Law | None = None

    @property
    def told(self) -> str:
        """What was tried, as the end of a sentence."""
        if not self.compared:
            searched = "no law or number tried" if self.tried or self.finished else "nothing could be tried"
            return f"{searched} satisfies the assumptions and gives both sides a value" + self._stopped()
        at = ", ".join(map(str, sorted(self.sizes)))
        return f"the sides agree in all {self.compared} cases compared (sizes {at})" + self._stopped()

    def _stopped(self) -> str:
        return "" if self.finished else ", and the search stopped at the work allowed"


def find_witness(lhs: Any, rhs: Any, assumptions: Iterable[Assumption], at_most: int = 10_000) -> Witness | None:
    """Return the witness that `search` finds, if any."""
    found: Search = search(lhs, rhs, assumptions, at_most)
    return found.witness


@mpmath.workdps(DIGITS)  # type: ignore[untyped-decorator]
def search(lhs: Any, rhs: Any, assumptions: Iterable[Assumption], at_most: int = 10_000) -> Search:
    """
    Search laws that satisfy the assumptions for one under which the sides differ.

    Parameters
    ----------
    lhs, rhs : expression
        The claim.
    assumptions : iterable of Assumption
        What the law must satisfy, all together; checked on the law itself.
    at_most : int
        How many laws to compare under.
    """
    given = tuple(assumptions)
    left, right = (sympy.sympify(side, strict=True) for side in (lhs, rhs))
    found = Search()
    if any(item.kind in ("modulo", "exchangeable") for item in given):
        return found
    names = _names((left, right), given)
    atoms = {str(node) for side in (left, right) for node in side.atoms(sympy.Symbol)}
    names_laws = any(atom == "rho" or atom.startswith(("m_", "mu_", "sigma_")) for atom in atoms)
    expects = any(side.has(n.E, n.Var, n.Cov) for side in (left, right))
    try:
        if expects or names_laws or any(item.kind != "given" for item in given):
            _under_laws(left, right, given, names, found, at_most)
        if not (expects or names_laws or found.witness) and (found.compared or found.reached or not given):
            _deterministic(left, right, found)
    except TooLarge:
        found.finished = False
    return found


@mpmath.workdps(DIGITS)  # type: ignore[untyped-decorator]
def by_size(lhs: Any, rhs: Any, assumptions: Iterable[Assumption], found: Search) -> Witness | None:
    """
    Return the first size at which two sides differ that are, under the assumptions, functions of the sizes alone.

    The law that the search found to satisfy the assumptions stands for one such law at every size.
    """
    values = [size_function(side, assumptions) for side in (lhs, rhs)]
    if found.reached is None or None in values:
        return None
    names = sorted(set().union(*(value.sizes for value in values if value)) or {"d_k"})
    for size in range(1, 200):
        sizes = {name: size + number for number, name in enumerate(names)}
        one, two = (value.at(sizes) for value in values if value)
        if _differ(one, two):
            at = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            return Witness(f"{at}, {found.reached.name}", size, one, two)
    return None


def _names(sides: tuple[Any, Any], given: tuple[Assumption, ...]) -> list[str]:
    """The random vectors and scalars that a claim and its assumptions speak of, in the order of the notation."""
    atoms = {node for side in sides for node in side.atoms(sympy.IndexedBase, sympy.Symbol)}
    names = {name for node in atoms if (name := n.name_of(node))}
    for item in given:
        names |= set(item.arguments[:1] if item.kind in ("moment", "law") else item.arguments)
    random = [name for name in names if (own := family(name)) and own.random]
    order = list(FAMILIES)
    return sorted(random, key=lambda name: (order.index(name) if name in order else len(order), name))


def _menus(given: tuple[Assumption, ...], keys: bool) -> Callable[[str, int], Sequence[Marginal]]:
    """The laws that one component may have, by what is assumed of it alone."""
    gaussian = {name for item in given if item.kind.startswith("gaussian") for name in item.arguments}
    tied = {name: item.arguments for item in given if item.kind == "same" for name in item.arguments}

    def pick(name: str, d: int) -> Sequence[Marginal]:
        alike = {name, *tied.get(name, ())}
        own = [item for item in given if item.arguments[0] in alike and item.kind in ("law", "moment")]
        named = next((item.arguments[1] for item in own if item.kind == "law"), None)
        if named:
            return (LAWS[named],)
        numbers = {order: value / (d if size else 1) for order, value, size in map(given_moment, own)}
        kinds = {item.kind for item in given if item.arguments[0] in alike}
        if alike & gaussian:
            return _normals(numbers, kinds)
        if not numbers:
            return ANY
        mean = numbers.get(1, Fraction(0))
        second = numbers.get(2, 1 + mean**2)
        fitted = with_moments(mean, second, numbers.get(4))
        spread = with_moments(mean, second, 3 * second**2) if 4 not in numbers and not mean else None
        free = not {1, 4} & set(numbers) and "zero_mean" not in kinds
        return tuple(own for own in (fitted, spread, one_sided(second) if free else None) if own)

    return pick


def _normals(numbers: Mapping[int, Fraction], kinds: set[str]) -> Sequence[Marginal]:
    if not numbers:
        return NORMALS
    mean = numbers.get(1, Fraction(0))
    law = normal(mean, numbers[2] - mean**2 if 2 in numbers else Fraction(1))
    return (law,) if law else ()


def _under_laws(
    left: Any, right: Any, given: tuple[Assumption, ...], names: Sequence[str], found: Search, at_most: int
) -> None:
    """Compare the sides under every law at hand that satisfies the assumptions."""
    sorts = {name: own.sorts for name in names if (own := family(name))}
    vectors, scalars = [name for name in names if sorts[name]], [name for name in names if not sorts[name]]
    flexible = _flexible(left, right)
    directions = {item.arguments[0] for item in given if item.kind in ("unit", "isotropic")}
    matrices = {name for name in names if len(sorts[name]) == 2}
    default = all(item.kind not in ("law", "moment") and "gaussian" not in item.kind for item in given)
    budget = Budget(MAX_VALUES)
    cheap_first = sorted(given, key=lambda item: ("independent" in item.kind) + 2 * ("gaussian" in item.kind))
    # u and w are directions where something says so, and may be directions where nothing does.
    candidates = (
        laws(
            vectors,
            scalars,
            sizes=(2, 1) if matrices else (2, 1, 3),
            menus=None if default else _menus(given, flexible),
            matrices=matrices,
            directions=own,
        )
        for own in ([directions | {"u", "w"}, directions] if {"u", "w"} & set(names) - directions else [directions])
    )
    for law in chain.from_iterable(candidates):
        budget.spend(20 + len(law.outcomes) * (2 + len(given)))
        found.tried += 1
        keys = law.d if flexible or matrices else _KEYS
        if all(satisfies(law, item, keys) for item in cheap_first) and _one_covariance(law, given):
            if law.d > 1 and law.name.startswith(("components of", "independent components")):
                found.reached = found.reached or (None if " but " in law.name else law)
            case = _compare(left, right, Evaluator(law.d, keys, law, given, budget), law)
            if case is not None:
                found.compared += 1
                found.sizes = tuple({*found.sizes, law.d})
                found.witness = case if isinstance(case, Witness) else None
            if found.witness or found.compared >= at_most:
                return


def _flexible(*sides: Any) -> bool:
    """Whether some vector runs to a size that the rest of the claim says; then all sizes are tried alike."""
    spoken = (n.name_of(node) for side in sides for node in side.atoms(sympy.IndexedBase))
    return any(own.flexible for name in spoken if name and (own := family(name)))


def _one_covariance(law: Law, given: tuple[Assumption, ...]) -> bool:
    """Whether all aligned pairs have the same covariance: there is one ρ."""
    pairs = [((f, 0), (g, 0)) for f, g in (item.arguments for item in given if item.kind == "aligned")]
    return len({law.moment(one, two) - law.moment(one) * law.moment(two) for one, two in pairs}) < 2


def _compare(left: Any, right: Any, evaluator: Evaluator, law: Law) -> Witness | bool | None:
    """Return a witness, True where the sides agree, None where one of them has no value."""
    free = sorted({node for side in (left, right) for node in _free_indices(side)}, key=str)
    evaluator.outside = law.outcomes[0][1]
    for values in product(range(1, law.d + 1), repeat=len(free)):
        scope = dict(zip(free, values, strict=True))
        try:
            a, b = evaluator.of(left, scope), evaluator.of(right, scope)
        except NoValue:
            return None
        shown = {str(name): value for name, value in {**scope, **evaluator.chosen}.items()}
        if isinstance(a, Poly) or isinstance(b, Poly):  # something random stands outside every expectation
            a, b = (side.at(_point) if isinstance(side, Poly) else side for side in (a, b))
            shown |= _realised((left, right), evaluator.outside)
        if _differ(a, b):
            at = "".join(f", {name} = {value}" for name, value in shown.items())
            return Witness(f"d_k = {law.d}{at}, {law.name}" if law.name else f"d_k = {law.d}{at}", law.d, a, b)
    return True


def _point(variable: Variable) -> Fraction:
    """One value of a variable: the first of a list, and for others numbers without pattern."""
    number, law = variable
    return Fraction(1, number + 2) if isinstance(law, str) else law[number % len(law)][0]


def _realised(sides: tuple[Any, Any], outcome: Mapping[str, Any]) -> dict[str, str]:
    """The vectors of a claim as they came out, where it speaks of them outside expectations."""
    spoken = {n.name_of(node) for side in sides for node in side.atoms(sympy.IndexedBase, sympy.Symbol)}
    found = {}
    for name, values in outcome.items():
        if name in spoken:
            shown = (str(value.at(_point) if isinstance(value, Poly) else value) for value in values)
            found[name] = f"({', '.join(shown)})"
    return found


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


def _deterministic(left: Any, right: Any, found: Search) -> None:
    """Compare at given scores, keys, values and sizes, to 60 digits."""
    free = sorted({node for side in (left, right) for node in _free_indices(side)}, key=str)
    indexed = any(side.has(sympy.Indexed, sympy.Sum, n.Dot, n.Trace) or n.H in side.atoms() for side in (left, right))
    more = () if indexed else (*((size, size) for size in range(4, 200)), (3, 2), (2, 5), (7, 4))
    budget = Budget(MAX_VALUES)
    alike = _flexible(left, right)
    for keys, d in ((2, 2), (3, 2), (1, 1), (3, 3), (5, 5), *more):
        if alike and keys != d:
            continue
        found.tried += 1
        evaluator = Evaluator(d, keys, None, (), budget)
        for values in product(range(1, min(keys, d) + 1), repeat=len(free)):
            scope = dict(zip(free, values, strict=True))
            try:
                a, b = evaluator.of(left, scope), evaluator.of(right, scope)
            except NoValue:
                break
            if _differ(a, b):
                chosen = {**scope, **evaluator.chosen}
                at = "".join(f", {name} = {value}" for name, value in chosen.items())
                given = _shown_arrays((left, right), evaluator)
                found.witness = Witness(f"n_keys = {keys}, d_k = {d}{at}{given}", keys, a, b)
                return
        else:
            found.compared += 1
            found.sizes = tuple({*found.sizes, max(keys, d)})


def _shown_arrays(sides: tuple[Any, ...], evaluator: Evaluator) -> str:
    """Write out the vectors that a claim speaks of, as they were given."""
    atoms = {node for side in sides for node in side.atoms(sympy.IndexedBase, sympy.Symbol)}
    names = {name for node in atoms if (name := n.name_of(node))}
    names = {"s" if name == "p" else name for name in names} | ({"s"} if n.H in atoms else set())
    shown = ""
    for name, own in FAMILIES.items():
        if name in names and len(own.sorts) == 1:
            length = evaluator.d if own.sorts == (COMPONENT,) else evaluator.keys
            entries = ", ".join(str(evaluator.array(name, (place,))) for place in range(1, length + 1))
            shown += f", {name} = ({entries})"
    return shown
