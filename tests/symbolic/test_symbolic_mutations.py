"""Change one thing in one step: the checker must reject it, unless what comes out is true as well."""

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import mpmath
import pytest
import sympy
from sympy import Indexed, IndexedBase, KroneckerDelta, Rational, Tuple

from attnsym.symbolic import (
    DERIVATIONS,
    Axiom,
    Derivation,
    Equation,
    Known,
    Sum,
    Truth,
    chain,
    d_k,
    i,
    j,
    k,
    l,
    line,
    p,
    q,
    r,
    x,
)
from attnsym.symbolic.derivation.checking import judge
from attnsym.symbolic.language.notation import BY_SYMBOL, INDICES, SIZES, Operator, n_keys, t
from attnsym.symbolic.refute.evaluator import Evaluator, NoValue, decimal
from attnsym.symbolic.refute.laws import laws
from attnsym.symbolic.refute.satisfaction import satisfies
from attnsym.symbolic.trusted.families import FAMILIES


def places(node, path=()):
    """Every subexpression that may be changed; names of vectors and limits of sums are no expressions."""
    yield path, node
    if isinstance(node, (Indexed, IndexedBase, KroneckerDelta)):
        return
    for position, part in enumerate(node.args):
        if not isinstance(part, (Tuple, IndexedBase)) and part not in (i, j, l, r):
            yield from places(part, (*path, position))


def put(node, path, new):
    if not path:
        return new
    arguments = list(node.args)
    arguments[path[0]] = put(arguments[path[0]], path[1:], new)
    return node.func(*arguments)


def changes(node):
    """What may go wrong at one place of a derivation."""
    if isinstance(node, Rational):
        yield "coefficient", node + 1
        yield "coefficient", -node
    if isinstance(node, sympy.Add):
        yield from (("drop a term", node - term) for term in node.args)
        yield from (("coefficient", node + term) for term in node.args)
    if isinstance(node, sympy.Mul):
        yield from (("drop a factor", sympy.Mul(*(f for f in node.args if f is not factor))) for factor in node.args)
    if isinstance(node, sympy.Pow) and node.exp.is_Integer:
        yield "power", node.base ** (node.exp + 1)
        yield "power", node.base ** (node.exp - 1)
    if isinstance(node, Indexed):
        yield "power", node**2
        for index in node.indices:
            for other in {i, j, l, r} - {index}:
                yield "index", node.base[tuple(other if own == index else own for own in node.indices)]
        swapped = {q: k, k: q}.get(node.base)
        if swapped is not None:
            yield "vector", swapped[node.indices[0]]
    if isinstance(node, KroneckerDelta):
        yield "drop a factor", sympy.Integer(1)
    if node in SIZES.values():
        yield "power", node**2
        yield "coefficient", node - 1
    if isinstance(node, (Operator, sympy.Sum)):
        yield "coefficient", 2 * node


def mutants(step):
    for path, node in places(step.rhs):
        for kind, new in changes(node):
            yield kind, put(step.rhs, path, new)


def all_mutants():
    for derivation in DERIVATIONS.values():
        proved = []
        for own in derivation.chains:
            for step in own.steps:
                for kind, rhs in mutants(step):
                    yield derivation, tuple(proved), step, kind, rhs
            proved.append(own)


def agree(step, rhs):
    """
    Whether the mutant says the same as the step, by exact enumeration alone.

    The step itself is right, so the mutant is right when its right side has the value of the step's, under every
    finite law at hand that satisfies what the step cites. Where terms from t^n on are dropped, a difference may
    remain that vanishes like t^n.
    """
    order = next((int(item.arguments[1]) for item in step.cites if item.kind == "modulo"), None)
    sides = [step.rhs, rhs]
    used = {BY_SYMBOL[node] for side in sides for node in side.atoms(IndexedBase, sympy.Symbol) if node in BY_SYMBOL}
    used |= {name for item in step.cites for name in item.arguments if name in FAMILIES}
    random_ones = [name for name in FAMILIES if name in used and FAMILIES[name].random]
    normal = any(item.kind.startswith("gaussian") for item in step.cites)
    vectors = [name for name in random_ones if FAMILIES[name].sorts]
    scalars = [name for name in random_ones if not FAMILIES[name].sorts]
    compared = 0
    with mpmath.workdps(60):
        for law in laws(vectors, scalars, normal=normal, sizes=(1, 2) if normal else (2, 1, 3, 4)):
            if compared < 6 and all(satisfies(law, item) for item in step.cites):
                compared += 1
                if not same_values(sides, law, step.cites, order):
                    return False
    assert compared, step
    return True


def same_values(sides, law, cites, order):
    free = sorted({node for side in sides for node in side.free_symbols if node in INDICES}, key=str)
    for keys in (2, 3):
        evaluator = Evaluator(law.d, keys, law if law.name else None, cites)
        for values in product(range(1, min(keys, law.d) + 1), repeat=len(free)):
            scope = dict(zip(free, values, strict=True))
            if order is None:
                left, right = (decimal(evaluator.of(side, scope)) for side in sides)
                if abs(left - right) > mpmath.mpf(10) ** -20 * (1 + abs(left)):
                    return False
            else:
                small = Rational(1, 10**4)
                left, right = (decimal(evaluator.of(side.xreplace({t: small}), scope)) for side in sides)
                if abs(left - right) > 1000 * mpmath.mpf(10) ** (-4 * order):
                    return False
    return True


def examine(cases):
    verdicts = Counter()
    for derivation, proved, step, kind, rhs in cases:
        try:
            trouble = judge(replace(step, rhs=sympy.sympify(rhs)), derivation, proved)
        except ValueError:
            verdicts["refused"] += 1
            continue
        if trouble:
            verdicts["rejected"] += 1
            continue
        verdicts["accepted"] += 1
        try:
            assert agree(step, sympy.sympify(rhs)), (derivation.key, kind, step, rhs)
        except NoValue as error:  # a mutant that no law can contradict must not have been accepted
            raise AssertionError(f"{derivation.key}: {step} became {rhs}: {error}") from error
    return verdicts


def test_a_sample_of_mutants():
    cases = random.Random(0).sample(list(all_mutants()), 150)
    verdicts = examine(cases)
    assert verdicts["rejected"] > 75
    assert verdicts["accepted"] < 20


@pytest.mark.slow
def test_every_mutant():
    cases = list(all_mutants())
    verdicts = examine(cases)
    print(len(cases), dict(verdicts))
    assert len(cases) >= 1000
    assert verdicts["rejected"] >= 1000
    assert verdicts["accepted"] < len(cases) // 10


@pytest.mark.parametrize("key", list(DERIVATIONS))
def test_every_citation_is_needed(key):
    """A step from which any one cited assumption is taken no longer follows (series cut for display apart)."""
    derivation, proved = DERIVATIONS[key], []
    for own in derivation.chains:
        for step in own.steps:
            for item in step.cites:
                fewer = replace(step, cites=tuple(own for own in step.cites if own != item))
                needless = not judge(fewer, derivation, proved)
                assert not needless or item.kind == "modulo", (step, item)
        proved.append(own)


def test_a_broken_link_is_noticed():
    derivation = DERIVATIONS["score-variance"]
    (chain,) = derivation.chains
    cut = replace(chain, steps=chain.steps[:3] + chain.steps[4:])
    verdict = replace(derivation, chains=(cut,)).check()
    assert verdict.truth is Truth.UNKNOWN
    assert verdict.step == 3


def test_a_rule_caps_what_a_step_may_cite():
    """True for the wrong reason: independence makes "split the diagonal" true where it drops the off-diagonal."""
    derivation = DERIVATIONS["score-variance"]
    split = derivation.chains[0].steps[2]
    assert split.rule == "split the diagonal"
    cheat = replace(split, cites=derivation.assumptions)
    assert "may not cite" in judge(cheat, derivation)
    assert "no rule" in judge(replace(split, rule="magic"), derivation)


def test_an_inequality_needs_a_visible_reason():
    derivation = DERIVATIONS["softmax-saturation"]
    step = derivation.chains[0].steps[1]
    assert step.relation == "≤"
    assert judge(step, derivation) == ""
    assert "at least 0" in judge(replace(step, slack=None), derivation)
    assert "at least 0" in judge(replace(step, slack=-step.slack), derivation)
    assert judge(replace(step, slack=2 * step.slack), derivation)
    backwards = replace(step, lhs=step.rhs, rhs=step.lhs)
    assert judge(backwards, derivation)


def test_an_unproved_result_cannot_be_put_in():
    derivation = DERIVATIONS["score-kurtosis"]
    step = derivation.chains[1].steps[0]
    assert judge(step, derivation, [derivation.chains[0]]) == ""
    assert "proved before" in judge(step, derivation, [])


def test_a_result_of_lower_order_cannot_be_put_in():
    """A series to O(t³), put into a step that keeps t³ would be trusted beyond its order."""
    derivation = DERIVATIONS["entropy-high-temperature"]
    weights, entropy = derivation.chains[1], derivation.chains[2]
    known = type(entropy.steps[0].known[0])(weights, -n_keys * 0)
    assert "lower order" in judge(replace(entropy.steps[1], known=(known,)), derivation, derivation.chains[:2])


def test_a_known_sum_runs_equally_far_on_both_sides():
    """Known: pᵢ = 1/n_keys. Summed over i, Σᵢ pᵢ = Σᵢ 1/n_keys, where the right side must not run to d_k."""
    uniform = Axiom("suppose that all weights are equal", Equation(p[i], 1 / n_keys))
    right = chain(Sum(p[i] * x[j], i), line("known", x[j], known=(Known(uniform, x[j], (i,)),)))
    wrong = chain(Sum(p[i], i), line("known", d_k / n_keys, known=(Known(uniform, 1, (i,)),)))
    assert Derivation("right", "", (right,), "").check()
    assert not Derivation("wrong", "", (wrong,), "").check()


def test_a_cut_series_never_hides_its_remainder():
    one = chain(t**3 + t, line("series", t, "modulo(t, 3)"))
    assert str(one.equation) == "t + t³ = t + O(t³)"
    assert str(replace(one, steps=(replace(one.steps[0], remainder=None),)).equation) == "t + t³ = t + O(t³)"


def test_induction_needs_base_and_step():
    derivation = DERIVATIONS["score-variance-induction"]
    base, step, conclusion = derivation.chains
    assert judge(conclusion.steps[0], derivation, [base, step]) == ""
    assert judge(conclusion.steps[0], derivation, [base])
    wrong = replace(conclusion.steps[0], rhs=2 * conclusion.steps[0].rhs)
    assert judge(wrong, derivation, [base, step])
