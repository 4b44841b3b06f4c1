"""Attacks: each kind of false proof and false refutation that this checker, or one like it, once fell for."""

import contextlib
import sys
import time
from fractions import Fraction

import pytest
import sympy
from sympy import Symbol

import attnsym.symbolic.deciding as deciding
from attnsym.symbolic import (
    DERIVATIONS,
    D,
    Dot,
    E,
    GrammarError,
    K,
    Sum,
    Truth,
    Var,
    assumption,
    d_k,
    derive,
    i,
    j,
    k,
    moment,
    p,
    prove,
    q,
    r,
    s,
    u,
    vector,
)
from attnsym.symbolic.language.expressions import read
from attnsym.symbolic.refute.laws import laws
from attnsym.symbolic.refute.satisfaction import satisfies

STANDARD = (
    "independent(q, k)",
    "independent_components(q)",
    "independent_components(k)",
    "zero_mean(q)",
    "zero_mean(k)",
    "unit_variance(q)",
    "unit_variance(k)",
)
NORMAL = (*STANDARD, "gaussian(q)", "gaussian(k)")


def truth(lhs, rhs, *assuming):
    return prove(lhs, rhs, assuming).truth


# A witness satisfies the set, not each assumption by itself.


@pytest.mark.parametrize(
    ("lhs", "rhs", "assuming"),
    [
        ("Cov(q[i], k2[i])", "0", ("aligned(q, k)", "aligned(q, k2)", "independent(q, k)")),
        ("Cov(q[i], k2[i])", "0", ("aligned(q, k2)", "aligned(q, k)", "uncorrelated(k, q)")),
        ("rho", "0", ("aligned(q, k)", "independent(q, k)")),
        ("rho", "Var(q[i])", ("aligned(q, k)", "same(q, k)", "unit_variance(q)")),
        ("E(q[i]*k2[i])", "E(q[i]**2)", ("same(q, k)", "same(k, k2)")),
        ("E(k2[i])", "0", ("same(k, k2)", "same(q, k2)", "zero_mean(q)")),
        ("Var(q[i])", "0", ("same(q, k)", "independent(q, k)")),
        ("Var(q[i])", "0", ("same(q, k)", "uncorrelated(q, k)")),
    ],
)
def test_one_rho_and_one_vector(lhs, rhs, assuming):
    assert truth(lhs, rhs, *assuming) is Truth.TRUE


def test_rho_is_not_the_covariance_of_other_pairs():
    assert truth("Cov(q[i], k2[i])", "rho", "aligned(q, k)") is Truth.FALSE
    assert truth("Cov(k[i], k2[i])", "rho", "aligned(q, k)", "aligned(q, k2)") is Truth.FALSE


def test_a_name_belongs_to_the_vector_it_was_given_to():
    """mean_variance(k) names mu_k; that k is q gives mu_q no meaning."""
    assert truth("E(k[i])", "mu_k", "same(q, k)", "mean_variance(k)") is Truth.TRUE
    assert truth("E(k[i])", "mu_q", "same(q, k)", "mean_variance(k)") is Truth.FALSE
    assert truth("mu_q", "mu_k", "same(q, k)", "mean_variance(k)", "mean_variance(q)") is Truth.TRUE


@pytest.mark.parametrize("item", ["constant(q)", "same(q, k)", "same(k, k2)", "aligned(q, k)", "gaussian_pairs(q, k)"])
def test_assuming_more_never_refutes_what_is_proved(item):
    """Nor leaves it open: from assumptions that contradict each other everything follows."""
    for lhs, rhs in [
        ("Var(Dot(k, q))", "d_k"),
        ("E(Dot(k, q)**4)", "3*d_k**2 + 6*d_k"),
        ("E(Dot(k, q)**3)", "0"),
        ("Cov(q[i]**2, k[j]**2)", "0"),
    ]:
        assert truth(lhs, rhs, *NORMAL) is Truth.TRUE
        assert truth(lhs, rhs, *NORMAL, item) is Truth.TRUE


def test_normal_laws_are_normal_to_every_order():
    """Jointly normal and uncorrelated is independent; each normal and uncorrelated is not."""
    given = ("gaussian(q)", "gaussian(k)", "uncorrelated(q, k)", "zero_mean(q)", "zero_mean(k)", *STANDARD[5:])
    assert truth("E(q[i]**2*k[i]**2)", "1", *given) is Truth.FALSE
    assert truth("E(q[i]**2*k[i]**2)", "1", *given, "gaussian_pairs(q, k)") is Truth.TRUE
    law = next(law for law in laws(["q", "k"], normal=True) if satisfies(law, assumption("gaussian_pairs(q, k)")))
    assert law.moment(*[("q", 0)] * 8) == 105 * law.moment(("q", 0), ("q", 0)) ** 4


# What moves with the query is no number.


@pytest.mark.parametrize("inside", ["s[i]", "p[i]", "H", "K[i, r]", "V[i, a]", "p[i]*q[j]", "log(p[i])", "exp(s[i])"])
@pytest.mark.parametrize("operator", ["E({})", "Var({})", "Cov({}, q[j])"])
def test_silent_constants_are_refused(operator, inside):
    with pytest.raises(GrammarError, match="given"):
        prove(operator.format(inside), "0")


def test_given_makes_them_constants_and_values_are_drawn_apart():
    assert truth("Var(p[i])", "0", "given(p)") is Truth.TRUE
    assert truth("E(p[i]*q[j])", "p[i]*E(q[j])", "given(p)") is Truth.TRUE
    values = ("uncorrelated(v)", "unit_variance(v)")
    verdict = prove("Var(Sum(p[i]*v[i], i))", "Sum(p[i]**2, i)", values)
    assert verdict.truth is Truth.TRUE
    assert "given p" in verdict.reason
    assert truth("Var(Sum(p[i]*v[i], i))", "1/n_keys", *values) is Truth.FALSE


# Literals are read from their characters.


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [
        ("1e-400", "0"),
        ("1e-400*d_k", "0"),
        ("1.00000000000000000000001", "1"),
        ("0.1", "0.1000000000000000055511151231257827"),
        ("123456789012345678.5", "123456789012345678"),
    ],
)
def test_literals_are_exact(lhs, rhs):
    assert truth(lhs, rhs) is Truth.FALSE
    assert truth("0.1 + 0.2", "0.3") is Truth.TRUE
    assert read("2.5e-3") == sympy.Rational(1, 400)
    with pytest.raises(ValueError, match="bits"):
        read("1e999999999")


# A truncated series is no identity.


@pytest.mark.parametrize(
    ("key", "item"),
    [(key, str(item)) for key, own in DERIVATIONS.items() for item in own.assumptions if item.kind == "modulo"],
)
def test_a_series_without_its_remainder_is_not_proved(key, item):
    verdict = derive(key).without(item).check()
    assert verdict.truth is not Truth.TRUE


def test_a_cut_axiom_leaves_its_mark_on_what_it_proves():
    for own in DERIVATIONS.values():
        for chain in own.chains:
            cut = [known for step in chain.steps for known in step.known if known.equation.remainder is not None]
            assert not cut or chain.equation.remainder is not None


# Division by what the assumptions make 0.


@pytest.mark.parametrize(
    ("lhs", "assuming"),
    [
        ("E(q[i])/mu_q", ("zero_mean(q)", "mean_variance(q)")),
        ("1/rho", ("aligned(q, k)", "independent(q, k)")),
        ("1/E(q[i])", ("zero_mean(q)",)),
        ("Var(k[i])/Cov(q[i], k[i])", ("independent(q, k)",)),
        ("E(q[i]**2)/E(q[i]**3)**2", ("gaussian(q)", "zero_mean(q)")),
    ],
)
@pytest.mark.parametrize("rhs", ["0", "1"])
def test_division_by_zero_is_refused(lhs, assuming, rhs):
    with pytest.raises(GrammarError, match="divides by"):
        prove(lhs, rhs, assuming)


def test_denominators_follow_the_facts():
    assert truth("1/sigma_q", "1", "unit_variance(q)", "mean_variance(q)") is Truth.TRUE
    assert truth("E(q[i])/mu_q", "1", "mean_variance(q)") is Truth.TRUE
    verdict = prove("E(q[i] + k[i])/E(q[i])", "1 + E(k[i])/E(q[i])")
    assert verdict.truth is Truth.TRUE
    assert "no denominator is 0" in verdict.reason
    assert "denominator" not in prove("E(Dot(k, q)**4)/Var(Dot(k, q))**2", "3 + 6/d_k", NORMAL).reason


# Names.


@pytest.mark.parametrize("name", ["π", "√2", "log Z", "1/Z", "exp s", "ρ", "σ_q", "log n_keys", "1/[0]", "√[0]", "E[]"])
def test_no_symbol_passes_for_the_kernel_s(name):
    with pytest.raises(GrammarError, match="notation's own"):
        prove(Symbol(name), 1)


def test_a_symbol_that_says_too_much_of_itself_is_refused():
    """y·(y − 1) = 0 holds for some symbols; a parameter is any real number."""
    for narrow in ("integer", "negative", "zero", "rational"):
        with pytest.raises(GrammarError, match="parameters of any real value"):
            prove(E(Symbol("y", **{narrow: True}) * q[i]), 0)


def test_a_vector_of_one_s_own_is_nobody_else():
    v = vector("v")
    assert truth(E(v[i]), 0, "zero_mean(v)") is Truth.TRUE
    assert truth(E(v[i]), 0, "zero_mean(q)") is Truth.FALSE
    assert truth("Var(Dot(k, v))", "d_k", *(item.replace("q", "v") for item in STANDARD)) is Truth.TRUE
    for name in ("q", "Q", "rho", "two words", "", 3):
        with pytest.raises(ValueError, match="vector takes"):
            vector(name)


def test_facts_that_contradict_each_other_outright_are_refused():
    for facts in (("moment(q, 2, 1)", "moment(q, 2, 2)"), ("law(q, sign)", "law(q, laplace)")):
        with pytest.raises(ValueError, match="cannot have two"):
            prove("E(q[i]**2)", "2", facts)
    with pytest.raises(ValueError, match="cannot have two"):
        prove("E(q[i]**2)", "2", ("same(q, k)", "moment(q, 2, 1)", "moment(k, 2, 2)"))


def test_a_vector_without_a_fact_is_named():
    with pytest.raises(ValueError, match="unknown name 'v'"):
        prove("E(v[i])", "0")


# The two procedures.


def test_a_parameter_that_hides_a_size_is_counted():
    given = ("identical(u)", "isotropic(u)")
    assert truth(moment(u, 2), 1 / d_k, *given) is Truth.TRUE
    assert truth(moment(u, 2) * 2, 3 - d_k, *given) is Truth.FALSE
    assert truth("E(v[i]**2)", "3 - 2*d_k", "moment(v, 2, 1/d_k)") is Truth.FALSE


def test_a_disagreement_is_unknown_and_says_so(monkeypatch):
    monkeypatch.setattr(deciding.normal_form, "equal", lambda *_: False)
    verdict = prove(Var(Dot(k, q)), d_k, STANDARD)
    assert verdict.truth is Truth.UNKNOWN
    assert "disagree" in verdict.reason


@pytest.mark.parametrize(
    "arguments",
    [
        ("Cov(X, q[i])", "rho", ["aligned(X, q)"]),
        (1, 1, 5),
        (1, 1, [None]),
        (None, 1),
        (object, 1),
        ([1], [1]),
        (q, 1),
        (E(q[i]), q),
        ("E(q[i])", "0", "zero_mean(q"),
        ("moment(q, 2)", "1", "moment(q, 2, 1/0)"),
        (sympy.Sum(q[i], (i, 1, 0)), 0),
        (D(D(K[i, r], q[j]), E(q[j])), 0),
    ],
    ids=repr,
)
def test_no_input_ends_in_a_traceback(arguments):
    with pytest.raises(ValueError, match=r"\w") as caught:
        prove(*arguments)
    assert len(str(caught.value).splitlines()) == 1


def test_numbers_that_are_no_fractions_stand_beside_random_vectors():
    """H and √2 have decimal values under a law whose components are polynomials."""
    given = ("independent(q, k)", "aligned(q, k)")
    for lhs in ("H + k[j]", "k[j] - H", "H*k[j]", "E(k[j])*H + k[j]*sqrt(2)", "log(p[i])*q[j]**2"):
        assert truth(lhs, "0", *given) is Truth.FALSE


def test_deep_nesting_is_refused():
    deep = q[i]
    for _ in range(3 * sys.getrecursionlimit()):
        deep = E(deep)
    with pytest.raises(ValueError, match="nested"):
        prove(deep, 0)


# Time.


def nested(operator, depth):
    expression = q[i]
    for _ in range(depth):
        expression = operator(expression)
    return expression


TOWER = ((((Sum(1, i) + 7) ** 16 + 1) ** 16 + 1) ** 16 + 1) ** 16


@pytest.mark.parametrize(
    ("lhs", "rhs", "assuming"),
    [
        (nested(Var, 10), 0, ()),
        (nested(Var, 3), 0, ()),
        (TOWER, TOWER, ()),
        (TOWER, 0, ()),
        (E(Dot(k, q) ** 12), 0, NORMAL),
        (E(Dot(k, q) ** 8 * Sum(q[i] ** 3, i)), 0, ()),
        (E(Sum(q[i] * q[j] * k[i] * k[r], i, j, r) ** 4), 0, NORMAL),
        (E(Dot(k, q) ** 4), 3 * d_k**2, ("independent(q, k)", "uncorrelated(k2)", "aligned(q, k2)")),
        (E((Sum(p[i] ** 3, i) + 1) ** 12 * vector("v")[j]), 0, ()),
        (D(Sum(p[i] ** 9, i) ** 9, s[j]), 0, ()),
    ],
    ids=lambda value: str(value)[:40],
)
def test_every_question_ends(lhs, rhs, assuming):
    started = time.process_time()
    with contextlib.suppress(ValueError):
        str(prove(lhs, rhs, assuming))
    assert time.process_time() - started < 20


# Words.


def test_unknown_says_what_was_tried():
    reason = prove(E(q[i] ** 2), E(k[i] ** 2), ("unit(q)", "gaussian(q)")).reason
    assert "no law" in reason
    reason = prove(E(q[i] ** 10), E(k[i] ** 10), [f"moment({v}, {n}, 1)" for v in "qk" for n in (2, 4, 6, 8)]).reason
    assert "compared" in reason


@pytest.mark.parametrize(
    ("lhs", "rhs", "named"),
    [("E(S)", "1", "S"), ("E(X*Y)", "1", "X"), ("E(z**2)", "2", "z"), ("E(S*q[i])", "1", "S"), ("E(v[i])", "1", "v")],
)
def test_a_counterexample_names_every_law(lhs, rhs, named):
    witness = str(prove(lhs.replace("v", "q"), rhs).witness)
    assert ": :" not in witness
    assert ", :" not in witness
    assert (named if named != "v" else "q") in witness


def test_large_numbers_are_shown_short():
    assert len(str(prove("1e-400", "0"))) < 300
    assert "about 1.0e-400" in str(prove("1e-400", "0"))


# Sizes.


@pytest.mark.parametrize(
    ("lhs", "rhs", "assuming", "size"),
    [
        ("(d_k - 1)*(d_k - 2)*(d_k - 3)*(d_k - 5)", "0", (), 4),
        ("sqrt(d_k)", "d_k", (), 2),
        ("Var(Dot(k, q))", "d_k + (d_k - 1)*(d_k - 2)*(d_k - 3)", STANDARD, 4),
        ("E(Dot(k, q)**4)", "3*d_k**2 + 6*d_k + (d_k - 1)*(d_k - 2)*(d_k - 3)*(d_k - 4)", NORMAL, 5),
    ],
)
def test_the_size_at_which_it_fails_is_named(lhs, rhs, assuming, size):
    verdict = prove(lhs, rhs, assuming)
    assert verdict.truth is Truth.FALSE
    assert f"d_k = {size}" in str(verdict.witness)


def test_false_is_kept_when_more_is_assumed_of_others():
    given = ("gaussian(q)", "zero_mean(q)", "unit_variance(q)")
    for more in ((), ("gaussian(k)",), ("gaussian(k)", "zero_mean(k2)"), ("law(k, laplace)",), ("moment(k, 2, 5)",)):
        verdict = prove("E(q[i]**4)", "4", (*given, *more))
        assert verdict.truth is Truth.FALSE
        assert verdict.witness.lhs == Fraction(3)
