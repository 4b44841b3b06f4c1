"""Gradients through attention: with respect to the query, of the entropy, near uniform weights, and for two keys."""

from __future__ import annotations

from typing import Any

from sympy import Integer, Rational, log, pi

from attnsym.symbolic.catalogue.softmax import JACOBIAN
from attnsym.symbolic.derivation.derivation import Derivation
from attnsym.symbolic.derivation.steps import Axiom, Equation, Known
from attnsym.symbolic.derivation.writing import chain, line
from attnsym.symbolic.language.notation import (
    D,
    E,
    H,
    H_t,
    K,
    KeySum,
    Sum,
    V,
    WeightedCov,
    a,
    b,
    bell_width,
    delta,
    i,
    j,
    l,
    logistic_2,
    logistic_4,
    n_keys,
    p,
    p_t,
    q,
    r,
    s,
    s_third,
    s_variance,
    scale,
    sigma_z,
    t,
    two_key,
    x,
    z,
)
from attnsym.symbolic.trusted.assumptions import assumption


def attention_gradient() -> Derivation:
    """∂o/∂q = scale · Cov_p(v, k)."""
    output = Sum(p[i] * V[i, a], i)
    products = Sum(p[i] * V[i, a] * K[i, r], i) - output * Sum(p[j] * K[j, r], j)
    return Derivation(
        key="attention-gradient",
        title="the gradient of an output with respect to the query is scale × covariance",
        chains=(
            chain(
                D(output, q[r]),
                line("chain rule", scale * Sum(D(p[i], s[j]) * V[i, a] * K[j, r], i, j), note="∂sⱼ/∂qᵣ = scale · Kⱼᵣ."),
                line("softmax derivative", scale * Sum(JACOBIAN * V[i, a] * K[j, r], i, j)),
                line("expand", scale * products),
                line("definition of covariance", scale * WeightedCov(V[i, a], K[i, r], i)),
            ),
        ),
        source="derived here",
        remark=(
            "Where one weight is 1 the covariance is 0: no gradient reaches the query. The scale stands in front, so a "
            "small scale makes small gradients as surely as a saturated softmax does."
        ),
    )


def attention_gradient_keys_values() -> Derivation:
    """∂o/∂V = p and ∂oₐ/∂K_jr = scale · pⱼ (V_ja − oₐ) qᵣ."""
    output = Sum(p[i] * V[i, a], i)
    return Derivation(
        key="attention-gradient-keys-values",
        title="the gradients of an output with respect to keys and values",
        chains=(
            chain(
                D(output, V[j, b]),
                line("linearity", Sum(p[i] * delta(i, j) * delta(a, b), i)),
                line("evaluate", p[j] * delta(a, b)),
                heading="By a value",
            ),
            chain(
                D(output, K[j, r]),
                line("chain rule", scale * q[r] * Sum(D(p[i], s[j]) * V[i, a], i), note="∂sⱼ/∂Kⱼᵣ = scale · qᵣ."),
                line("softmax derivative", scale * q[r] * Sum(JACOBIAN * V[i, a], i)),
                line("evaluate", scale * q[r] * (p[j] * V[j, a] - p[j] * output)),
                line("collect", scale * q[r] * p[j] * (V[j, a] - output)),
                heading="By a key",
            ),
        ),
        source="derived here",
        remark=(
            "A key without weight gets no gradient, and neither does a key that has all of it, since the output then "
            "is its value. The gradient by values carries neither the scale nor a factor that vanishes: they go on "
            "learning where queries and keys no longer do."
        ),
    )


def entropy_gradient() -> Derivation:
    """∂H/∂sⱼ = −pⱼ(log pⱼ + H), and H = log n_keys at equal scores."""
    return Derivation(
        key="entropy-gradient",
        title="the gradient of the entropy of the weights",
        chains=(
            chain(
                D(H, s[j]),
                line("definition", D(-Sum(p[i] * log(p[i]), i), s[j])),
                line("chain rule", -Sum(D(p[i], s[j]) * (log(p[i]) + 1), i), note="(x log x)′ = log x + 1."),
                line("softmax derivative", -Sum(JACOBIAN * (log(p[i]) + 1), i)),
                line("evaluate", -p[j] * (log(p[j]) + 1) + p[j] * Sum(p[i] * (log(p[i]) + 1), i)),
                line("weights sum to 1", -p[j] * log(p[j]) + p[j] * Sum(p[i] * log(p[i]), i)),
                line("definition", -p[j] * (log(p[j]) + H)),
                heading="The gradient",
            ),
            chain(
                KeySum(log(n_keys) / n_keys, i),
                line("evaluate", log(n_keys), note="The entropy of n_keys equal weights 1/n_keys."),
                heading="At equal scores",
            ),
        ),
        source="derived here",
    )


def entropy_high_temperature() -> Derivation:
    """Weights and entropy of softmax(t·s) for small t."""

    def exponential(index: Any) -> Any:
        return 1 + t * x[index] + t**2 * x[index] ** 2 / 2 + t**3 * x[index] ** 3 / 6

    growth = t**2 * s_variance / 2 + t**3 * s_third / 6
    inverse = (1 - growth) / n_keys
    total = Sum(exponential(l), l)
    centred = Axiom("xᵢ = sᵢ − s̄ are the scores less their mean: Σxᵢ = 0", Equation(Sum(x[l], l), Integer(0)))
    second = Axiom("v is the variance of the scores: Σxᵢ² = n_keys v", Equation(Sum(x[l] ** 2, l), n_keys * s_variance))
    third = Axiom("μ₃ is their third central moment: Σxᵢ³ = n_keys μ₃", Equation(Sum(x[l] ** 3, l), n_keys * s_third))
    taylor = Axiom(
        "softmax(t·s) = softmax(t·x), and exp has its Taylor series: up to O(t⁴), "
        "pᵢ Σₗ(1 + t xₗ + t²xₗ²/2 + t³xₗ³/6) = 1 + t xᵢ + t²xᵢ²/2 + t³xᵢ³/6",
        Equation(p_t[i] * total, exponential(i), remainder=t**4),
    )
    entropy = Axiom(
        "H = log Z − t Σ pᵢxᵢ with Z = n_keys(1 + y), y = O(t²), and log(1 + y) = y + O(y²): up to O(t⁴), "
        "H = log n_keys + y − t Σ pᵢxᵢ with y = t²v/2 + t³μ₃/6",
        Equation(H_t, log(n_keys) + growth - t * Sum(p_t[i] * x[i], i), remainder=t**4),
    )
    partition = chain(
        total,
        line("linearity", n_keys + t * Sum(x[l], l) + t**2 * Sum(x[l] ** 2, l) / 2 + t**3 * Sum(x[l] ** 3, l) / 6),
        line(
            "known", n_keys * (1 + growth), known=(Known(centred, t), Known(second, t**2 / 2), Known(third, t**3 / 6))
        ),
        role="lemma",
        heading="The sum of the exponentials, to third order",
    )
    product = Sum(exponential(i) * inverse * x[i], i)
    return Derivation(
        key="entropy-high-temperature",
        title="weights and entropy near equal scores",
        chains=(
            partition,
            chain(
                p_t[i],
                line(
                    "series",
                    p_t[i] * n_keys * (1 + growth) * inverse,
                    "modulo(t, 3)",
                    note="(1 + y)(1 − y) = 1 + O(t⁴).",
                ),
                line("known", p_t[i] * total * inverse, "modulo(t, 3)", known=(Known(partition, -p_t[i] * inverse),)),
                line("known", exponential(i) * inverse, "modulo(t, 3)", known=(Known(taylor, inverse),)),
                line("series", (1 + t * x[i] + t**2 * (x[i] ** 2 - s_variance) / 2) / n_keys, "modulo(t, 3)"),
                heading="The weights",
            ),
            chain(
                H_t,
                line(
                    "known", log(n_keys) + growth - t * Sum(p_t[i] * x[i], i), "modulo(t, 4)", known=(Known(entropy),)
                ),
                line(
                    "series",
                    log(n_keys) + growth - t * Sum(p_t[i] * n_keys * (1 + growth) * inverse * x[i], i),
                    "modulo(t, 4)",
                ),
                line(
                    "known",
                    log(n_keys) + growth - t * product,
                    "modulo(t, 4)",
                    known=(
                        Known(partition, t * p_t[i] * inverse * x[i], (i,)),
                        Known(taylor, -t * inverse * x[i], (i,)),
                    ),
                    note="As for the weights.",
                ),
                line(
                    "known",
                    log(n_keys) + growth - t * (t * s_variance + t**2 * s_third / 2),
                    "modulo(t, 4)",
                    known=(
                        Known(centred, -t * (1 - growth) / n_keys),
                        Known(second, -(t**2) / n_keys),
                        Known(third, -(t**3) / (2 * n_keys)),
                    ),
                ),
                line("collect", log(n_keys) - t**2 * s_variance / 2 - t**3 * s_third / 3),
                heading="The entropy",
            ),
        ),
        source="derived here",
    )


def two_key_gradient() -> Derivation:
    """E[Λ(z)(1 − Λ(z))] with the logistic function Λ, for z ~ N(0, σ_z²): small and large σ_z."""
    spread = tuple(map(assumption, ("gaussian(z)", "zero_mean(z)", "mean_variance(z)")))
    logistic = Rational(1, 2) + t / 4 - t**3 / 48 + t**5 / 480 - 17 * t**7 / 80640
    derivative = Rational(1, 4) - t**2 / 16 + t**4 / 96 - 17 * t**6 / 11520
    taylor = Axiom(
        "the logistic function Λ, Λ′ = Λ − Λ² and Λ(0) = 1/2, has the series of the first chain, whose derivative is "
        "its last line; put in under E this is right up to O(σ_z⁸), as an asymptotic series",
        Equation(two_key, E(derivative.subs(t, z)), remainder=sigma_z**8),
        under=spread,
    )
    second = Axiom("the logistic law has second moment λ₂ = π²/3", Equation(logistic_2, pi**2 / 3))
    fourth = Axiom("the logistic law has fourth moment λ₄ = 7π⁴/15", Equation(logistic_4, 7 * pi**4 / 15))
    bell = Axiom(
        "the density of N(0, σ_z²) at z is (1 − z²/(2σ_z²) + z⁴/(8σ_z⁴) − …)/(σ_z√(2π)), and Λ(z)(1 − Λ(z)) is the "
        "density of the logistic law; integrated term by term this is an asymptotic series for large σ_z, not a "
        "convergent one",
        Equation(
            two_key,
            (1 - logistic_2 / (2 * sigma_z**2) + logistic_4 / (8 * sigma_z**4)) / bell_width,
            remainder=1 / sigma_z**7,
        ),
        under=spread,
    )
    return Derivation(
        key="two-key-gradient",
        title="two keys: the mean gradient of softmax, for small and for large scores",
        chains=(
            chain(
                logistic - logistic**2,
                line("series", derivative, "modulo(t, 8)", note="The derivative of the left side's Λ, term by term."),
                role="lemma",
                heading="The series of the logistic function Λ(t)",
            ),
            chain(
                two_key,
                line("known", E(derivative.subs(t, z)), known=(Known(taylor),)),
                line("linearity", Rational(1, 4) - E(z**2) / 16 + E(z**4) / 96 - 17 * E(z**6) / 11520),
                line(
                    "Isserlis",
                    Rational(1, 4) - sigma_z**2 / 16 + sigma_z**4 / 32 - 17 * sigma_z**6 / 768,
                    *map(str, spread),
                    note="E[z²], E[z⁴], E[z⁶] are σ_z², 3σ_z⁴, 15σ_z⁶.",
                ),
                heading="Small σ_z",
                remainder=sigma_z**8,
            ),
            chain(
                two_key,
                line(
                    "known",
                    (1 - logistic_2 / (2 * sigma_z**2) + logistic_4 / (8 * sigma_z**4)) / bell_width,
                    known=(Known(bell),),
                ),
                line(
                    "known",
                    (1 - pi**2 / (6 * sigma_z**2) + 7 * pi**4 / (120 * sigma_z**4)) / bell_width,
                    known=(
                        Known(second, -1 / (2 * bell_width * sigma_z**2)),
                        Known(fourth, 1 / (8 * bell_width * sigma_z**4)),
                    ),
                ),
                heading="Large σ_z",
                remainder=1 / sigma_z**7,
            ),
        ),
        source="derived here",
        remark=(
            "With weights Λ(z) and 1 − Λ(z) this is the mean of each entry of softmax's Jacobian, up to the sign. z is "
            "the difference of the two scores: for standard normal keys, given q, it is normal with the variance "
            "2‖q‖², or 2‖q‖²/d_k where the scores are divided by √d_k."
        ),
    )
