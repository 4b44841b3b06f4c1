"""Labels of monomials that are summed over: renaming them, telling them apart, letting them coincide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, permutations
from typing import Any

from attnsym.symbolic.trusted.moments import MOMENT
from attnsym.symbolic.trusted.polynomial import Generator, Monomial


def entangled(monomial: Monomial) -> set[int]:
    """Labels that occur together with another one in a factor."""
    found: set[int] = set()
    for (name, labels), _ in monomial:
        inside: set[Any] = set(labels)
        if name == MOMENT:
            factors: Any = labels
            inside = {label for (_, own), _ in factors for label in own}
        found |= inside if len(inside) > 1 else set()
    return found


def matchings(ours: Mapping[int, str], theirs: Mapping[int, str]) -> Iterator[dict[int, int]]:
    """Partial one-to-one maps from their labels to ours of the same sort."""
    for count in range(min(len(ours), len(theirs)) + 1):
        for chosen in combinations(theirs, count):
            for targets in permutations(ours, count):
                if all(theirs[a] == ours[b] for a, b in zip(chosen, targets, strict=True)):
                    yield dict(zip(chosen, targets, strict=True))


def rename(monomial: Monomial, renaming: Mapping[int, int]) -> Monomial:
    if not renaming:
        return monomial
    powers: dict[Generator, int] = {}
    for (name, labels), power in monomial:
        new: tuple[object, ...]
        if name == MOMENT:
            new = rename(labels, renaming)  # type: ignore[arg-type]
        else:
            new = tuple(renaming.get(label, label) for label in labels)  # type: ignore[call-overload]
            if name.startswith("C_"):
                new = tuple(sorted(new))  # type: ignore[type-var]
        powers[(name, new)] = powers.get((name, new), 0) + power
    return tuple(sorted(powers.items()))


def signature(monomial: Monomial, label: int) -> tuple[str, ...]:
    """What a monomial says of one label, whatever the other labels are called."""
    seen = []
    for (name, labels), power in monomial:
        if name == MOMENT:
            factors: Any = labels
            described = sorted(f"{own}{_marked(own, places, label)}^{n}" for (own, places), n in factors)
            mentions = any(label in places for (_, places), _ in factors)
        else:
            described, mentions = [_marked(name, labels, label)], label in labels
        if mentions:
            seen.append(f"{name}{described}^{power}")
    return tuple(sorted(seen))


def _marked(name: str, labels: tuple[Any, ...], label: int) -> str:
    """Mark one label, blur the others that are summed over, keep the fixed ones."""
    marks = ["*" if own == label else "?" if own >= 0 else str(own) for own in labels]
    return ",".join(sorted(marks) if name.startswith("C_") else marks)
