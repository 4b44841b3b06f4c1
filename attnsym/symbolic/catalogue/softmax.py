"""Softmax at symbolic number of keys: its Jacobian, the size of it, and how it dies."""

from __future__ import annotations

from sympy import Rational, exp, log

from attnsym.symbolic.derivation.derivation import Derivation
from attnsym.symbolic.derivation.steps import Axiom, Equation, Known
from attnsym.symbolic.derivation.writing import chain, line
from attnsym.symbolic.language.notation import (
    D,
    H,
    Sum,
    WeightedVar,
    delta,
    epsilon,
    excess,
    i,
    j,
    l,
    log_Z,
    n_keys,
    p,
    r,
    s,
    x,
)

JACOBIAN = p[i] * (delta(i, j) - p[j])
SQUARES = Sum(p[i] ** 2, i)


def softmax_jacobian() -> Derivation:
    """∂pᵢ/∂sⱼ = pᵢ(δᵢⱼ − pⱼ): row sums 0, symmetric, quadratic form a variance, trace 1 − Σp²."""
    total = Sum(exp(s[l]), l)
    quotient = (delta(i, j) * exp(s[i]) * total - exp(s[i]) * exp(s[j])) / total**2
    return Derivation(
        key="softmax-jacobian",
        title="the Jacobian of softmax",
        chains=(
            chain(
                D(p[i], s[j]),
                line("definition", D(exp(s[i]) / total, s[j])),
                line("softmax derivative", quotient, note="The quotient rule; ∂/∂sⱼ of Σ exp(sₗ) is exp(sⱼ)."),
                line("definition", delta(i, j) * p[i] - p[i] * p[j]),
                line("collect", JACOBIAN),
                heading="One entry",
            ),
            chain(
                Sum(D(p[i], s[j]), j),
                line("softmax derivative", Sum(JACOBIAN, j)),
                line("evaluate", p[i] - p[i] * Sum(p[j], j)),
                line("weights sum to 1", 0, note="A shift common to all scores changes nothing."),
                heading="Row sums",
            ),
            chain(
                D(p[i], s[j]),
                line("softmax derivative", JACOBIAN),
                line("expand", delta(i, j) * p[i] - p[i] * p[j]),
                line("collect", p[j] * (delta(i, j) - p[i]), note="Where δᵢⱼ is not 0, i and j are the same."),
                line("softmax derivative", D(p[j], s[i])),
                heading="Symmetry",
            ),
            chain(
                Sum(x[i] * D(p[i], s[j]) * x[j], i, j),
                line("softmax derivative", Sum(x[i] * JACOBIAN * x[j], i, j)),
                line("expand", Sum(p[i] * x[i] ** 2, i) - Sum(p[i] * x[i], i) ** 2),
                line(
                    "definition of variance", WeightedVar(x[i], i), note="At least 0, and 0 where softmax is one-hot."
                ),
                heading="The quadratic form is a variance",
            ),
            chain(
                Sum(D(p[i], s[i]), i),
                line("softmax derivative", Sum(p[i] * (1 - p[i]), i)),
                line("expand", Sum(p[i], i) - SQUARES),
                line("weights sum to 1", 1 - SQUARES),
                heading="The trace",
            ),
        ),
        source="derived here",
    )


def softmax_jacobian_norm() -> Derivation:
    """‖J‖²_F = Σp² − 2Σp³ + (Σp²)²."""
    return Derivation(
        key="softmax-jacobian-norm",
        title="the Frobenius norm of the Jacobian of softmax",
        chains=(
            chain(
                Sum(D(p[i], s[j]) ** 2, i, j),
                line("softmax derivative", Sum(JACOBIAN**2, i, j)),
                line(
                    "expand",
                    Sum(p[i] ** 2 * (delta(i, j) - 2 * delta(i, j) * p[j] + p[j] ** 2), i, j),
                    note="δ² = δ.",
                ),
                line("evaluate", SQUARES - 2 * Sum(p[i] ** 3, i) + Sum(p[i] ** 2 * p[j] ** 2, i, j)),
                line("collect", SQUARES - 2 * Sum(p[i] ** 3, i) + SQUARES**2),
            ),
        ),
        source="derived here",
    )


def softmax_jacobian_spectral_norm() -> Derivation:
    """Show xᵀJx ≤ ‖x‖²/2: no eigenvalue of the Jacobian is above 1/2."""
    off = 1 - delta(i, j)
    differences = Sum(off * p[i] * p[j] * (x[i] - x[j]) ** 2, i, j) / 2
    squares = Sum(off * p[i] * p[j] * (x[i] ** 2 + x[j] ** 2), i, j)
    return Derivation(
        key="softmax-jacobian-spectral-norm",
        title="the largest eigenvalue of the Jacobian of softmax is at most 1/2",
        chains=(
            chain(
                Sum(x[i] * D(p[i], s[j]) * x[j], i, j),
                line("softmax derivative", Sum(x[i] * JACOBIAN * x[j], i, j)),
                line("expand", Sum(p[i] * x[i] ** 2, i) - Sum(p[i] * x[i], i) ** 2),
                line("weights sum to 1", differences, note="So J has no negative eigenvalue."),
                line(
                    "compare terms",
                    squares,
                    relation="≤",
                    slack=Sum(off * p[i] * p[j] * (x[i] + x[j]) ** 2, i, j) / 2,
                    note="(a − b)² = 2a² + 2b² − (a + b)².",
                ),
                line("weights sum to 1", Sum(2 * p[i] * (1 - p[i]) * x[i] ** 2, i)),
                line(
                    "compare terms",
                    Sum(x[i] ** 2, i) / 2,
                    relation="≤",
                    slack=Sum(x[i] ** 2 * (1 - 2 * p[i]) ** 2, i) * Rational(1, 2),
                    note="4p(1 − p) = 1 − (1 − 2p)².",
                ),
            ),
        ),
        source="derived here; the bound is that of Nair 2025 on the Lipschitz constant of softmax",
        remark=(
            "Two weights of 1/2 and x = (1, −1) attain it. J is symmetric, so this is its spectral norm, and softmax "
            "is Lipschitz with the constant 1/2 in the Euclidean norm. The slope 1/4 of the logistic function is half "
            "of it, since one score moves there, not two against one another."
        ),
    )


def log_sum_exp() -> Derivation:
    """∂log Z/∂sⱼ = pⱼ, the second derivative is the Jacobian of softmax, and H = log Z − Σ p s."""
    return Derivation(
        key="log-sum-exp",
        title="the log-sum-exp of the scores: its gradient is softmax, its curvature the Jacobian",
        chains=(
            chain(
                D(log_Z, s[j]),
                line("definition", D(log(Sum(exp(s[l]), l)), s[j])),
                line("chain rule", exp(s[j]) / Sum(exp(s[l]), l)),
                line("definition", p[j]),
                heading="The gradient",
            ),
            chain(
                D(D(log_Z, s[j]), s[i]),
                line("chain rule", D(p[j], s[i]), note="By the first chain."),
                line("softmax derivative", p[j] * (delta(i, j) - p[i])),
                line("collect", JACOBIAN),
                heading="The second derivative",
            ),
            chain(
                H,
                line("definition", -Sum(p[i] * log(p[i]), i)),
                line("definition", -Sum(p[i] * (s[i] - log_Z), i)),
                line("expand", log_Z * Sum(p[i], i) - Sum(p[i] * s[i], i)),
                line("weights sum to 1", log_Z - Sum(p[i] * s[i], i)),
                heading="The entropy",
            ),
        ),
        source="derived here",
        remark=(
            "Fused kernels keep log Z of every row for the backward pass; with it the entropy costs one more weighted "
            "mean, of the scores, and no matrix of weights."
        ),
    )


def softmax_saturation() -> Derivation:
    """A strict gap and a growing scale make softmax one-hot and its Jacobian 0."""
    off = 1 - delta(i, l)
    gap = Axiom(
        "sᵢ is the largest score, g > 0 its gap to the next, t the scale and ε = exp(−t·g); since exp increases, "
        "pₗ = pᵢ exp(−t(sᵢ − sₗ)) ≤ ε pᵢ for l ≠ i, and ξₗ = ε pᵢ − pₗ ≥ 0 names the difference; ε → 0 as t → ∞",
        Equation(off * excess[l], off * (epsilon * p[i] - p[l])),
        positive=(excess, epsilon),
    )
    others = Sum(off * p[l], l)
    left_out = Sum(off * excess[l], l)
    given = (Known(gap, over=(l,)),)
    spare = Sum(off * (1 - delta(i, r)) * epsilon * p[r], l, r)
    bound = (n_keys - 1) * epsilon
    first = chain(
        1 - p[i],
        line("weights sum to 1", others),
        line("compare terms", Sum(off * epsilon * p[i], l), relation="≤", slack=left_out, known=given),
        line("evaluate", bound * p[i]),
        line("compare terms", bound, relation="≤", slack=spare, note="pᵢ ≤ 1."),
        heading="The largest weight",
    )
    rest = Sum(off * p[l] ** 2, l)
    second = chain(
        1 - Sum(p[l] ** 2, l),
        line("expand", (1 - p[i]) * (1 + p[i]) - rest),
        line("compare terms", (1 - p[i]) * (1 + p[i]), relation="≤", slack=rest),
        line("compare terms", 2 * (1 - p[i]), relation="≤", slack=others**2, note="1 + pᵢ ≤ 2."),
        line("compare terms", 2 * bound, relation="≤", slack=2 * left_out + 2 * spare, known=(Known(gap, 2, (l,)),)),
        heading="The trace of the Jacobian",
    )
    return Derivation(
        key="softmax-saturation",
        title="a strict gap and a growing scale: softmax turns one-hot, its Jacobian vanishes",
        chains=(first, second),
        source="derived here",
        remark=(
            "J is positive semidefinite, so a trace that vanishes takes every entry with it. At fixed scores the decay "
            "is exponential in the scale; averaged over random scores it is only a power, since small gaps happen."
        ),
    )
