"""The judge of derivations: every step by the kernel, every citation by its rule, every chain by its links."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sympy

from attnsym.symbolic.deciding import decide
from attnsym.symbolic.derivation.argument import Argument
from attnsym.symbolic.derivation.positivity import is_nonnegative
from attnsym.symbolic.derivation.rules import RULES
from attnsym.symbolic.derivation.steps import Axiom, Chain, Equation, Known, Step
from attnsym.symbolic.language.notation import OPAQUE, S, Var, X, Y, d_k, size_of_index
from attnsym.symbolic.refute.witness import find_witness
from attnsym.symbolic.trusted.assumptions import SMALL
from attnsym.symbolic.trusted.facts import Facts
from attnsym.symbolic.trusted.polynomial import Monomial
from attnsym.symbolic.typeset.moments import named_moments
from attnsym.symbolic.verdict import Truth, Verdict


@lru_cache(maxsize=256)  # a page, a record and a verdict of one derivation ask the same
def check(derivation: Argument, name_moments: bool = True) -> Verdict:
    """Return the verdict on a derivation; `Derivation.check` documents it. To name the moments takes a proof more."""
    proved: list[Chain] = []
    position = 0
    for chain in derivation.chains:
        for number, step in enumerate(chain.steps):
            if number and chain.steps[number - 1].rhs != step.lhs:
                trouble = "it does not start where the step before it ended"
            else:
                trouble = judge(step, derivation, proved)
            if trouble:
                return _failed(derivation, chain, position, trouble)
            position += 1
        if _hides_remainder(chain):
            return _failed(derivation, chain, position - 1, "it puts in a series that was cut, and shows no remainder")
        proved.append(chain)
    if not derivation.stated:
        return Verdict(Truth.UNKNOWN, "no chain proves a statement")
    also = " (a second route included)" * any(chain.role == "second route" for chain in derivation.chains)
    return Verdict(
        Truth.TRUE,
        f"each of the {position} steps{also} holds at every size under the assumptions that it cites",
        axioms=tuple(axiom.sentence for axiom in derivation.trusted),
        moments=required_moments(derivation) if name_moments else (),
    )


def required_moments(derivation: Argument) -> tuple[str, ...]:
    """Name the moments that must be finite for the statement to make sense under the assumptions."""
    met: set[Monomial] = set()
    for chain in derivation.stated:
        met |= decide(chain.equation.lhs, chain.equation.rhs, chain.assumptions).moments
    return named_moments(met)


def judge(step: Step, derivation: Argument, proved: Sequence[Chain] = ()) -> str:
    """
    Return what is wrong with a step, or the empty string.

    Parameters
    ----------
    step : Step
        The step; assumptions withdrawn from `derivation` are not available to it.
    derivation : Argument
        For its axioms and for what was withdrawn.
    proved : sequence of Chain
        Chains proved earlier, which the step may put in.
    """
    rule = RULES.get(step.rule)
    if rule is None:
        return f"there is no rule called {step.rule!r}"
    beyond = [item for item in step.cites if item.kind not in rule.may_cite]
    if beyond:
        return f"the rule {step.rule!r} may not cite {beyond[0]}"
    for known in step.known:
        if not (known.source in derivation.axioms or known.source in proved) or known.equation.relation != "=":
            return "it puts in something that is neither an axiom nor proved before"
    cites = [item for item in step.cites if item not in derivation.withdrawn]
    lost = [str(item) for item in step.cites if item in derivation.withdrawn]
    for known in step.known:
        rests = [str(item) for item in known.assumptions if item in derivation.withdrawn]
        if isinstance(known.source, Axiom) and rests:
            return f"it puts in what is right only under {' and '.join(rests)}"
    orders = Facts(cites).orders
    for known in step.known:
        weaker = _orders(known.source)
        if any(orders.get(name, order + 1) > order for name, order in weaker.items()):
            return "it puts in a result that holds only up to a lower order"
    if step.rule == "induction" and not _is_induction(step, proved):
        return "the case 1 and the step from d_k to d_k + 1 have not been proved"
    given = tuple(pair for known in step.known for pair in _zeros(known))
    if step.relation == "≤":
        positive = tuple(symbol for axiom in derivation.axioms for symbol in axiom.positive)
        if step.slack is None or not is_nonnegative(step.slack, positive):
            return "what was left out cannot be seen to be at least 0"
        given += ((step.slack, -1),)
    decision = decide(step.lhs, step.rhs, cites, given)
    if decision.holds:
        return "it divides by what may be 0" if decision.doubtful else ""
    return f"it needs {' and '.join(lost)}" if lost else "it does not follow from what it cites"


def _orders(source: Axiom | Chain) -> dict[str, int]:
    """The powers from which on a result was cut: those of an axiom's O(…), or those that a chain drops."""
    if isinstance(source, Chain):
        return Facts(source.assumptions).orders
    base, order = sympy.sympify(source.equation.remainder or 1, strict=True).as_base_exp()
    return {str(base): int(order)} if str(base) in SMALL else {}


def _hides_remainder(chain: Chain) -> bool:
    """Whether a chain puts in a series that was cut, and says nothing of the rest."""
    cut = [known.equation.remainder for step in chain.steps for known in step.known]
    return any(rest is not None for rest in cut) and chain.equation.remainder is None


def _is_induction(step: Step, proved: Sequence[Chain]) -> bool:
    """Whether a base and an induction step for this very claim were proved before."""
    first = Equation(Var(X * Y), step.rhs.subs(d_k, 1))
    following = Equation(Var(S + X * Y), step.rhs.subs(d_k, d_k + 1))
    equations = [chain.equation for chain in proved]
    return step.rhs == d_k and first in equations and following in equations


def _zeros(known: Known) -> tuple[tuple[Any, Any], ...]:
    """Both sides of a known equation, each with its multiplier; the kernel subtracts them, SymPy does not."""
    sides = [known.multiplier * known.equation.lhs, known.multiplier * known.equation.rhs]
    for index in known.over:  # one side may not use the index, and must run as far as the other all the same
        size = size_of_index(index, *sides)
        sides = [sympy.Sum(side, (index, 1, size)) for side in sides]
    return (sides[0], 1), (sides[1], -1)


def _failed(derivation: Argument, chain: Chain, position: int, trouble: str) -> Verdict:
    """Say which step broke, and look for a law that contradicts what its chain set out to prove."""
    reason = f"step {position + 1} ({derivation.steps[position].rule}) breaks: {trouble}"
    equation = chain.equation
    remaining = [item for item in chain.assumptions if item not in derivation.withdrawn]
    # A law alone cannot contradict what only an axiom says.
    if equation.relation == "=" and not equation.supposing and not equation.symbols & OPAQUE:
        decision = decide(equation.lhs, equation.rhs, remaining)
        if decision.holds:
            reason += f"; yet {equation} still follows from what is left, by another way"
        else:
            witness = find_witness(equation.lhs, equation.rhs, remaining)
            if witness:
                return Verdict(Truth.FALSE, f"{reason}; without it, {equation} can fail", witness, position)
    return Verdict(Truth.UNKNOWN, reason, step=position)
