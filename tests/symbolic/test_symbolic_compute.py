"""Closed forms: against formulas known by heart, against `sympy.stats`, and refused where nothing determines them."""

import json
import time
from fractions import Fraction

import pytest
import sympy

from analysis.cli import main
from attnsym.symbolic import (
    CentralMoment,
    Cumulant,
    Dot,
    E,
    NotDetermined,
    Sum,
    Truth,
    Var,
    beta,
    c,
    closed_form,
    d_k,
    delta,
    i,
    j,
    k,
    mu_k,
    mu_q,
    prove,
    q,
    rho,
    sigma_k,
    sigma_q,
)
from attnsym.symbolic.refute.marginals import SIGN, SKEW

INDEPENDENT = ("independent(q, k)", "independent_components(q)", "independent_components(k)")
CENTRED = (*INDEPENDENT, "zero_mean(q)", "zero_mean(k)")
STANDARD = (*CENTRED, "unit_variance(q)", "unit_variance(k)")
NORMAL = (*STANDARD, "gaussian(q)", "gaussian(k)")
TWO_KEYS = ("independent(q, k, k2)", *NORMAL[1:], "zero_mean(k2)", "unit_variance(k2)", "independent_components(k2)")
ALIGNED = ("independent_pairs(q, k)", "gaussian_pairs(q, k)", "aligned(q, k)", *STANDARD[3:])
LAPLACE_UNIFORM = (*CENTRED, "moment(q, 2, 2)", "moment(q, 4, 24)", "moment(k, 2, 1/3)", "moment(k, 4, 1/5)")
n = d_k
QUARTIC = {  # E s⁴ of aligned normal pairs, from the cumulants of a product: κ₁ = ρ, κ₂ = 1 + ρ², κ₃, κ₄ by Isserlis
    1: rho * n,
    2: (1 + rho**2) * n,
    3: (6 * rho + 2 * rho**3) * n,
    4: (6 + 36 * rho**2 + 6 * rho**4) * n,
}


@pytest.mark.parametrize(
    ("expression", "assuming", "value"),
    [
        ("E(Dot(k, q)**4)", NORMAL, 3 * n * (n + 2)),
        ("E(Dot(k, q)**6)", NORMAL, 15 * n * (n**2 + 6 * n + 8)),
        ("E(Dot(k, q)**8)", NORMAL, 105 * n * (n**3 + 12 * n**2 + 44 * n + 48)),
        ("E(Dot(k, q)**5)", NORMAL, 0),
        ("Cumulant(Dot(k, q), 4)", NORMAL, 6 * n),
        ("Cumulant(Dot(k, q), 6)", NORMAL, 120 * n),
        ("CentralMoment(Dot(k, q), 2)", NORMAL, n),
        ("E(Dot(k, q)**2*Dot(k2, q)**2)", TWO_KEYS, n * (n + 2)),
        ("Cov(Dot(k, q)**2, Dot(k2, q)**2)", TWO_KEYS, 2 * n),
        ("E(Dot(k, q)**4)", LAPLACE_UNIFORM, 4 * n * (5 * n + 13) / 15),
        ("E(Dot(k, q)**4)", (*INDEPENDENT, "law(q, sign)", "law(k, sign)"), n * (3 * n - 2)),
        ("E(Dot(k, q)**4)/Var(Dot(k, q))**2", NORMAL, 3 + 6 / n),
        ("sqrt(Var(Dot(k, q)))", STANDARD, sympy.sqrt(n)),
        ("Var(c*Dot(k, q))", STANDARD, c**2 * n),
        ("Var(Dot(k, q)/sqrt(d_k))", STANDARD, 1),
        ("Cov(q[i], q[j])", STANDARD, delta(i, j)),
        ("Var(Sum(beta[i]*q[i], i))", STANDARD, Sum(beta[i] ** 2, i)),
        (
            "Var(Dot(k, q))",
            (*INDEPENDENT, "mean_variance(q)", "mean_variance(k)"),
            n * (sigma_q**2 * sigma_k**2 + mu_q**2 * sigma_k**2 + mu_k**2 * sigma_q**2),
        ),
        *((f"Cumulant(Dot(k, q), {order})", ALIGNED, value) for order, value in QUARTIC.items()),
        (
            "E(Dot(k, q)**4)",
            ALIGNED,
            QUARTIC[4]
            + 4 * QUARTIC[3] * QUARTIC[1]
            + 3 * QUARTIC[2] ** 2
            + 6 * QUARTIC[2] * rho**2 * n**2
            + rho**4 * n**4,
        ),
    ],
)
def test_known_by_heart(expression, assuming, value):
    started = time.process_time()
    form = closed_form(expression, assuming)
    assert time.process_time() - started < 20
    difference = sympy.expand(form.value - value)
    assert difference == 0
    verdict = prove(form.statement.lhs, form.statement.rhs, assuming)
    assert verdict.truth is Truth.TRUE
    assert verdict.moments == form.required


def test_moments_that_must_be_finite_are_named():
    assert closed_form(E(Dot(k, q) ** 6), NORMAL).required == ("E[qᵢ⁶]", "E[kᵢ⁶]")
    assert closed_form(Var(Dot(k, q)), STANDARD).required == ("E[qᵢ²]", "E[kᵢ²]")
    assert "Finite must be" in str(closed_form(Var(Dot(k, q)), STANDARD))


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_sympy_stats_agrees(d, order):
    """Concrete variables: q signs, k skewed, so that odd moments are no zeros by symmetry."""
    from sympy.stats import E as expectation
    from sympy.stats import FiniteRV

    def variables(name, law):
        return [FiniteRV(f"{name}{m}", {sympy.Rational(v): sympy.Rational(w) for v, w in law}) for m in range(d)]

    def given(name, law):
        moments = {m: sum((w * v**m for v, w in law), Fraction(0)) for m in range(1, order + 1)}
        return [f"moment({name}, {m}, {value})" for m, value in moments.items()]

    score = sum(x * y for x, y in zip(variables("q", SIGN), variables("k", SKEW), strict=True))
    form = closed_form(E(Dot(k, q) ** order), (*INDEPENDENT, *given("q", SIGN), *given("k", SKEW)))
    assert form.value.subs(d_k, d) == expectation(score**order)


@pytest.mark.parametrize(
    ("expression", "assuming", "missing"),
    [
        ("E(Dot(k, q)**4)", STANDARD, "E(q[i]**4)"),
        ("Var(Dot(k, q))", STANDARD[1:], "independent(k, q)"),
        ("Var(Sum(q[i], i))", ("unit_variance(q)",), "independent_components(q)"),
        ("E(q[i])", (), "zero_mean(q)"),
    ],
)
def test_what_is_missing_is_named(expression, assuming, missing):
    with pytest.raises(NotDetermined) as caught:
        closed_form(expression, assuming)
    assert any(missing in item for item in caught.value.missing)
    assert caught.value.partial.has(E)


def test_the_partial_form_is_right():
    with pytest.raises(NotDetermined) as caught:
        closed_form("E(Dot(k, q)**4)", STANDARD)
    assert prove("E(Dot(k, q)**4)", caught.value.partial, STANDARD)


def test_refused():
    for expression in ("E(q[1])", "E(1/q[i])", "1/0", "E(p[i])", "E(q[i]*q[j]*q[l])"):
        with pytest.raises(ValueError, match=r"\w"):
            closed_form(expression, STANDARD)
    with pytest.raises(ValueError, match="divides by"):
        closed_form("E(q[i]**2)/E(q[i])", STANDARD)
    for order in (0, 13, True, 1.5):
        for operator in (Cumulant, CentralMoment):
            with pytest.raises(ValueError, match="order"):
                operator(q[i], order)


def test_command(capsys):
    assumed = ", ".join(NORMAL)
    assert main(["compute", "E(Dot(k,q)**6)", "--assume", assumed]) == 0
    assert "15 d_k (d_k + 2)(d_k + 4)" in capsys.readouterr().out
    assert main(["compute", "E(Dot(k,q)**6)", "--assume", assumed, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["value"] == "15*d_k*(d_k + 2)*(d_k + 4)"
    assert record["finite_moments"] == ["E[qᵢ⁶]", "E[kᵢ⁶]"]
    assert main(["compute", "E(q[i]**4)", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["missing"]
    assert main(["compute", "E(q[1])"]) == 2
