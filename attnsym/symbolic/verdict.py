"""Three-valued verdicts, and the one function that gives them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from attnsym.symbolic.language.gate import RANDOM, SORTS, read_claim
from attnsym.symbolic.trusted import kernel, normal_form
from attnsym.symbolic.trusted.assumptions import Assumption, Facts
from attnsym.symbolic.trusted.polynomial import Monomial


class Truth(Enum):
    """TRUE and FALSE are proved, FALSE by a witness; UNKNOWN is neither, and never a pass."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Verdict:
    """
    What a check found.

    Attributes
    ----------
    truth : Truth
        TRUE, FALSE or UNKNOWN.
    reason : str
        One sentence: what was checked, or what stands in the way.
    witness : Witness or None
        For FALSE: a finite law (or weights) and the two different values, exact.
    step : int or None
        Position in `Derivation.steps` of the step that failed.
    axioms : tuple of str
        Statements trusted without proof.
    moments : tuple of str
        Expectations that must be finite for the statement to make sense.
    """

    truth: Truth
    reason: str
    witness: Any = None
    step: int | None = None
    axioms: tuple[str, ...] = ()
    moments: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        """Whether the verdict is TRUE."""
        return self.truth is Truth.TRUE

    def __str__(self) -> str:
        """One paragraph, witness and axioms included."""
        lines = [f"{self.truth.value}: {self.reason}"]
        if self.witness is not None:
            lines.append(str(self.witness))
        if self.moments:
            lines.append(f"Finite must be: {', '.join(self.moments)}.")
        lines.extend(f"Trusted: {axiom}" for axiom in self.axioms)
        return "\n".join(lines)


@dataclass(frozen=True)
class Decision:
    """What both procedures agree on, and the moments they met."""

    holds: bool
    moments: frozenset[Monomial]


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
