"""The laws at hand, the easiest to read first: varied enough to contradict what is not true."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations, product
from typing import Any

from attnsym.symbolic.refute.law import Law, Outcome, Recipe, cut, shown
from attnsym.symbolic.refute.marginals import (
    ANY,
    NORMAL,
    NORMALS,
    SIGN,
    Marginal,
    source,
    words,
)
from attnsym.symbolic.refute.mixed import mixed_recipes
from attnsym.symbolic.refute.recipes import vector_recipes

SPACING = 4  # numbers of variables that one component may use


def laws(
    vectors: Sequence[str],
    scalars: Sequence[str] = (),
    *,
    normal: bool = False,
    sizes: Sequence[int] = (2, 1, 3),
    menus: Callable[[str, int], Sequence[Marginal]] | None = None,
    matrices: Collection[str] = (),
    directions: Collection[str] = ("u", "w"),
) -> Iterator[Law]:
    """
    Yield laws of the vectors and scalars named, the easiest to read first.

    Parameters
    ----------
    vectors, scalars : sequence of str
        Names of families.
    normal : bool
        Whether all components are normal.
    sizes : sequence of int
        Values of d_k to try.
    menus : callable, optional
        The laws that a component of each vector may have at each d_k, the plainest first; overrules `normal`.
    matrices : collection of str
        Vectors that have d_k² components.
    directions : collection of str
        Vectors of length 1.
    """
    usual = NORMALS if normal else ANY
    pick = menus or (lambda name, d: usual)
    turning = [name for name in vectors if name in directions]
    plain = [name for name in vectors if name not in directions]
    for d in sizes:
        lengths = {name: d * d if name in matrices else d for name in plain}
        choices = {name: pick(name, d) for name in plain}
        if not all(choices.values()):
            continue
        recipes = vector_recipes(plain, d) if all(own is ANY for own in choices.values()) else ()
        if recipes == () or matrices:
            recipes = mixed_recipes(plain, lengths, choices)
        for recipe in recipes:
            for direction in _direction_recipes(turning, d):
                for scalar in _scalar_recipes(scalars, d, pick):
                    yield _drawn_up(d, (recipe, direction, scalar))


def _drawn_up(d: int, recipes: tuple[Recipe, Recipe, Recipe]) -> Law:
    """Put independent recipes together: directions as a list of outcomes, all others as variables."""
    plain, turning, single = recipes
    fixed: dict[str, tuple[Any, ...]] = {}
    number = 0
    for _, sources, build in (plain, single):
        own = tuple(source(marginal).renamed(SPACING * (number + n)) for n, marginal in enumerate(sources))
        number += len(sources)
        fixed |= build(own)
    outcomes: list[Outcome] = []
    for values in product(*turning[1]):
        weight = Fraction(1)
        for _, probability in values:
            weight *= probability
        outcomes.append((weight, {**fixed, **turning[2](tuple(value for value, _ in values))}))
    return Law("; ".join(name for name, _, _ in recipes if name), d, tuple(outcomes))


def _direction_recipes(directions: Sequence[str], d: int) -> Iterator[Recipe]:
    """Random unit vectors: a signed axis, any of them or always the first."""
    kinds = {
        "along a random axis, with a random sign": (_evenly(d), SIGN),
        "along the first axis, with a random sign": (_evenly(1), SIGN),
        "the first axis": (_evenly(1), ((Fraction(1), Fraction(1)),)),
    }
    for chosen in product(kinds, repeat=len(directions)):
        sources = [source for kind in chosen for source in kinds[kind]]

        def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
            pairs = cut(values, 2)
            return {
                name: tuple(sign * (n == axis) for n in range(d))
                for name, (axis, sign) in zip(directions, pairs, strict=True)
            }

        words = [f"{shown(name)} {kind}" for name, kind in zip(directions, chosen, strict=True)]
        yield ", ".join(words), sources, build
    if len(directions) == 2:
        yield (
            "û = ŵ along a random axis, with a random sign",
            [_evenly(d), SIGN],
            lambda values: dict.fromkeys(directions, tuple(values[1] * (n == values[0]) for n in range(d))),
        )


def _scalar_recipes(scalars: Sequence[str], d: int, pick: Callable[[str, int], Sequence[Marginal]]) -> Iterator[Recipe]:
    """S has mean 0 and second moment d, z is normal; the others are signs, or one of them is not."""
    score: Marginal = ((Fraction(d), Fraction(1, 2 * d)), (Fraction(-d), Fraction(1, 2 * d)))
    score += ((Fraction(0), 1 - Fraction(1, d)),) if d > 1 else ()
    usual = {name: pick(name, d)[0] for name in scalars} | {"S": score, "z": NORMAL}
    for different in (None, *scalars):
        for other in pick(different, d)[1:3] if different else (SIGN,):
            chosen = usual | ({different: other} if different else {})
            spelled = {name: f"±{d} with probability {Fraction(1, 2 * d)} each" for name in scalars if name == "S"}
            named = [f"{name} {spelled.get(name, words(own))}" for name, own in chosen.items() if name in scalars]
            yield ", ".join(named), [chosen[name] for name in scalars], partial(_single_values, scalars)
    for one, two in combinations(scalars, 2):
        sources = [usual[name] for name in scalars]
        yield f"{two} = {one}, {one} {words(usual[one])}", sources, partial(_repeated, scalars, one, two)


def _single_values(scalars: Sequence[str], values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
    return {name: (x,) for name, x in zip(scalars, values, strict=True)}


def _repeated(
    scalars: Sequence[str], one: str, two: str, values: tuple[Fraction, ...]
) -> Mapping[str, tuple[Fraction, ...]]:
    drawn = {name: (x,) for name, x in zip(scalars, values, strict=True)}
    return {**drawn, two: drawn[one]}


def _evenly(d: int) -> Marginal:
    return tuple((Fraction(n), Fraction(1, d)) for n in range(d))
