"""Finite laws of queries and keys: small enough to enumerate, varied enough to contradict what is not true."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import combinations, permutations, product
from typing import TypeAlias

from attnsym.symbolic.refute.marginals import (
    AGREE,
    LENGTH,
    MEAN_ONE,
    NORMAL_MEAN_ONE,
    NORMAL_TO_4,
    NORMAL_WIDE,
    PEAKED,
    SIGN,
    SKEW,
    WIDE,
    WORDS,
    Marginal,
)
from attnsym.symbolic.trusted.assumptions import DISPLAYED

Outcome: TypeAlias = tuple[Fraction, Mapping[str, tuple[Fraction, ...]]]


Build: TypeAlias = Callable[[tuple[Fraction, ...]], Mapping[str, tuple[Fraction, ...]]]
Recipe: TypeAlias = tuple[str, list[Marginal], Build]


@dataclass(frozen=True)
class Law:
    """A joint law on finitely many outcomes, with its description and the number of components."""

    name: str
    d: int
    outcomes: tuple[Outcome, ...]


def laws(
    vectors: Sequence[str], scalars: Sequence[str] = (), *, normal: bool = False, sizes: Sequence[int] = (2, 1, 3)
) -> Iterator[Law]:
    """
    Yield laws of the vectors and scalars named, the easiest to read first.

    Parameters
    ----------
    vectors, scalars : sequence of str
        Names of families.
    normal : bool
        Use components with the moments of a normal law up to the fourth.
    sizes : sequence of int
        Values of d_k to try.
    """
    base = NORMAL_TO_4 if normal else SIGN
    directions = [name for name in vectors if name in ("u", "w")]
    plain = [name for name in vectors if name not in directions]
    for d in sizes:
        if d * len(plain) > (4 if normal else 8):
            continue
        for recipe in _vector_recipes(plain, d, base):
            for direction in _direction_recipes(directions, d):
                for scalar in _scalar_recipes(scalars, d):
                    yield _enumerate(d, (recipe, direction, scalar))


def _enumerate(d: int, recipes: Sequence[Recipe]) -> Law:
    """Multiply independent recipes out into one law."""
    outcomes: list[Outcome] = [(Fraction(1), {})]
    for _, sources, build in recipes:
        drawn = []
        for values in product(*sources):
            weight = Fraction(1)
            for _, probability in values:
                weight *= probability
            drawn.append((weight, build(tuple(value for value, _ in values))))
        outcomes = [(a * b, {**x, **y}) for a, x in outcomes for b, y in drawn]
    return Law("; ".join(name for name, _, _ in recipes if name), d, tuple(outcomes))


def _vector_recipes(vectors: Sequence[str], d: int, base: Marginal) -> Iterator[Recipe]:
    if not vectors:
        yield "", [], lambda values: {}
        return
    words = WORDS[base]
    if len(vectors) > 1:
        pairs = list(permutations(vectors, 2)) if len(vectors) > 2 else [tuple(vectors)]
        bases = (SIGN, MEAN_ONE, WIDE, PEAKED) if base is SIGN else (base,)
        yield from (_copied(vectors, pair, d, own, sign) for own in bases for pair in pairs for sign in (1, -1))
    for count in range(len(vectors), 0, -1):
        yield from (_constant(vectors, chosen, d, base) for chosen in combinations(vectors, count) if d > 1)
    if base is SIGN and d > 1:
        if len(vectors) > 1:
            yield _one_number(vectors, d)
        yield from (_constant(vectors, (name,), d, MEAN_ONE) for name in vectors)
    yield from (_independent(vectors, marginals, d) for marginals in _choices(vectors, base))
    if base is SIGN:
        yield _common_length(vectors, vectors, d)
        if len(vectors) == 3:
            yield _pairwise(vectors, d)
        if len(vectors) > 1:
            yield from (_common_length(vectors, [name], d) for name in vectors)
            yield _agreeing(vectors, d)
        yield from (_uneven(vectors, name, d) for name in vectors if d > 1)
    if d == 3:
        yield (
            f"components of {_list(vectors)} {words}, the third the product of the others",
            [base] * (2 * len(vectors)),
            lambda values: {name: (*own, own[0] * own[1]) for name, own in zip(vectors, _cut(values, 2), strict=True)},
        )


def _choices(vectors: Sequence[str], base: Marginal) -> Iterator[list[Marginal]]:
    """Marginal laws: all alike, then one vector different."""
    others = [MEAN_ONE, WIDE, SKEW, PEAKED] if base is SIGN else [NORMAL_MEAN_ONE, NORMAL_WIDE, MEAN_ONE, SIGN]
    yield [others[0]] * len(vectors)
    for position in range(len(vectors)):
        for other in others:
            yield [other if n == position else base for n in range(len(vectors))]
    yield [base] * len(vectors)
    if base is SIGN:
        yield [SKEW] * len(vectors)
        for one, two in permutations(range(len(vectors)), 2):
            for other in others:
                yield [PEAKED if n == one else other if n == two else base for n in range(len(vectors))]


def _independent(vectors: Sequence[str], marginals: Sequence[Marginal], d: int) -> Recipe:
    if len(set(marginals)) == 1:
        name = f"components of {_list(vectors)} independent, {WORDS[marginals[0]]}"
    else:
        parts = (f"of {_shown(own)} {WORDS[law]}" for own, law in zip(vectors, marginals, strict=True))
        name = "independent components, " + ", ".join(parts)
    sources = [law for law in marginals for _ in range(d)]
    return name, sources, lambda values: dict(zip(vectors, _cut(values, d), strict=True))


def _copied(vectors: Sequence[str], pair: tuple[str, ...], d: int, base: Marginal, sign: int) -> Recipe:
    first, second = pair
    rest = [name for name in vectors if name not in pair]

    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        drawn = dict(zip([first, *rest], _cut(values, d), strict=True))
        return {**drawn, second: tuple(sign * value for value in drawn[first])}

    name = f"{_shown(second)} = {'−' * (sign < 0)}{_shown(first)}, components of {_shown(first)} independent"
    return f"{name}, {WORDS[base]}", [base] * (d * (1 + len(rest))), build


def _constant(vectors: Sequence[str], chosen: Sequence[str], d: int, base: Marginal) -> Recipe:
    lengths = [1 if name in chosen else d for name in vectors]

    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        rest, drawn = values, {}
        for name, length in zip(vectors, lengths, strict=True):
            drawn[name], rest = rest[:length] * (d // length), rest[length:]
        return drawn

    what = f"{_list(chosen)} constant over the components (one number repeated)"
    return f"{what}, independent, {WORDS[base]}", [base] * sum(lengths), build


def _one_number(vectors: Sequence[str], d: int) -> Recipe:
    name = f"all components of {_list(vectors)} one and the same number, {WORDS[PEAKED]}"
    return name, [PEAKED], lambda values: dict.fromkeys(vectors, values * d)


def _common_length(vectors: Sequence[str], chosen: Sequence[str], d: int) -> Recipe:
    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        drawn = dict(zip(vectors, _cut(values[1:], d), strict=True))
        return {
            name: tuple(value * values[0] for value in own) if name in chosen else own for name, own in drawn.items()
        }

    return (
        f"components independent random signs ±1, those of {_list(chosen)} times one common length, 1/5 or 7/5 evenly",
        [LENGTH] + [SIGN] * (d * len(vectors)),
        build,
    )


def _pairwise(vectors: Sequence[str], d: int) -> Recipe:
    first, second, third = vectors

    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        one, two = _cut(values, d)
        return {first: one, second: two, third: tuple(x * y for x, y in zip(one, two, strict=True))}

    name = f"components of {_list(vectors[:2])} independent random signs ±1, each of {_shown(third)} their product"
    return name, [SIGN] * (2 * d), build


def _agreeing(vectors: Sequence[str], d: int) -> Recipe:
    first, second, *rest = vectors

    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        agree, drawn = values[:d], dict(zip([first, *rest], _cut(values[d:], d), strict=True))
        return {**drawn, second: tuple(x * y for x, y in zip(drawn[first], agree, strict=True))}

    name = f"random signs ±1, each component of {_shown(second)} equal to its {_shown(first)} with probability 3/4"
    return name, [AGREE] * d + [SIGN] * (d * (1 + len(rest))), build


def _uneven(vectors: Sequence[str], wide: str, d: int) -> Recipe:
    sources = [WIDE if name == wide and n else SIGN for name in vectors for n in range(d)]
    name = f"independent random signs ±1, but ±2 from the second component of {_shown(wide)} on"
    return name, sources, lambda values: dict(zip(vectors, _cut(values, d), strict=True))


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
            pairs = _cut(values, 2)
            return {
                name: tuple(sign * (n == axis) for n in range(d))
                for name, (axis, sign) in zip(directions, pairs, strict=True)
            }

        words = [f"{_shown(name)} {kind}" for name, kind in zip(directions, chosen, strict=True)]
        yield ", ".join(words), sources, build
    if len(directions) == 2:
        yield (
            "û = ŵ along a random axis, with a random sign",
            [_evenly(d), SIGN],
            lambda values: dict.fromkeys(directions, tuple(values[1] * (n == values[0]) for n in range(d))),
        )


def _scalar_recipes(scalars: Sequence[str], d: int) -> Iterator[Recipe]:
    """S has mean 0 and second moment d; the others are signs, or one of them is not."""
    score: Marginal = ((Fraction(d), Fraction(1, 2 * d)), (Fraction(-d), Fraction(1, 2 * d)))
    score += ((Fraction(0), 1 - Fraction(1, d)),) if d > 1 else ()
    usual = {"S": score, "z": NORMAL_TO_4}
    for different in (None, *scalars):
        for other in (MEAN_ONE, WIDE) if different else (SIGN,):
            sources = [other if name == different else usual.get(name, SIGN) for name in scalars]
            words = f"{different} {WORDS[other]}" if different else ""
            yield words, sources, lambda values: {name: (x,) for name, x in zip(scalars, values, strict=True)}
    for one, two in combinations(scalars, 2):
        sources = [usual.get(name, SIGN) for name in scalars]
        yield f"{two} = {one}", sources, partial(_repeated, scalars, one, two)


def _repeated(
    scalars: Sequence[str], one: str, two: str, values: tuple[Fraction, ...]
) -> Mapping[str, tuple[Fraction, ...]]:
    drawn = {name: (x,) for name, x in zip(scalars, values, strict=True)}
    return {**drawn, two: drawn[one]}


def _evenly(d: int) -> Marginal:
    return tuple((Fraction(n), Fraction(1, d)) for n in range(d))


def _cut(values: tuple[Fraction, ...], length: int) -> list[tuple[Fraction, ...]]:
    return [values[n : n + length] for n in range(0, len(values), length)]


def _shown(name: str) -> str:
    return DISPLAYED.get(name, name)


def _list(names: Sequence[str]) -> str:
    return " and ".join(map(_shown, names))
