"""Laws of vectors whose components are drawn from menus of their own: normal ones, or of given moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations, permutations, product
from typing import Any

from attnsym.symbolic.refute.law import Recipe, listed, shown
from attnsym.symbolic.refute.marginals import (
    LENGTH,
    SIGN,
    Marginal,
    words,
)

_TIES = (
    (Fraction(1), Fraction(0)),
    (Fraction(-1), Fraction(0)),
    (Fraction(3, 5), Fraction(4, 5)),
    (Fraction(-4, 5), Fraction(3, 5)),
)


def mixed_recipes(
    vectors: Sequence[str], lengths: Mapping[str, int], menus: Mapping[str, Sequence[Marginal]]
) -> Iterator[Recipe]:
    """Laws of vectors whose components are drawn from menus of their own."""
    if not vectors:
        yield "", [], lambda values: {}
        return
    first = {name: menus[name][0] for name in vectors}
    choices = [first, *({**first, name: other} for name in vectors for other in menus[name][1:])]
    choices.append({name: menus[name][-1] for name in vectors})
    choices += [
        {**first, one: menus[one][m], two: menus[two][n]}
        for one, two in combinations(vectors, 2)
        for m, n in product((1, 2), repeat=2)
        if m < len(menus[one]) and n < len(menus[two])
    ]
    yield _drawn(vectors, lengths, first)
    for one, two in permutations(vectors, 2):
        if lengths[one] == lengths[two]:
            yield from (_tied(vectors, lengths, first, one, two, *how) for how in _TIES)
            yield from (_turned(vectors, lengths, first, one, two, signs) for signs in (1, lengths[one]))
    yield from (_drawn(vectors, lengths, choice) for choice in choices[1:])
    for count in range(1, len(vectors) + 1):
        for chosen in combinations(vectors, count):
            for choice in choices:
                yield _repeated_number(vectors, lengths, choice, chosen)
            yield _common_sign(vectors, lengths, first, chosen)
            yield _common_factor(vectors, lengths, first, chosen)
    for one, two in permutations(vectors, 2):
        if lengths[one] == lengths[two]:
            yield from (_tied(vectors, lengths, choice, one, two, *how) for choice in choices[1:] for how in _TIES[:1])


def _law_names(vectors: Sequence[str], choice: Mapping[str, Marginal]) -> str:
    if len(set(map(choice.__getitem__, vectors))) == 1:
        return f"components of {listed(vectors)} independent, {words(choice[vectors[0]])}"
    return "independent components, " + ", ".join(f"of {shown(name)} {words(choice[name])}" for name in vectors)


def _split(vectors: Sequence[str], lengths: Mapping[str, int], values: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    drawn = {}
    for name in vectors:
        drawn[name], values = values[: lengths[name]], values[lengths[name] :]
    return drawn


def _drawn(vectors: Sequence[str], lengths: Mapping[str, int], choice: Mapping[str, Marginal]) -> Recipe:
    sources = [choice[name] for name in vectors for _ in range(lengths[name])]
    return _law_names(vectors, choice), sources, partial(_split, vectors, lengths)


def _tied(
    vectors: Sequence[str],
    lengths: Mapping[str, int],
    choice: Mapping[str, Marginal],
    one: str,
    two: str,
    slope: Fraction,
    rest: Fraction,
) -> Recipe:
    """The second vector is the first one times `slope`, and a rest that is independent of it."""
    sources = [choice[name] for name in vectors for _ in range(lengths[name])]

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        drawn = _split(vectors, lengths, values)
        pairs = zip(drawn[one], drawn[two], strict=True)
        return {**drawn, two: tuple(slope * x + rest * y for x, y in pairs)}

    what = f"{shown(two)} = " + {1: "", -1: "−"}.get(int(slope) if rest == 0 else 0, f"{slope}·") + shown(one)
    what += f" + {rest}·(the like, independent)" if rest else ""
    others = [name for name in vectors if name != two]
    return f"{what}, {_law_names(others, choice)}", sources, build


def _turned(
    vectors: Sequence[str], lengths: Mapping[str, int], choice: Mapping[str, Marginal], one: str, two: str, signs: int
) -> Recipe:
    """The second vector is the first one times a random sign, one for all components or one for each."""
    rest = [name for name in vectors if name != two]

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        drawn = _split(rest, lengths, values[signs:])
        turned = tuple(values[min(n, signs - 1)] * x for n, x in enumerate(drawn[one]))
        return {**drawn, two: turned}

    how = "one random sign" if signs == 1 else "random signs"
    sources = [SIGN] * signs + [choice[name] for name in rest for _ in range(lengths[name])]
    return f"{shown(two)} = {shown(one)} times {how}, {_law_names(rest, choice)}", sources, build


def _repeated_number(
    vectors: Sequence[str], lengths: Mapping[str, int], choice: Mapping[str, Marginal], chosen: Sequence[str]
) -> Recipe:
    """Vectors whose components are all one number, the others with independent components."""
    drawn = {name: 1 if name in chosen else lengths[name] for name in vectors}

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        return {name: own * (lengths[name] // drawn[name]) for name, own in _split(vectors, drawn, values).items()}

    sources = [choice[name] for name in vectors for _ in range(drawn[name])]
    return f"{listed(chosen)} constant over the components, {_law_names(vectors, choice)}", sources, build


def _common_sign(
    vectors: Sequence[str], lengths: Mapping[str, int], choice: Mapping[str, Marginal], chosen: Sequence[str]
) -> Recipe:
    sources = [choice[name] for name in vectors for _ in range(lengths[name])]

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        drawn = _split(vectors, lengths, values[1:])
        first = drawn[chosen[0]]
        turned = {name: tuple(values[0] * x for x in drawn[name]) for name in chosen if name != chosen[0]}
        return {**drawn, **turned, chosen[0]: first if turned else (*first[:-1], values[0] * first[0])}

    name = f"{_law_names(vectors, choice)}, but " + (
        f"{listed(chosen[1:])} times one common random sign"
        if len(chosen) > 1
        else f"the last component of {shown(chosen[0])} its first times a random sign"
    )
    return name, [SIGN, *sources], build


def _common_factor(
    vectors: Sequence[str], lengths: Mapping[str, int], choice: Mapping[str, Marginal], chosen: Sequence[str]
) -> Recipe:
    sources = [choice[name] for name in vectors for _ in range(lengths[name])]

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        drawn = _split(vectors, lengths, values[1:])
        return drawn | {name: tuple(values[0] * x for x in drawn[name]) for name in chosen}

    return f"{_law_names(vectors, choice)}, {listed(chosen)} times one common 1/5 or 7/5", [LENGTH, *sources], build
