"""Finite laws of queries and keys: small enough to enumerate, varied enough to contradict what is not true."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import combinations, permutations, product
from typing import Any, TypeAlias

from attnsym.symbolic.refute.marginals import (
    AGREE,
    ANY,
    LENGTH,
    MEAN_ONE,
    NORMAL,
    NORMALS,
    PEAKED,
    SIGN,
    SKEW,
    WIDE,
    WORDS,
    Marginal,
    source,
    words,
)
from attnsym.symbolic.refute.variables import mean
from attnsym.symbolic.trusted.assumptions import DISPLAYED

Outcome: TypeAlias = tuple[Fraction, Mapping[str, tuple[Any, ...]]]


Build: TypeAlias = Callable[[tuple[Any, ...]], Mapping[str, tuple[Any, ...]]]
SPACING = 4  # numbers of variables that one component may use
Recipe: TypeAlias = tuple[str, list[Marginal], Build]


@dataclass(frozen=True)
class Law:
    """A joint law on finitely many outcomes, with its description and the number of components."""

    name: str
    d: int
    outcomes: tuple[Outcome, ...]
    _moments: dict[tuple[tuple[str, int], ...], Fraction] = field(default_factory=dict, compare=False, repr=False)

    def moment(self, *components: tuple[str, int]) -> Fraction:
        """E of the product of some components."""
        if components not in self._moments:
            total = Fraction(0)
            for weight, outcome in self.outcomes:
                value: Any = Fraction(1)
                for name, place in components:
                    value = value * outcome[name][place]
                total += weight * mean(value)
            self._moments[components] = total
        return self._moments[components]


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
        recipes = _vector_recipes(plain, d) if all(own is ANY for own in choices.values()) else ()
        if recipes == () or matrices:
            recipes = _mixed_recipes(plain, lengths, choices)
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


def _mixed_recipes(
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


_TIES = (
    (Fraction(1), Fraction(0)),
    (Fraction(-1), Fraction(0)),
    (Fraction(3, 5), Fraction(4, 5)),
    (Fraction(-4, 5), Fraction(3, 5)),
)


def _law_names(vectors: Sequence[str], choice: Mapping[str, Marginal]) -> str:
    if len(set(map(choice.__getitem__, vectors))) == 1:
        return f"components of {_list(vectors)} independent, {words(choice[vectors[0]])}"
    return "independent components, " + ", ".join(f"of {_shown(name)} {words(choice[name])}" for name in vectors)


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

    what = f"{_shown(two)} = " + {1: "", -1: "−"}.get(int(slope) if rest == 0 else 0, f"{slope}·") + _shown(one)
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
    return f"{_shown(two)} = {_shown(one)} times {how}, {_law_names(rest, choice)}", sources, build


def _repeated_number(
    vectors: Sequence[str], lengths: Mapping[str, int], choice: Mapping[str, Marginal], chosen: Sequence[str]
) -> Recipe:
    """Vectors whose components are all one number, the others with independent components."""
    drawn = {name: 1 if name in chosen else lengths[name] for name in vectors}

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        return {name: own * (lengths[name] // drawn[name]) for name, own in _split(vectors, drawn, values).items()}

    sources = [choice[name] for name in vectors for _ in range(drawn[name])]
    return f"{_list(chosen)} constant over the components, {_law_names(vectors, choice)}", sources, build


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
        f"{_list(chosen[1:])} times one common random sign"
        if len(chosen) > 1
        else f"the last component of {_shown(chosen[0])} its first times a random sign"
    )
    return name, [SIGN, *sources], build


def _common_factor(
    vectors: Sequence[str], lengths: Mapping[str, int], choice: Mapping[str, Marginal], chosen: Sequence[str]
) -> Recipe:
    sources = [choice[name] for name in vectors for _ in range(lengths[name])]

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        drawn = _split(vectors, lengths, values[1:])
        return drawn | {name: tuple(values[0] * x for x in drawn[name]) for name in chosen}

    return f"{_law_names(vectors, choice)}, {_list(chosen)} times one common 1/5 or 7/5", [LENGTH, *sources], build


def _vector_recipes(vectors: Sequence[str], d: int) -> Iterator[Recipe]:
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
            f"components of {_list(vectors)} {WORDS[SIGN]}, the third the product of the others",
            [SIGN] * (2 * len(vectors)),
            lambda values: {name: (*own, own[0] * own[1]) for name, own in zip(vectors, _cut(values, 2), strict=True)},
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
        name = f"components of {_list(vectors)} independent, {WORDS[marginals[0]]}"
    else:
        parts = (f"of {_shown(own)} {WORDS[law]}" for own, law in zip(vectors, marginals, strict=True))
        name = "independent components, " + ", ".join(parts)
    sources = [law for law in marginals for _ in range(d)]
    return name, sources, lambda values: dict(zip(vectors, _cut(values, d), strict=True))


def _copied(
    vectors: Sequence[str], pair: tuple[str, ...], d: int, base: Marginal, sign: int, third: Marginal | None = None
) -> Recipe:
    first, second = pair
    rest = [name for name in vectors if name not in pair]

    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        drawn = dict(zip([first, *rest], _cut(values, d), strict=True))
        return {**drawn, second: tuple(sign * value for value in drawn[first])}

    name = f"{_shown(second)} = {'−' * (sign < 0)}{_shown(first)}, components of {_shown(first)} independent"
    others = "" if third is None else f", those of {_list(rest)} {WORDS[third]}"
    sources = [base] * d + [third or base] * (d * len(rest))
    return f"{name}, {WORDS[base]}{others}", sources, build


def _shifted(vectors: Sequence[str], pair: tuple[str, ...], d: int) -> Recipe:
    """The second vector is the first one and 1, the others independent signs."""
    first, second = pair
    rest = [name for name in vectors if name != second]

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        drawn = dict(zip(rest, _cut(values, d), strict=True))
        return {**drawn, second: tuple(value + 1 for value in drawn[first])}

    name = f"{_shown(second)} = {_shown(first)} + 1, components of {_list(rest)} independent, {WORDS[SIGN]}"
    return name, [SIGN] * (d * len(rest)), build


def _not_random(vectors: Sequence[str], chosen: Sequence[str], d: int, step: int) -> Recipe:
    """Vectors that are fixed numbers, the others independent signs."""
    rest = [name for name in vectors if name not in chosen]

    def build(values: tuple[Any, ...]) -> Mapping[str, tuple[Any, ...]]:
        return {
            **{name: (value,) * d for name, value in numbers.items()},
            **dict(zip(rest, _cut(values, d), strict=True)),
        }

    numbers = {name: Fraction(1 + n * step, 2) for n, name in enumerate(chosen)}
    told = ", ".join(f"every component of {_shown(name)} the number {value}" for name, value in numbers.items())
    others = f", components of {_list(rest)} independent, {WORDS[SIGN]}" if rest else ""
    return told + others, [SIGN] * (d * len(rest)), build


def _constant(vectors: Sequence[str], chosen: Sequence[str], d: int, base: Marginal) -> Recipe:
    lengths = [1 if name in chosen else d for name in vectors]

    def build(values: tuple[Fraction, ...]) -> Mapping[str, tuple[Fraction, ...]]:
        rest, drawn = values, {}
        for name, length in zip(vectors, lengths, strict=True):
            drawn[name], rest = rest[:length] * (d // length), rest[length:]
        return drawn

    what = f"{_list(chosen)} constant over the components (one number repeated)"
    return f"{what}, independent, {WORDS[base]}", [base] * sum(lengths), build


def _one_number(vectors: Sequence[str], d: int, marginal: Marginal) -> Recipe:
    name = f"all components of {_list(vectors)} one and the same number, {WORDS[marginal]}"
    return name, [marginal], lambda values: dict.fromkeys(vectors, values * d)


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


def _cut(values: tuple[Fraction, ...], length: int) -> list[tuple[Fraction, ...]]:
    return [values[n : n + length] for n in range(0, len(values), length)]


def _shown(name: str) -> str:
    return DISPLAYED.get(name, name)


def _list(names: Sequence[str]) -> str:
    return " and ".join(map(_shown, names))
