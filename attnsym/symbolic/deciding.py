"""The one function that decides: both procedures, under the assumptions given and no others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from attnsym.symbolic.language.gate import SORTS, read_claim
from attnsym.symbolic.trusted import kernel, normal_form
from attnsym.symbolic.trusted.assumptions import Assumption, Facts
from attnsym.symbolic.trusted.families import RANDOM
from attnsym.symbolic.trusted.polynomial import Monomial


@dataclass(frozen=True)
class Decision:
    """What both procedures agree on, and the moments they met."""

    holds: bool
    moments: frozenset[Monomial]

    def highest(self) -> dict[str, int]:
        """Highest power of each family inside one expectation."""
        found: dict[str, int] = {}
        for block in self.moments:
            for name in {own for (own, _), _ in block}:
                total = sum(power for (own, _), power in block if own == name)
                found[name] = max(found.get(name, 0), total)
        return found


def decide(
    left: Any, right: Any, assumptions: Iterable[Assumption] = (), known: tuple[tuple[Any, Any], ...] = ()
) -> Decision:
    """
    Decide left = right under `assumptions`; it holds when both procedures say so.

    Parameters
    ----------
    left, right : expression
        In the notation; no index is bound twice, sums run from 1 to a size.
    assumptions : iterable of Assumption
        All that may be used.
    known : tuple of (expression, multiplier)
        Expressions that are 0 by an earlier result; the claim decided is left - right = Σ multiplier · expression.

    Raises
    ------
    GrammarError
        If an expression is outside the grammar.
    RuntimeError
        If one procedure proves what the other refutes, which would be a fault of this module.
    """
    claim, facts = read_claim(left, right, known), Facts(assumptions)
    holds, moments = kernel.equal(claim.difference, claim.free, facts, RANDOM)
    if holds and not normal_form.equal(claim.difference, claim.free, facts, RANDOM, SORTS):
        raise RuntimeError(f"the two decision procedures disagree on {left} = {right}: please report this")
    return Decision(holds, frozenset(moments.blocks))
