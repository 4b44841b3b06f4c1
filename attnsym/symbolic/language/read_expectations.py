"""Reading expectations, variances and covariances, and what they hold fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.language.reader import GrammarError, Reader, shown
from attnsym.symbolic.trusted.families import MOVING, RANDOM, family
from attnsym.symbolic.trusted.terms import (
    Mean,
    Mul,
    Power,
    Term,
    subtract,
)


def read_mean(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    hold(reader, node)
    return Mean(reader.read(node.args[0], scope), held_by(reader, node))


def held_by(reader: Reader, node: Any) -> tuple[str, ...]:
    """The vectors that an expectation is taken given, ``E(Dot(k, q), q)``."""
    names = tuple(n.name_of(vector) or "" for vector in node.args[1:])
    known = [family(name) for name in names]
    if any(own is None or not own.random for own in known):
        raise GrammarError(f"an expectation is taken given random vectors, E(Dot(k, q), q): got {shown(node)}")
    return names


def hold(reader: Reader, node: Any) -> None:
    """
    Say what an expectation holds fixed.

    Scores, weights, keys and values move with the query and the keys: they are no numbers to an expectation over
    those, unless ``given(p)`` says so. Under an expectation over vectors of the user's own they are held fixed,
    and the verdict says so.
    """
    found = {n.name_of(atom) or str(atom) for atom in node.atoms(sympy.IndexedBase, sympy.Symbol)}
    moving = (found & MOVING) - reader.held
    if not moving or reader.exchangeable:
        return
    over = {name for name in found if name and (known := family(name)) and known.random}
    if not over or over & RANDOM:
        what = ", ".join(sorted(moving))
        raise GrammarError(
            f"{what} move{'s' * (len(moving) == 1)} with the query and the keys, and under {type(node).__name__} "
            f"would pass for a number: assume given({what}) to take expectations given {what}, in {shown(node)}"
        )
    reader.given |= moving


def read_variance(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    hold(reader, node)
    inside = reader.read(node.args[0], scope)
    held = held_by(reader, node)
    return subtract(Mean(Power(inside, 2), held), Power(Mean(inside, held), 2))


def read_covariance(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    hold(reader, node)
    return _covariance(*(reader.read(part, scope) for part in node.args))


def _covariance(left: Term, right: Term) -> Term:
    return subtract(Mean(Mul((left, right))), Mul((Mean(left), Mean(right))))
