"""Laws of vectors of which no component is of a given law: random signs, and what is unlike them in one respect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

from attnsym.symbolic.refute.law import Recipe, cut, listed, shown
from attnsym.symbolic.refute.marginals import (
    AGREE,
    LENGTH,
    MEAN_ONE,
    PEAKED,
    SIGN,
    SKEW,
    WIDE,
    WORDS,
    Marginal,
)


def vector_recipes(vectors: Sequence[str], d: int) -> Iterator[Recipe]:
    if not vectors:
        yield "", [], lambda values: {}
        return
    if len(vectors) > 1:
        pairs = list(permutations(vectors, 2)) if len(vectors) > 2 else [tuple(vectors)]
        bases = (SIGN, MEAN_ONE, WIDE, PEAKED)
        yield from (_copied(vectors, pair, d, own, sign) for own in bases for pair in pairs for sign in (1, -1))
    for count in range(len(vectors), 0, -1):
        yield from (_constant(vectors, chosen, d, SIGN) for chosen in combinations(vectors, count) if d > 1)
    if d > 1:
        if len(vectors) > 1:
            yield from (_one_number(vectors, d, own) for own in (PEAKED, SIGN, MEAN_ONE, SKEW))
        yield from (_constant(vectors, (name,), d, own) for name in vectors for own in (MEAN_ONE, SKEW, PEAKED))
    yield from (_independent(vectors, marginals, d) for marginals in _choices(vectors))
    yield _common_length(vectors, vectors, d)
    if len(vectors) == 3:
        yield _pairwise(vectors, d)
    if len(vectors) > 1:
        yield from (_common_length(vectors, [name], d) for name in vectors)
        yield _agreeing(vectors, d)
    yield from (_uneven(vectors, name, d) for name in vectors if d > 1)
    if len(vectors) == 3:
        thirds = product(pairs, ((SIGN, MEAN_ONE), (SIGN, SKEW), (MEAN_ONE, SIGN), (SKEW, SIGN)), (1, -1))
        yield from (_copied(vectors, pair, d, base, sign, third) for pair, (base, third), sign in thirds)
    yield from (_shifted(vectors, pair, d) for pair in permutations(vectors, 2))
    for count in range(1, len(vectors) + 1):
        yield from (_not_random(vectors, chosen, d, step) for chosen in combinations(vectors, count) for step in (1, 0))
    if d == 3:
        yield (
            f"components of {listed(vectors)} {WORDS[SIGN]}, the third the product of the others",
            [SIGN] * (2 * len(vectors)),
            lambda values: {name: (*own, own[0] * own[1]) for name, own in zip(vectors, cut(values, 2), strict=True)},
        )


def _choices(vectors: Sequence[str]) -> Iterator[list[Marginal]]:
    """Marginal laws: all alike, then one vector different."""
    others = [MEAN_ONE, WIDE, SKEW, PEAKED]
    yield [others[0]] * len(vectors)
    for position in range(len(vectors)):
        for other in others:
            yield [other if n == position else SIGN for n in range(len(vectors))]
    yield [SIGN] * len(vectors)
    yield [SKEW] * len(vectors)
    for one, two in permutations(range(len(vectors)), 2):
        for other in others:
            yield [PEAKED if n == one else other if n == two else SIGN for n in range(len(vectors))]


def _independent(vectors: Sequence[str], marginals: Sequence[Marginal], d: int) -> Recipe:
    if len(set(marginals)) == 1:
        name = f"components of {listed(vectors)} independent, {WORDS[marginals[0]]}"
    else:
        parts = (f"of {shown(own)} {WORDS[law]}" for own, law in zip(vectors, marginals, strict=True))
        name = "independent components, " + ", ".join(parts)
    sources = [law for law in marginals for _ in range(d)]
    return name, sources, lambda values: dict(zip(vectors, cut(values, d), strict=True))


def _copied(
    vectors: Sequence[str], pair: tuple[str, ...], d: int, base: Marginal, sign: int, third: Marginal | None = None
) -> Recipe:
    first, second = pair
    rest = [name for name in vectors if name not in pair]

    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        drawn = dict(zip([first, *rest], cut(values, d), strict=True))
        return {**drawn, second: tuple(sign * value for value in drawn[first])}

    name = f"{shown(second)} = {'−' * (sign < 0)}{shown(first)}, components of {shown(first)} independent"
    others = "" if third is None else f", those of {listed(rest)} {WORDS[third]}"
    sources = [base] * d + [third or base] * (d * len(rest))
    return f"{name}, {WORDS[base]}{others}", sources, build


def _shifted(vectors: Sequence[str], pair: tuple[str, ...], d: int) -> Recipe:
    """The second vector is the first one and 1, the others independent signs."""
    first, second = pair
    rest = [name for name in vectors if name != second]

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        drawn = dict(zip(rest, cut(values, d), strict=True))
        return {**drawn, second: tuple(value + 1 for value in drawn[first])}

    name = f"{shown(second)} = {shown(first)} + 1, components of {listed(rest)} independent, {WORDS[SIGN]}"
    return name, [SIGN] * (d * len(rest)), build


def _not_random(vectors: Sequence[str], chosen: Sequence[str], d: int, step: int) -> Recipe:
    """Vectors that are fixed numbers, the others independent signs."""
    rest = [name for name in vectors if name not in chosen]

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        return {
            **{name: (value,) * d for name, value in numbers.items()},
            **dict(zip(rest, cut(values, d), strict=True)),
        }

    numbers = {name: Fraction(1 + n * step, 2) for n, name in enumerate(chosen)}
    told = ", ".join(f"every component of {shown(name)} the number {value}" for name, value in numbers.items())
    others = f", components of {listed(rest)} independent, {WORDS[SIGN]}" if rest else ""
    return told + others, [SIGN] * (d * len(rest)), build


def _constant(vectors: Sequence[str], chosen: Sequence[str], d: int, base: Marginal) -> Recipe:
    lengths = [1 if name in chosen else d for name in vectors]

    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        rest, drawn = values, {}
        for name, length in zip(vectors, lengths, strict=True):
            drawn[name], rest = rest[:length] * (d // length), rest[length:]
        return drawn

    what = f"{listed(chosen)} constant over the components (one number repeated)"
    return f"{what}, independent, {WORDS[base]}", [base] * sum(lengths), build


def _one_number(vectors: Sequence[str], d: int, marginal: Marginal) -> Recipe:
    name = f"all components of {listed(vectors)} one and the same number, {WORDS[marginal]}"
    return name, [marginal], lambda values: dict.fromkeys(vectors, values * d)


def _common_length(vectors: Sequence[str], chosen: Sequence[str], d: int) -> Recipe:
    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        drawn = dict(zip(vectors, cut(values[1:], d), strict=True))
        return {
            name: tuple(value * values[0] for value in own) if name in chosen else own for name, own in drawn.items()
        }

    return (
        f"components independent random signs ±1, those of {listed(chosen)} times one common length, 1/5 or 7/5 evenly",
        [LENGTH] + [SIGN] * (d * len(vectors)),
        build,
    )


def _pairwise(vectors: Sequence[str], d: int) -> Recipe:
    first, second, third = vectors

    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        one, two = cut(values, d)
        return {first: one, second: two, third: tuple(x * y for x, y in zip(one, two, strict=True))}

    name = f"components of {listed(vectors[:2])} independent random signs ±1, each of {shown(third)} their product"
    return name, [SIGN] * (2 * d), build


def _agreeing(vectors: Sequence[str], d: int) -> Recipe:
    first, second, *rest = vectors

    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        agree, drawn = values[:d], dict(zip([first, *rest], cut(values[d:], d), strict=True))
        return {**drawn, second: tuple(x * y for x, y in zip(drawn[first], agree, strict=True))}

    name = f"random signs ±1, each component of {shown(second)} equal to its {shown(first)} with probability 3/4"
    return name, [AGREE] * d + [SIGN] * (d * (1 + len(rest))), build


def _uneven(vectors: Sequence[str], wide: str, d: int) -> Recipe:
    sources = [WIDE if name == wide and n else SIGN for name in vectors for n in range(d)]
    name = f"independent random signs ±1, but ±2 from the second component of {shown(wide)} on"
    return name, sources, lambda values: dict(zip(vectors, cut(values, d), strict=True))
