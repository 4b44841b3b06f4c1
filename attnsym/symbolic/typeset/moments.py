"""The moments that a statement needs finite, as people write them."""

from __future__ import annotations

from collections.abc import Iterable

from attnsym.symbolic.trusted.polynomial import Monomial
from attnsym.symbolic.typeset.boxes import Row, Script, Token
from attnsym.symbolic.typeset.glyphs import vector_box


def named_moments(blocks: Iterable[Monomial]) -> tuple[str, ...]:
    """
    Name the expectations that must be finite, largest first.

    By Hölder's inequality a mixed moment is finite when the moment of its total degree is, so that one line for each
    set of vectors is enough.
    """
    degrees: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
    for block in blocks:
        totals: dict[str, int] = {}
        for (family, _), power in block:
            totals[family] = totals.get(family, 0) + power
        if totals:
            degrees.setdefault(tuple(totals), set()).add(tuple(totals.values()))
    named = []
    for families, found in sorted(degrees.items(), key=lambda item: [(name != "q", name) for name in item[0]]):
        largest = [own for own in found if not any(own != other and _below(own, other) for other in found)]
        named += [_moment(families, powers) for powers in sorted(largest)]
    return tuple(named)


def _below(powers: tuple[int, ...], others: tuple[int, ...]) -> bool:
    return all(a <= b for a, b in zip(powers, others, strict=True))


def _moment(families: tuple[str, ...], powers: tuple[int, ...]) -> str:
    factors = []
    for family, power in sorted(zip(families, powers, strict=True), key=lambda item: (item[0] != "q", item[0])):
        above = Token(str(power)) if power > 1 else None
        factors.append(Script(vector_box(family), Token("i") if family.islower() and family != "z" else None, above))
    inside = Row(tuple(factors)).unicode()
    return f"E[{inside}]" if all(power % 2 == 0 for power in powers) else f"E|{inside}|"
