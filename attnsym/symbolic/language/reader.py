"""One claim's scope while it is read: its indices, its names, the sizes that its vectors run to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.trusted.assumptions import Assumption
from attnsym.symbolic.trusted.families import COMPONENT, FAMILIES, KEY, RANDOM
from attnsym.symbolic.trusted.polynomial import TooLarge
from attnsym.symbolic.trusted.terms import (
    EXPONENTIAL,
    INVERSE_PARTITION,
    LOG_PARTITION,
    SCORE,
    Term,
    weight,
)

MAX_EXPONENT = 16
MAX_BITS = 2048
MAX_NODES = 20_000  # of the terms, written out
MAX_DEPTH = 60
MAX_ROOT = 10**6


class GrammarError(ValueError):
    """An expression that the completeness lemma does not cover; the checker refuses it and does not guess."""


class Reader:
    """
    One claim's scope: the same free index is the same number on both sides.

    It hands each kind of node to the function that `readers` names for it.
    """

    def __init__(
        self,
        readers: Mapping[type, Callable[[Reader, Any, Mapping[Any, int]], Term]],
        assumptions: Iterable[Assumption] = (),
    ) -> None:
        self.readers = readers
        self.numbers = count()
        self.sorts: dict[int, str | None] = {}
        self.free_indices: dict[Any, int] = {}
        self.names: dict[str, Any] = {}
        self.flexible: dict[str, str | None] = {}
        self.used: list[tuple[str, int]] = []  # flexible vectors and the indices they bear
        self.denominators: dict[str, Term] = {}
        self.roots: dict[str, Term] = {}
        self.below: dict[Any, str] = {}
        self.given: set[str] = set()
        self.irrational = self.speaks = False
        self.depth = 0
        told = tuple(assumptions)
        self.held = {name for item in told if item.kind == "given" for name in item.arguments}
        self.exchangeable = any(item.kind == "exchangeable" for item in told)

    def random(self) -> frozenset[str]:
        """The families that expectations act on."""
        softmax = {SCORE, EXPONENTIAL, INVERSE_PARTITION, LOG_PARTITION} if self.exchangeable else set()
        return RANDOM | softmax | {name for name in self.flexible if name not in FAMILIES}

    def all_sorts(self) -> dict[str, tuple[str, ...]]:
        """For each family, the sizes that its indices run to in this claim."""
        fixed = {name: own.sorts for name, own in FAMILIES.items()} | {EXPONENTIAL: (KEY,)}
        return fixed | {name: (sort or COMPONENT,) for name, sort in self.flexible.items()}

    def free(self) -> dict[int, str]:
        """The free indices with their sizes, after the vectors that run to any size have been told which."""
        for default in (False, True):
            waiting = True
            while waiting:
                waiting = False
                for name, number in self.used:
                    known = self.flexible[name] or self.sorts[number]
                    if known is None and default and not waiting:
                        known = FAMILIES[name].sorts[0] if name in FAMILIES else COMPONENT
                    if known and (self.flexible[name] is None or self.sorts[number] is None):
                        self.flexible[name], waiting = self.flexible[name] or known, True
                        self.sorts[number] = self.sorts[number] or known
                    if known and self.flexible[name] and self.sorts[number] not in (None, self.flexible[name]):
                        raise GrammarError(
                            f"{name} runs over different sizes, {self.flexible[name]} and {self.sorts[number]}"
                        )
        return {number: self.sorts[number] or COMPONENT for number in self.free_indices.values()}

    def settle(self, expression: Any) -> None:
        """Learn from sums in which a flexible vector meets another to which size it runs."""
        for node in expression.atoms(sympy.Sum) if isinstance(expression, sympy.Basic) else ():
            for index, *_ in node.limits:
                rigid, loose = n.index_uses(node.args[0], index)
                if len(rigid) == 1:
                    for name in loose:
                        self.flexible.setdefault(name, next(iter(rigid)))

    def bounded(self, term: Term) -> Term:
        """Refuse what would be too large to walk through."""
        if weight(term) > MAX_NODES:
            raise TooLarge("the expression is too large for the checker: nest fewer operators")
        return term

    def term(self, expression: Any) -> Term:
        try:
            return self.read(sympy.sympify(expression, strict=True), {})
        except (sympy.SympifyError, TypeError, AttributeError):
            raise GrammarError(f"{shown(expression)} is no expression of the notation") from None

    def read(self, node: Any, scope: Mapping[Any, int]) -> Term:
        if node in (sympy.zoo, sympy.nan):  # what SymPy makes of 1/0 and 0/0
            raise GrammarError(f"{node} is no number: an expression divides by zero")
        for kind, method in self.readers.items():
            if isinstance(node, kind):
                self.depth += 1
                if self.depth > MAX_DEPTH:
                    raise GrammarError(f"the expression is nested more than {MAX_DEPTH} deep")
                try:
                    return self.bounded(method(self, node, scope))
                finally:
                    self.depth -= 1
        raise GrammarError(f"{shown(node)} ({type(node).__name__}) is outside the grammar of the checker")

    def index(self, node: Any, sort: str | None, scope: Mapping[Any, int]) -> int:
        if node not in n.INDICES:
            raise GrammarError(
                f"an index must be one of {', '.join(map(str, n.INDICES))}: got {shown(node)} "
                "(a fixed component has no symmetry, and the proof for every size needs it)"
            )
        number = scope.get(node)
        if number is None:
            number = self.free_indices.setdefault(node, -1 - len(self.free_indices))
        known = self.sorts.setdefault(number, sort)
        if known is None:
            self.sorts[number] = sort
        elif sort is not None and known != sort:
            raise GrammarError(f"index {node} runs over {known} and cannot index something that runs over {sort}")
        return number

    def flexible_index(self, name: str, node: Any, scope: Mapping[Any, int]) -> int:
        """An index of a vector that may run to any size: the first place that says which decides."""
        number = self.index(node, self.flexible.get(name), scope)
        self.flexible[name] = self.flexible.get(name) or self.sorts[number]
        self.used.append((name, number))
        return number


def shown(node: Any) -> str:
    try:
        text = str(node)
    except RecursionError:
        text = type(node).__name__
    return text if len(text) <= 60 else text[:57] + "..."
