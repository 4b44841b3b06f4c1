"""Whether a finite law satisfies an assumption, by enumeration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import prod
from typing import Any, TypeAlias

from attnsym.symbolic.refute.law import Law, Outcome
from attnsym.symbolic.refute.variables import CONSTANT, SIGNS, Poly, Variable, mean
from attnsym.symbolic.trusted.assumptions import Assumption, given_moment


def satisfies(law: Law, item: Assumption, keys: int = 0) -> bool:
    """
    Whether a law satisfies an assumption: by enumeration, and by exact moments where a component is no list of values.

    True is certain. Of variables that are no lists, independence is seen where they are different ones, or jointly
    normal and uncorrelated.
    """
    names, d = item.arguments, law.d
    if item.kind in ("modulo", "second_moments", "given"):
        return True
    if item.kind == "exchangeable":
        return False
    names = names[:1] if item.kind in ("moment", "law") else names
    components = [(name, place) for name in names for place in range(len(law.outcomes[0][1][name]))]
    moment = law.moment

    def variance(own: tuple[str, int]) -> Fraction:
        return moment(own, own) - moment(own) ** 2

    def covariance(one: tuple[str, int], two: tuple[str, int]) -> Fraction:
        return moment(one, two) - moment(one) * moment(two)

    def same_everywhere(*values: Fraction) -> bool:
        return len(set(values)) == 1

    match item.kind:
        case "independent":
            return _independent(law, [[own for own in components if own[0] == name] for name in names])
        case "independent_of":
            return _independent(
                law, [[own for own in components if (own[0] == names[0]) is first] for first in (True, False)]
            )
        case "independent_components":
            return _independent(law, [[own] for own in components])
        case "independent_pairs":
            places = range(len(components) // 2)
            return _independent(law, [[own for own in components if own[1] == place] for place in places])
        case "uncorrelated":
            pairs = [(one, two) for one in components for two in components if one < two]
            return all(covariance(*pair) == 0 for pair in pairs if len(names) == 1 or pair[0][0] != pair[1][0])
        case "zero_mean":
            return all(moment(own) == 0 for own in components)
        case "unit_variance":
            return all(variance(own) == 1 for own in components)
        case "mean_variance":
            return same_everywhere(*map(moment, components)) and same_everywhere(*map(variance, components))
        case "identical":
            return len({_shape(law, [own]) for own in components}) == 1
        case "fourth_moment":
            return same_everywhere(*(moment(*[own] * 4) for own in components))
        case "gaussian":
            return all(_is_normal(law, [own]) for own in components)
        case "gaussian_pairs":
            return all(_is_normal(law, [(names[0], r), (names[1], r)]) for r in range(len(components) // 2))
        case "aligned":
            return same_everywhere(*(covariance((names[0], r), (names[1], r)) for r in range(len(components) // 2)))
        case "same":
            return all(outcome[names[0]] == outcome[names[1]] for _, outcome in law.outcomes)
        case "constant":
            return all(len(set(outcome[names[0]])) == 1 for _, outcome in law.outcomes)
        case "moment":
            order, number, size = given_moment(item)
            number /= {"": 1, "n_keys": keys or d}.get(size, d)
            return all(moment(*[own] * order) == number for own in components)
        case "law":
            return all(_has_law(law, own, item.arguments[1]) for own in components)
        case "unit":
            return all(sum((x * x for x in outcome[names[0]]), Fraction(0)) == 1 for _, outcome in law.outcomes)
        case "isotropic":
            spread = all(moment(x, y) == Fraction(int(x == y), d) for x in components for y in components)
            return spread and all(moment(own) == 0 for own in components)
        case "induction_hypothesis":
            own = components[0]
            return moment(own) == 0 and moment(own, own) == d
    raise AssertionError(item.kind)


Place: TypeAlias = tuple[str, int]
MAX_LISTED = 1024
_EVEN = ("sign", "uniform", "laplace")


def _pmf(outcomes: Sequence[Outcome], components: list[Place]) -> frozenset[tuple[Any, Fraction]]:
    weights: dict[Any, Fraction] = {}
    for weight, outcome in outcomes:
        key = tuple(outcome[name][place] for name, place in components)
        weights[key] = weights.get(key, Fraction(0)) + weight
    return frozenset(weights.items())


def _independent(law: Law, groups: list[list[Place]]) -> bool:
    """Structure first, which is certain; then moments, which can only refuse; then a list of all outcomes."""
    if _looks_independent(law.outcomes, groups):
        return True
    for one, two in combinations(groups, 2):
        for x, y in product(one, two):
            for powers in ((1, 1), (2, 2)):
                chosen = [x] * powers[0] + [y] * powers[1]
                if law.moment(*chosen) != law.moment(*chosen[: powers[0]]) * law.moment(*chosen[powers[0] :]):
                    return False
    listed = _listed(law, [own for group in groups for own in group])
    return listed is not None and _looks_independent(listed, groups)


def _looks_independent(outcomes: Sequence[Outcome], groups: list[list[Place]]) -> bool:
    marginals = [dict(_pmf(outcomes, group)) for group in groups]
    joint = dict(_pmf(outcomes, [own for group in groups for own in group]))
    if prod(map(len, marginals)) > len(joint):  # some combination has probability 0
        return False
    for values in product(*marginals):
        weight = Fraction(1)
        for marginal, value in zip(marginals, values, strict=True):
            weight *= marginal[value]
        if joint.get(tuple(entry for value in values for entry in value), Fraction(0)) != weight:
            return False
    return all(
        _apart([x for values in one for x in values], [y for values in two for y in values])
        for one, two in combinations(marginals, 2)
    )


def _listed(law: Law, components: list[Place]) -> Sequence[Outcome] | None:
    """All outcomes of some components with their probabilities, where there are not too many to list."""
    values = [outcome[name][place] for _, outcome in law.outcomes for name, place in components]
    variables = sorted(set().union(*(x.variables() for x in values if isinstance(x, Poly))))
    lists = [own for _, own in variables if not isinstance(own, str)]
    if len(lists) < len(variables) or prod(map(len, lists)) * len(law.outcomes) > MAX_LISTED:
        return None
    found: list[Outcome] = []
    names = {name for name, _ in components}
    for drawn in product(*lists):
        at = dict(zip(variables, (value for value, _ in drawn), strict=True))
        chance = prod((weight for _, weight in drawn), start=Fraction(1))
        for weight, outcome in law.outcomes:
            found.append((weight * chance, {name: tuple(_at(x, at) for x in outcome[name]) for name in names}))
    return found


def _at(value: Any, variables: Mapping[Any, Fraction]) -> Any:
    if not isinstance(value, Poly):
        return value
    return sum(
        (number * prod((variables[own] ** power for own, power in powers), start=Fraction(1)))
        for powers, number in value.terms.items()
    )


def _apart(first: list[Any], second: list[Any]) -> bool:
    """Whether the variables behind two groups of values are independent: different, or normal and uncorrelated."""
    ours, theirs = ([x for x in group if isinstance(x, Poly)] for group in (first, second))
    shared = set().union(*(x.variables() for x in ours)) & set().union(*(y.variables() for y in theirs))
    if not shared:
        return True
    linear = [x.linear() for x in (*ours, *theirs) if x.variables() & shared]
    if any(own is None or not _all_normal(own) for own in linear):
        return False
    return all(mean(x * y) == mean(x) * mean(y) for x in ours for y in theirs)


def _all_normal(form: Mapping[Variable, Any]) -> bool:
    return all(law in ("", "normal") for _, law in form)


def _is_normal(law: Law, components: list[Place]) -> bool:
    """Whether the components are jointly normal: linear in normal variables, with one covariance in all outcomes."""
    for _, outcome in law.outcomes:
        for value in _unsigned([outcome[name][place] for name, place in components]):
            own = value.linear() if isinstance(value, Poly) else None
            if own is None or not _all_normal(own):
                return False
    return len(_shape(law, components)) == 1


def _shape(law: Law, components: list[Place]) -> frozenset[tuple[Any, Fraction]]:
    """The joint law of some components up to the names of variables: normal ones by their means and covariances."""
    weights: Counter[Any] = Counter()
    for weight, outcome in law.outcomes:
        values = _unsigned([outcome[name][place] for name, place in components])
        weights[_form(values)] += weight  # type: ignore[assignment]
    return frozenset(weights.items())  # type: ignore[arg-type]


def _unsigned(values: list[Any]) -> list[Any]:
    """Leave out a random sign common to all terms, where beside it there are normal variables of mean 0."""
    signs = set()
    for value in values:
        for powers in value.terms if isinstance(value, Poly) else ((),):
            signs.add(tuple(item for item in powers if item[0][1] is SIGNS))
            if [own[1] for own, _ in powers if own[1] is not SIGNS] != ["normal"]:
                return values
    if len(signs) != 1 or () in signs:
        return values
    (common,) = signs
    return [
        Poly({tuple(item for item in powers if item not in common): number for powers, number in value.terms.items()})
        for value in values
    ]


def _form(values: list[Any]) -> Any:
    linear = [value.linear() if isinstance(value, Poly) else {CONSTANT: value} for value in values]
    normal = all(own is not None and _all_normal(own) for own in linear)
    if normal and any(isinstance(value, Poly) for value in values):
        moments = [mean(x) for x in values] + [mean(x * y) for x in values for y in values]
        return "normal", tuple(moments)
    names: dict[Any, Any] = {}
    form = []
    for value in values:
        if isinstance(value, Poly):
            terms = []
            for powers, number in sorted(value.terms.items()):
                renamed = [(names.setdefault(own, len(names)), own[1], e) for own, e in powers]
                terms.append((tuple(renamed), number))
            form.append(tuple(terms))
        else:
            form.append(value)
    return tuple(form)


def _has_law(law: Law, own: Place, name: str) -> bool:
    if name == "normal":
        return _is_normal(law, [own]) and law.moment(own) == 0 and law.moment(own, own) == 1
    values = [outcome[own[0]][own[1]] for _, outcome in law.outcomes]
    return all(_is_standard(value, name) for value in values)


def _is_standard(value: Any, name: str) -> bool:
    """Whether a value is one variable of this law, as it is."""
    form = list((value.linear() or {}).items()) if isinstance(value, Poly) else []
    if len(form) != 1 or form[0][0][1] != (SIGNS if name == "sign" else name):
        return False
    return bool(form[0][1] == 1 or (name in _EVEN and form[0][1] == -1))
