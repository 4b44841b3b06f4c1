"""How a derivation is written down: lines, each with its rule and its citations, and chains of lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import sympy

from attnsym.symbolic.derivation.rewriting import rewrite
from attnsym.symbolic.derivation.rules import RULES
from attnsym.symbolic.derivation.steps import Chain, Known, Relation, Role, Step
from attnsym.symbolic.trusted.assumptions import assumption


def line(
    rule: str,
    rhs: Any,
    *cites: str,
    note: str = "",
    known: tuple[Known, ...] = (),
    relation: Relation = "=",
    slack: Any = None,
) -> Callable[[Any], Step]:
    """Write one line of a chain: ``= rhs`` by `rule` under the assumptions cited."""
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}: known are {', '.join(RULES)}")
    cited = tuple(assumption(text) for text in cites)
    right = sympy.sympify(rhs, strict=True)
    orders = [item.arguments for item in cited if item.kind == "modulo"]
    remainder = sympy.Symbol(orders[0][0], real=True) ** int(orders[0][1]) if orders else None
    return lambda lhs: Step(
        lhs, right, relation, remainder, rule=rule, cites=cited, note=note, known=known, slack=slack
    )


def by(rule: str, *cites: str, note: str = "") -> Callable[[Any], Step]:
    """
    Write one line by machine: what `rule` makes of the line before, with the assumptions cited.

    The kernel judges it like any other line. ValueError if the rule has no machine form or changes nothing.
    """

    def make(lhs: Any) -> Step:
        rhs = rewrite(lhs, rule, cites)
        if rhs == lhs:
            raise ValueError(f"the rule {rule!r} changes nothing in {lhs}: write the line out with line(rule, result)")
        return line(rule, rhs, *cites, note=note)(lhs)

    return make


def chain(
    start: Any,
    *lines: Callable[[Any], Step],
    role: Role = "statement",
    heading: str = "",
    remainder: Any = None,
) -> Chain:
    """
    Connect lines into a chain: each starts where the one before ended.

    Once a series was cut, every line after it says so; `remainder` is what an axiom's own O(…) becomes here.
    """
    steps: list[Step] = []
    current, rest = sympy.sympify(start, strict=True), None
    for make in lines:
        step = make(current)
        if any(known.equation.remainder is not None for known in step.known):
            rest = remainder
        rest = rest if step.remainder is None else step.remainder
        steps.append(replace(step, remainder=rest))
        current = step.rhs
    return Chain(tuple(steps), role, heading, remainder)
