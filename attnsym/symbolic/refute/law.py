"""A law: the components of each vector as numbers or as polynomials in independent variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from attnsym.symbolic.refute.marginals import (
    Marginal,
)
from attnsym.symbolic.refute.variables import mean
from attnsym.symbolic.trusted.assumptions import DISPLAYED

Outcome: TypeAlias = tuple[Fraction, Mapping[str, tuple[Any, ...]]]
Build: TypeAlias = Callable[[tuple[Any, ...]], Mapping[str, tuple[Any, ...]]]
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


def cut(values: tuple[Fraction, ...], length: int) -> list[tuple[Fraction, ...]]:
    return [values[n : n + length] for n in range(0, len(values), length)]


def shown(name: str) -> str:
    return DISPLAYED.get(name, name)


def listed(names: Sequence[str]) -> str:
    return " and ".join(map(shown, names))
