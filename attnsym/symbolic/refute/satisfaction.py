"""Whether a finite law satisfies an assumption, by enumeration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

from attnsym.symbolic.refute.evaluator import Evaluator
from attnsym.symbolic.refute.laws import Law
from attnsym.symbolic.trusted.assumptions import Assumption


def satisfies(law: Law, item: Assumption) -> bool:
    """Whether a finite law satisfies an assumption, by enumeration (normality: up to the fourth moment)."""
    names, d = item.arguments, law.d
    mean = Evaluator(d, 1, law, ()).mean
    if item.kind in ("modulo", "second_moments"):
        return True
    components = [(name, place) for name in names for place in range(len(law.outcomes[0][1][name]))]

    def moment(*chosen: tuple[str, int]) -> Fraction:
        def product_of(outcome: Mapping[str, Any]) -> Fraction:
            result = Fraction(1)
            for name, place in chosen:
                result *= outcome[name][place]
            return result

        return mean(product_of)

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
            return _independent(law, [[own for own in components if own[1] == place] for place in range(d)])
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
            return len({_pmf(law, [own]) for own in components}) == 1
        case "fourth_moment":
            return same_everywhere(*(moment(*[own] * 4) for own in components))
        case "gaussian":
            return all(_is_normal_to_4(moment, [own]) for own in components)
        case "gaussian_pairs":
            return all(_is_normal_to_4(moment, [(names[0], r), (names[1], r)]) for r in range(d))
        case "aligned":
            return same_everywhere(*(covariance((names[0], r), (names[1], r)) for r in range(d)))
        case "same":
            return all(outcome[names[0]] == outcome[names[1]] for _, outcome in law.outcomes)
        case "constant":
            return all(len(set(outcome[names[0]])) == 1 for _, outcome in law.outcomes)
        case "isotropic":
            spread = all(moment(x, y) == Fraction(int(x == y), d) for x in components for y in components)
            return spread and all(moment(own) == 0 for own in components)
        case "induction_hypothesis":
            own = components[0]
            return moment(own) == 0 and moment(own, own) == d
    raise AssertionError(item.kind)


def _pmf(law: Law, components: list[tuple[str, int]]) -> frozenset[tuple[Any, Fraction]]:
    weights: Counter[Any] = Counter()
    for weight, outcome in law.outcomes:
        weights[tuple(outcome[name][place] for name, place in components)] += weight  # type: ignore[assignment]
    return frozenset(weights.items())  # type: ignore[arg-type]


def _independent(law: Law, groups: list[list[tuple[str, int]]]) -> bool:
    marginals = [dict(_pmf(law, group)) for group in groups]
    joint = dict(_pmf(law, [own for group in groups for own in group]))
    for values in product(*marginals):
        weight = Fraction(1)
        for marginal, value in zip(marginals, values, strict=True):
            weight *= marginal[value]
        if joint.get(tuple(entry for value in values for entry in value), Fraction(0)) != weight:
            return False
    return True


def _is_normal_to_4(moment: Any, components: list[tuple[str, int]]) -> bool:
    """Whether all third and fourth moments are those of the normal law with the same means and covariances."""

    def central(*chosen: tuple[str, int]) -> Fraction:
        if not chosen:
            return Fraction(1)
        first, rest = chosen[0], chosen[1:]
        total: Fraction = moment(first) * central(*rest)
        for position, other in enumerate(rest):
            spread = moment(first, other) - moment(first) * moment(other)
            total += spread * central(*rest[:position], *rest[position + 1 :])
        return total

    return all(moment(*chosen) == central(*chosen) for order in (3, 4) for chosen in product(components, repeat=order))
