"""The rewrite rules are not trusted: what they propose, the kernel must find true; and how lines are written."""

from dataclasses import replace

import pytest
from sympy import Integer

import attnsym.symbolic
from attnsym.symbolic import DERIVATIONS, Dot, E, Sum, Var, by, chain, d_k, delta, i, j, k, line, p, q, rewrite, s
from attnsym.symbolic.derivation.checking import judge
from attnsym.symbolic.derivation.rewriting import REWRITES
from attnsym.symbolic.derivation.rules import RULES
from attnsym.symbolic.language.notation import D

SCORE = Sum(q[i] * k[i], i)
OFF = 1 - delta(i, j)


@pytest.mark.parametrize(
    ("before", "rule", "assuming", "after"),
    [
        (Var(Dot(k, q)), "definition of the inner product", (), Var(SCORE)),
        (Var(SCORE), "definition of variance", (), E(SCORE**2) - E(SCORE) ** 2),
        (E(SCORE), "linearity", (), Sum(E(q[i] * k[i]), i)),
        (E(2 * d_k * q[i] + 1), "linearity", (), 2 * d_k * E(q[i]) + 1),
        (
            SCORE**2,
            "split the diagonal",
            (),
            Sum(q[i] ** 2 * k[i] ** 2, i) + Sum(OFF * q[i] * q[j] * k[i] * k[j], i, j),
        ),
        (E(q[i] ** 2 * k[j]), "independence", ("independent(q, k)",), E(q[i] ** 2) * E(k[j])),
        (E(q[i] * k[j]), "independence", (), E(q[i] * k[j])),
        (Sum(OFF * E(q[i] * q[j]), i, j), "independence", ("uncorrelated(q)",), Sum(OFF * E(q[i]) * E(q[j]), i, j)),
        (Sum(E(q[i] * q[j]), i, j), "independence", ("uncorrelated(q)",), Sum(E(q[i] * q[j]), i, j)),
        (Var(SCORE), "Bienaymé", (), Sum(Var(q[i] * k[i]), i)),
        (Sum(E(q[i]) * E(k[i]), i), "moments", ("zero_mean(k)",), Integer(0)),
        (E(q[i] ** 2), "moments", ("zero_mean(q)", "unit_variance(q)"), Integer(1)),
        (Sum(3, i), "evaluate", (), 3 * d_k),
        (Var(SCORE), "substitute", ("same(q, k)",), Var(Sum(q[i] ** 2, i))),
        (D(p[i], s[j]), "softmax derivative", (), p[i] * (delta(i, j) - p[j])),
    ],
    ids=str,
)
def test_rewrites(before, rule, assuming, after):
    assert rewrite(before, rule, assuming) == after


@pytest.mark.parametrize("key", list(DERIVATIONS))
def test_what_a_rule_proposes_is_true(key):
    """On every line of the catalogue that a rule can take, under what that line cites."""
    derivation, proved = DERIVATIONS[key], []
    for one in derivation.chains:
        for step in one.steps:
            if step.rule in REWRITES and step.relation == "=" and not step.known:
                proposed = rewrite(step.lhs, step.rule, step.cites)
                assert judge(replace(step, rhs=proposed), derivation, proved) == ""
        proved.append(one)


def test_a_wrong_rewriting_is_caught():
    """Bienaymé proposes whatever is asked of it; without independence, the kernel does not have it."""
    step = by("Bienaymé")(Var(SCORE))
    assert judge(step, DERIVATIONS["score-variance"]) != ""


def test_rules_that_go_by_machine_are_registered():
    assert set(REWRITES) <= set(RULES)
    with pytest.raises(ValueError, match="written out"):
        rewrite(Var(SCORE), "induction")
    with pytest.raises(ValueError, match="unknown rule"):
        line("magic", 0)
    with pytest.raises(ValueError, match="changes nothing"):
        chain(E(q[i]), by("definition of variance"))


def test_public_face():
    names = attnsym.symbolic.__all__
    assert len(names) == len(set(names))
    assert all(
        getattr(attnsym.symbolic, name).__doc__ or not callable(getattr(attnsym.symbolic, name)) for name in names
    )
