"""The judge of derivations: every step by the kernel, every citation by its rule, every chain by its links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sympy

from attnsym.symbolic.derivation.derivation import Derivation
from attnsym.symbolic.derivation.positivity import is_nonnegative
from attnsym.symbolic.derivation.rules import RULES
from attnsym.symbolic.derivation.steps import Axiom, Chain, Equation, Known, Step
from attnsym.symbolic.language.notation import S, Var, X, Y, d_k, size_of_index
from attnsym.symbolic.refute.witness import find_witness
from attnsym.symbolic.trusted.assumptions import Facts
from attnsym.symbolic.trusted.polynomial import Monomial
from attnsym.symbolic.typeset.boxes import Row, Script, Token
from attnsym.symbolic.typeset.glyphs import vector_box
from attnsym.symbolic.verdict import Decision, Truth, Verdict, decide


def check(derivation: Derivation) -> Verdict:
    """Return the verdict on a derivation; `Derivation.check` documents it."""
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
        proved.append(chain)
    if not any(chain.role == "statement" for chain in derivation.chains):
        return Verdict(Truth.UNKNOWN, "no chain proves a statement")
    also = " (a second route included)" * any(chain.role == "second route" for chain in derivation.chains)
    return Verdict(
        Truth.TRUE,
        f"each of the {position} steps{also} holds at every size under the assumptions that it cites",
        axioms=tuple(axiom.sentence for axiom in derivation.axioms),
        moments=required_moments(derivation),
    )


def required_moments(derivation: Derivation) -> tuple[str, ...]:
    """Name the moments that must be finite for the statement to make sense under the assumptions."""
    met: set[Monomial] = set()
    for chain in derivation.chains:
        if chain.role == "statement":
            met |= decide(chain.equation.lhs, chain.equation.rhs, chain.assumptions).moments
    return named_moments(met)


def judge(step: Step, derivation: Derivation, proved: Sequence[Chain] = ()) -> str:
    """
    Return what is wrong with a step, or the empty string.

    Parameters
    ----------
    step : Step
        The step; assumptions withdrawn from `derivation` are not available to it.
    derivation : Derivation
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
    orders = Facts(cites).orders
    for known in step.known:
        if isinstance(known.source, Axiom):
            continue
        weaker = Facts(known.source.assumptions).orders
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
    if decide(step.lhs, step.rhs, cites, given).holds:
        return ""
    return f"it needs {' and '.join(lost)}" if lost else "it does not follow from what it cites"


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


def _failed(derivation: Derivation, chain: Chain, position: int, trouble: str) -> Verdict:
    """Say which step broke, and look for a law that contradicts what its chain set out to prove."""
    reason = f"step {position + 1} ({derivation.steps[position].rule}) breaks: {trouble}"
    equation = chain.equation
    remaining = [item for item in chain.assumptions if item not in derivation.withdrawn]
    trusts = any(isinstance(known.source, Axiom) for step in chain.steps for known in step.known)
    if equation.relation == "=" and not trusts:
        decision = decide(equation.lhs, equation.rhs, remaining)
        if decision.holds:
            reason += f"; yet {equation} still follows from what is left, by another way"
        else:
            witness = find_witness(equation.lhs, equation.rhs, remaining, highest(decision))
            if witness:
                return Verdict(Truth.FALSE, f"{reason}; without it, {equation} can fail", witness, position)
    return Verdict(Truth.UNKNOWN, reason, step=position)


def highest(decision: Decision) -> dict[str, int]:
    """Highest power of each family inside one expectation."""
    found: dict[str, int] = {}
    for block in decision.moments:
        for name in {own for (own, _), _ in block}:
            total = sum(power for (own, _), power in block if own == name)
            found[name] = max(found.get(name, 0), total)
    return found


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
