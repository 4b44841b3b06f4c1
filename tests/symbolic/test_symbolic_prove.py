"""`prove` and the reader of claims: verdicts with witnesses, and hostile text that runs nothing."""

import time
from fractions import Fraction

import mpmath
import pytest
import sympy
from sympy import sqrt

from attnsym.symbolic import (
    DERIVATIONS,
    Assumption,
    D,
    Dot,
    E,
    H,
    Sum,
    Truth,
    Var,
    assumption,
    c,
    d_k,
    delta,
    derive,
    i,
    j,
    k,
    n_keys,
    p,
    prove,
    q,
    s,
    scale,
)
from attnsym.symbolic.deciding import decide
from attnsym.symbolic.language.expressions import read
from attnsym.symbolic.refute.evaluator import Evaluator
from attnsym.symbolic.refute.laws import laws
from attnsym.symbolic.refute.marginals import SIGN, SKEW
from attnsym.symbolic.refute.satisfaction import satisfies

SCORE = Sum(q[i] * k[i], i)
HEADLINE = DERIVATIONS["score-variance"].assumptions


def test_true_names_what_must_be_finite():
    verdict = prove(Var(SCORE), d_k, HEADLINE)
    assert verdict.truth is Truth.TRUE
    assert verdict.moments == ("E[qᵢ²]", "E[kᵢ²]")
    assert bool(verdict)


def test_weakest_assumptions_suffice_and_nothing_less_does():
    """The vectors independent, one uncorrelated, means 0, variances 1; no identical law."""
    sets = derive("score-variance").weakest_assumptions()
    common = {"independent(q, k)", "zero_mean(q)", "zero_mean(k)", "unit_variance(q)", "unit_variance(k)"}
    found = {frozenset(map(str, own)) for own in sets}
    assert found == {frozenset(common | {f"uncorrelated({name})"}) for name in ("q", "k")}
    for own in sets:
        assert prove(Var(SCORE), d_k, own)
        for item in own:
            fewer = [other for other in own if other != item]
            assert prove(Var(SCORE), d_k, fewer).truth is Truth.FALSE, item


@pytest.mark.parametrize("key", ["score-mean", "scaled-score-variance", "score-moments-general"])
def test_weakest_sets_are_minimal(key):
    derivation = derive(key)
    for own in derivation.weakest_assumptions():
        for item in (None, *own):
            chosen = [other for other in own if other != item]
            proved = all(prove(one.lhs, one.rhs, chosen) for one in derivation.statement.equations)
            assert proved is (item is None)


def test_weakest_sets_do_not_depend_on_the_route():
    sets = {key: set(derive(key).weakest_assumptions()) for key in ("score-variance", "score-variance-induction")}
    assert (
        sets["score-variance"]
        == sets["score-variance-induction"]
        == set(derive("score-variance-bienayme").weakest_assumptions())
    )
    for key in ("softmax-jacobian", "score-mgf", "scale-uniqueness"):
        with pytest.raises(ValueError, match=f"moments of vectors: got {key}"):
            derive(key).weakest_assumptions()


@pytest.mark.parametrize(
    ("keys", "least"),
    [
        (["score-mean", "score-variance", "scale-uniqueness", "cosine-variance"], 4),
        pytest.param(list(DERIVATIONS), 20, marks=pytest.mark.slow),
    ],
    ids=["some", "all"],
)
def test_each_statement_has_its_own_weakest_assumptions(keys, least):
    """Every set suffices, nothing less does, and what one statement needs is not asked of another."""
    met = 0
    for derivation in map(derive, keys):
        stated = [str(chain.equation) for chain in derivation.chains if chain.role == "statement"]
        for needs in derivation.weakest_by_statement():
            assert str(needs.equation) in stated
            assert str(needs.equation) in str(needs)
            met += 1
            for own in needs.sets:
                assert decide(needs.equation.lhs, needs.equation.rhs, own).holds
                for item in own:
                    fewer = [other for other in own if other != item]
                    assert not decide(needs.equation.lhs, needs.equation.rhs, fewer).holds, (derivation.key, item)
    assert met >= least
    mean, variance = derive("cosine-variance").weakest_by_statement()
    assert ["uncorrelated(u, w)", "zero_mean(w)"] in [list(map(str, own)) for own in mean.sets]
    assert [set(map(str, own)) for own in variance.sets] == [{"independent(u, w)", "isotropic(u)", "unit(w)"}]
    conditional = [str(needs.equation) for needs in derive("scale-uniqueness").weakest_by_statement()]
    assert conditional == ["Var(ckᵀq) = c² d_k"]


def test_mean_needs_one_mean_only():
    sets = {tuple(map(str, own)) for own in derive("score-mean").weakest_assumptions()}
    assert sets == {("uncorrelated(q, k)", "zero_mean(q)"), ("uncorrelated(q, k)", "zero_mean(k)")}


@pytest.mark.parametrize(
    ("lhs", "rhs", "assuming"),
    [
        (Var(SCORE), d_k**2, HEADLINE),
        (Var(SCORE), d_k, ()),
        (E(SCORE), 0, ("independent(q, k)",)),
        (Var(SCORE / d_k), 1, HEADLINE),
        (D(p[i], s[j]), p[i] * (delta(i, j) - p[i]), ()),
        (D(H, s[j]), 0, ()),
        (Sum(p[i] ** 2, i), 1 / n_keys, ()),
        (c * d_k, d_k, ()),
        (scale * p[i], p[i], ()),
    ],
    ids=str,
)
def test_false_carries_a_witness(lhs, rhs, assuming):
    verdict = prove(lhs, rhs, assuming)
    assert verdict.truth is Truth.FALSE
    assert verdict.witness.lhs != verdict.witness.rhs
    assert "Counterexample" in str(verdict)
    assert not verdict


def test_unknown_is_not_a_pass():
    """No law of random weights is at hand: what needs one is neither proved nor refuted, and the reason says so."""
    verdict = prove(E(p[i] ** 2), 1, ("exchangeable(p)",))
    assert verdict.truth is Truth.UNKNOWN
    assert not verdict
    assert "no law" in verdict.reason


def test_normal_moments_of_any_order_refute():
    verdict = prove(E(q[i] ** 6), 14, ("gaussian(q)", "zero_mean(q)", "unit_variance(q)"))
    assert verdict.truth is Truth.FALSE
    assert (verdict.witness.lhs, verdict.witness.rhs) == (15, 14)
    assert "standard normal" in str(verdict)


def test_uncovered_expressions_are_refused_not_guessed():
    with pytest.raises(ValueError, match="outside the grammar"):
        prove(sympy.gamma(d_k), 1)


@pytest.mark.parametrize(
    "assuming",
    [
        "",
        "zero_mean",
        "zero_mean()",
        "zero_mean(Q)",
        "zero_mean(p)",
        "zero_mean(q, k)",
        "independent(q)",
        "independent(q, q)",
        "magic(q)",
        "zero_mean(q); import os",
        "__import__('os')",
        "modulo(t, x)",
        "same(q, u)",
        "isotropic(q)",
        3,
        None,
    ],
)
def test_unknown_assumptions_are_named(assuming):
    with pytest.raises(ValueError, match=r"assumption|takes|speaks"):
        prove(E(q[i]), 0, [assuming])


def test_assumptions_made_by_hand_are_read_like_any_other():
    """An isotropic q would bring 1/d_k where the bound on the degree expects none."""
    for forged in (Assumption("isotropic", ("q",)), Assumption("magic", ("q",)), Assumption("zero_mean", ("p",))):
        with pytest.raises(ValueError, match=r"speaks|unknown"):
            prove(E(q[i]), 0, [forged])


@pytest.mark.parametrize("key", ["score-mean", "score-variance", "scaled-score-variance"])
def test_without_names_the_step_and_shows_a_law(key):
    derivation = derive(key)
    for item in derivation.assumptions:
        weaker = derivation.without(item)
        verdict = weaker.check()
        assert verdict.truth is Truth.FALSE, item
        assert str(item) in verdict.reason
        assert item in weaker.steps[verdict.step].cites
        assert "✗ breaks" in weaker.to_unicode()


def test_without_shows_the_textbook_counterexamples():
    variance = derive("score-variance")
    assert "k = q" in str(variance.without("independent").check().witness)
    assert "q and k constant" in str(variance.without("independent_components(q)").check().witness)
    assert "mean 1" in str(variance.without("zero_mean(k)").check().witness)


def test_without_says_so_when_the_statement_survives():
    verdict = derive("score-variance-bienayme").without("independent_components(k)").check()
    assert verdict.truth is Truth.UNKNOWN
    assert "still follows" in verdict.reason


def test_without_refuses_what_is_not_assumed():
    with pytest.raises(ValueError, match="cannot withdraw identical"):
        derive("score-variance").without("identical(q)")
    with pytest.raises(ValueError, match="cannot withdraw zero_mean"):
        derive("score-variance").without("zero_mean")  # of which vector?


# The reader.


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("Var(Sum(q[i]*k[i], i))", Var(SCORE)),
        ("d_k", d_k),
        ("1/sqrt(d_k)", 1 / sqrt(d_k)),
        ("d_k**(1/2)", sqrt(d_k)),
        ("0.25", sympy.Rational(1, 4)),
        ("Sum(delta(i, j), i, j)", Sum(delta(i, j), i, j)),
        ("D(p[i], s[j])", D(p[i], s[j])),
        ("-p[j]*(log(p[j]) + H)", -p[j] * (sympy.log(p[j]) + H)),
        ("Var(Dot(k, q))", Var(Dot(k, q))),
        ("3*d_k**2 + 6*d_k", 3 * d_k**2 + 6 * d_k),
    ],
)
def test_reads(text, expression):
    assert read(text) == expression


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').mkdir('canary')",
        "().__class__.__base__.__subclasses__()",
        "E.__init__",
        "q.base",
        "E(q[i]).subs",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "{1}",
        "f'{q}'",
        "'text'",
        'E(\'__import__("os").mkdir("canary")\')',
        "q['canary']",
        "q[(lambda: 1)()]",
        "exec",
        "open('canary', 'w')",
        "sympify('1')",
        "E(q[i], evaluate=True)",
        "E(*q)",
        "q[i:j]",
        "q[1]",
        "9**9**9",
        "((9**16)**16)**16",
        "((((2**16)**16)**16)**16)**16",
        "d_k**9999",
        "d_k**d_k",
        "sqrt(2)",
        "sqrt(10**300)",
        "exp(10**16)",
        "exp(exp(exp(s[i])))",
        "log(log(d_k))",
        "1e999",
        "1/0",
        "d_k/0",
        "1_0j",
        "True",
        "q[i] == k[i]",
        "q[i] if q else k[i]",
        "q := 1",
        "excess[i]",
        "two_key",
        "moment(q, 10**9)",
        "moment(p, 2)",
        "Sum(q[i])",
        "Sum(q[i], i, i)",
        "Sum(q[i], q)",
        "Sum(Sum(q[i], i)*k[i], i)",
        "delta(i)",
        "delta(q, k)",
        "D(q, k)",
        "Dot(q)",
        "E()",
        "Trace(1, 2)",
        "WeightedMean(x[i], 3)",
        "q[i][j]",
        "d_k[i]",
        "q(i)",
        "E[q]",
        "",
        " ",
        "(" * 400,
        "(" * 240 + "1" + ")" * 240,
        "1+" * 250 + "1",
        "E(" * 90 + "1" + ")" * 90,
        "q\0",
        "é",
        "1" * 600,
        "d_k; import os",
    ],
)
def test_hostile_text_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = time.process_time()
    with pytest.raises(ValueError, match=r"\w") as caught:
        prove(text, "0")
    assert len(str(caught.value).splitlines()) == 1
    assert time.process_time() - started < 20
    assert not list(tmp_path.iterdir())


# A third opinion, and a fourth.


@pytest.mark.parametrize("d", [1, 2, 3])
def test_sympy_stats_agrees(d):
    """Concrete variables of `sympy.stats` as an oracle: mean 0, variance d, with laws that are not alike."""
    from sympy.stats import E as expectation
    from sympy.stats import FiniteRV, density, variance

    def variables(name, law):
        return [FiniteRV(f"{name}{n}", {sympy.Rational(v): sympy.Rational(w) for v, w in law}) for n in range(d)]

    score = sum(x * y for x, y in zip(variables("q", SIGN), variables("k", SKEW), strict=True))
    assert expectation(score) == 0
    assert variance(score) == d
    assert sum(density(score).values()) == 1
    fourth_q, fourth_k = (sum(w * v**4 for v, w in law) for law in (SIGN, SKEW))
    predicted = d * fourth_q * fourth_k + 3 * d * (d - 1)
    assert Fraction(str(expectation(score**4))) == predicted


def test_the_trap_that_gives_d_squared():
    """One product summed d_k times is not d_k products; `sympy.stats` says d², and is right about what it was told."""
    from sympy.stats import Normal, variance

    d, x, y = sympy.Symbol("d", positive=True, integer=True), Normal("x", 0, 1), Normal("y", 0, 1)
    assert sympy.simplify(variance(sympy.Sum(x * y, (sympy.Symbol("n"), 1, d)).doit())) == d**2
    assert prove(Var(SCORE), d_k**2, ("constant(q)", "constant(k)", *HEADLINE[:1], *HEADLINE[2:]))
    assert prove(Var(SCORE), d_k**2, HEADLINE).truth is Truth.FALSE


def test_names_do_not_make_independence():
    """Elsewhere two variables of one name are one, and two names are independent. Here only assumptions count."""
    assert not prove(E(q[i] * k[i]), E(q[i]) * E(k[i]))
    assert prove(E(q[i] * k[i]), E(q[i]) * E(k[i]), "independent(q, k)")
    assert prove(E(q[i] * q[i]), E(q[i] ** 2))


def test_compound_laws_are_not_factored():
    """E[XY] of dependent X and Y stays a moment; it is never a random variable."""
    verdict = prove(E(q[i] * k[j]), E(q[i]) * E(k[j]), ("zero_mean(k)",))
    assert verdict.truth is Truth.FALSE
    assert prove(E(E(q[i]) * k[j]), E(q[i]) * E(k[j]))


def test_no_sum_is_empty_or_fractional():
    """d_k is a whole number from 1 on, so that no convention about empty or reversed sums ever matters."""
    assert d_k.is_integer
    assert d_k.is_positive
    assert all(law.d >= 1 for law in laws(["q"]))


def test_derivatives_use_an_index_of_their_own():
    """∂/∂qᵢ Σᵢ qᵢkᵢ is kᵢ, not Σᵢ kᵢ, although the letters are the same."""
    assert prove(D(SCORE, q[i]), k[i])
    assert prove(D(SCORE, q[j]), k[j])
    assert not prove(D(SCORE, q[i]), Sum(k[i], i))


def test_exact_integers_do_not_overflow():
    assert prove(9**20, 12157665459056928801)
    assert prove((2**70 + 1) * d_k - 2**70 * d_k, d_k)


# The enumerator itself, against values computed by hand.


def test_enumerator_by_hand():
    law = next(law for law in laws(["q", "k"]) if law.name.startswith("k = q"))
    assert Evaluator(law.d, 1, law, ()).of(E(SCORE), {}) == law.d
    assert satisfies(law, assumption("same(q, k)"))
    assert not satisfies(law, assumption("independent(q, k)"))
    assert satisfies(law, assumption("independent_pairs(q, k)"))
    with mpmath.workdps(30):
        evaluator = Evaluator(2, 3, None, ())
        assert abs(sum(evaluator.weights()) - 1) < mpmath.mpf(10) ** -28
        gradient = evaluator.of(D(p[i], s[j]), {i: 1, j: 2})
        weights = evaluator.weights()
        assert abs(gradient + weights[0] * weights[1]) < mpmath.mpf(10) ** -10


@pytest.mark.parametrize("law", [law for law in laws(["q", "k"]) if law.d == 2], ids=lambda law: law.name[:40])
def test_laws_are_laws(law):
    assert sum(weight for weight, _ in law.outcomes) == 1
    assert all(weight > 0 for weight, _ in law.outcomes)
    assert all(len(values) == law.d for _, outcome in law.outcomes for values in outcome.values())
    implied = [
        ("independent_pairs(q, k)", "independent_components(q)"),
        ("independent_components(q)", "uncorrelated(q)"),
    ]
    implied += [("independent(q, k)", "uncorrelated(q, k)"), ("identical(q)", "fourth_moment(q)")]
    for strong, weak in implied:
        assert not satisfies(law, assumption(strong)) or satisfies(law, assumption(weak))
