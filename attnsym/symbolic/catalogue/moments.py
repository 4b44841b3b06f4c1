"""Scores under other first and second moments, and their fourth."""

from __future__ import annotations

from sympy import Integer

from attnsym.symbolic.catalogue.scores import INDEPENDENT, SCORE, STANDARD
from attnsym.symbolic.derivation.derivation import Derivation
from attnsym.symbolic.derivation.steps import Axiom, Chain, Equation, Known, Role
from attnsym.symbolic.derivation.writing import chain, line
from attnsym.symbolic.language.notation import (
    C_k,
    C_q,
    Dot,
    E,
    Sum,
    Trace,
    Var,
    cgf,
    cgf_i,
    d_k,
    delta,
    i,
    j,
    k,
    l,
    log_1mt2,
    moment,
    mu_k,
    mu_q,
    q,
    r,
    rho,
    sigma_k,
    sigma_q,
    t,
)
from attnsym.symbolic.trusted.assumptions import assumption

WITHIN = ("independent_components(q)", "independent_components(k)")
CENTRED = ("zero_mean(q)", "zero_mean(k)")
FOURTH = ("fourth_moment(q)", "fourth_moment(k)")
NORMAL = ("gaussian(q)", "gaussian(k)", *STANDARD)
ALL_INDEPENDENT = (INDEPENDENT, *WITHIN)


def score_moments_general() -> Derivation:
    """Mean and variance of a score whose components have any mean and variance."""
    second = Sum((sigma_q**2 + mu_q**2) * (sigma_k**2 + mu_k**2) - mu_q**2 * mu_k**2, i)
    parts = sigma_q**2 * sigma_k**2 + mu_q**2 * sigma_k**2 + mu_k**2 * sigma_q**2
    given = ("mean_variance(q)", "mean_variance(k)")
    return Derivation(
        key="score-moments-general",
        title="mean and variance of a score at any mean and variance of the components",
        chains=(
            chain(
                E(Dot(k, q)),
                line("definition of the inner product", E(SCORE)),
                line("linearity", Sum(E(q[i] * k[i]), i)),
                line("independence", Sum(E(q[i]) * E(k[i]), i), INDEPENDENT),
                line("moments", Sum(mu_q * mu_k, i), *given),
                line("evaluate", d_k * mu_q * mu_k),
                heading="The mean",
            ),
            chain(
                Var(Dot(k, q)),
                line("definition of the inner product", Var(SCORE)),
                line("Bienaymé", Sum(Var(q[i] * k[i]), i), *ALL_INDEPENDENT),
                line("definition of variance", Sum(E(q[i] ** 2 * k[i] ** 2) - E(q[i] * k[i]) ** 2, i)),
                line("independence", Sum(E(q[i] ** 2) * E(k[i] ** 2) - E(q[i]) ** 2 * E(k[i]) ** 2, i), INDEPENDENT),
                line("moments", second, *given, note="E[x²] = σ² + μ²."),
                line("expand", Sum(parts, i)),
                line("evaluate", d_k * parts),
                heading="The variance",
            ),
        ),
        source="derived here",
        remark=(
            "Softmax does not see all of it. Keys of one row share the query, so the part d_k μₖ²σ_q² is a shift common"
            " to all scores of the row, which softmax removes; what it sees is d_k σₖ²(σ_q² + μ_q²)."
        ),
    )


def score_variance_correlated() -> Derivation:
    """Var(kᵀq) = tr(C_q C_k) for correlated components."""
    pairs = Sum(E(q[i] * q[j]) * E(k[i] * k[j]), i, j)
    return Derivation(
        key="score-variance-correlated",
        title="the variance of a score whose components are correlated",
        chains=(
            chain(
                Var(Dot(k, q)),
                line("definition of the inner product", Var(SCORE)),
                line("definition of variance", E(SCORE**2) - E(SCORE) ** 2),
                line("expand", E(Sum(q[i] * q[j] * k[i] * k[j], i, j)) - E(SCORE) ** 2),
                line("linearity", Sum(E(q[i] * q[j] * k[i] * k[j]), i, j) - Sum(E(q[i] * k[i]), i) ** 2),
                line("independence", pairs - Sum(E(q[i]) * E(k[i]), i) ** 2, INDEPENDENT),
                line("moments", pairs, "zero_mean(q)"),
                line("moments", Sum(C_q[i, j] * C_k[i, j], i, j), "second_moments(q)", "second_moments(k)"),
                line("definition", Trace(C_q, C_k), note="The trace of the product, since C^k is symmetric."),
            ),
        ),
        source="derived here",
        remark=(
            "With C^q = I this is tr C^k: correlation inside one of the vectors alone leaves the variance at the sum of"
            " the variances. It needs correlation in both."
        ),
    )


def score_aligned() -> Derivation:
    """Mean ρ d_k and variance d_k (1 + ρ²) when query and key are aligned."""
    return Derivation(
        key="score-aligned",
        title="a query aligned with its key: the mean grows like d_k",
        chains=(
            chain(
                E(Dot(k, q)),
                line("definition of the inner product", E(SCORE)),
                line("linearity", Sum(E(q[i] * k[i]), i)),
                line("moments", Sum(rho, i), "aligned(q, k)", "zero_mean(q)"),
                line("evaluate", rho * d_k),
                heading="The mean",
            ),
            chain(
                Var(Dot(k, q)),
                line("definition of the inner product", Var(SCORE)),
                line("Bienaymé", Sum(Var(q[i] * k[i]), i), "independent_pairs(q, k)"),
                line("definition of variance", Sum(E(q[i] ** 2 * k[i] ** 2) - E(q[i] * k[i]) ** 2, i)),
                line(
                    "Isserlis",
                    Sum((1 + 2 * rho**2) - E(q[i] * k[i]) ** 2, i),
                    "gaussian_pairs(q, k)",
                    "aligned(q, k)",
                    *STANDARD,
                    note="E[x²y²] = E[x²]E[y²] + 2E[xy]² for a centred normal pair.",
                ),
                line("moments", Sum(1 + rho**2, i), "aligned(q, k)", "zero_mean(q)"),
                line("evaluate", d_k * (1 + rho**2)),
                heading="The variance",
            ),
        ),
        source="derived here; for the scale 1/d_k see Yang et al. 2022, Tensor Programs V (muP)",
        remark=(
            "Once training has aligned queries with keys, the mean ρ d_k outgrows the standard deviation √d_k. A scale "
            "1/√d_k no longer keeps scores bounded as d_k grows; 1/d_k does, which is the argument of muP for it."
        ),
    )


def fourth_moment(role: Role = "statement") -> Chain:
    """E[(kᵀq)⁴] by counting index patterns."""
    quadruple = Sum(q[i] * q[j] * q[l] * q[r] * k[i] * k[j] * k[l] * k[r], i, j, l, r)
    inner = (q[i] * q[j] * q[l] * q[r], k[i] * k[j] * k[l] * k[r])
    squares = E(q[i] ** 2) * E(q[j] ** 2) * E(k[i] ** 2) * E(k[j] ** 2)
    fourths = Sum(E(q[i] ** 4) * E(k[i] ** 4), i)
    known = d_k * moment(q, 4) * moment(k, 4)
    return chain(
        E(Dot(k, q) ** 4),
        line("definition of the inner product", E(SCORE**4)),
        line("expand", E(quadruple)),
        line("linearity", Sum(E(inner[0] * inner[1]), i, j, l, r)),
        line("independence", Sum(E(inner[0]) * E(inner[1]), i, j, l, r), INDEPENDENT),
        line(
            "lone factors vanish",
            fourths + 3 * Sum((1 - delta(i, j)) * squares, i, j),
            "independent_components(q)",
            "independent_components(k)",
            "zero_mean(q)",
            note="All four indices equal, or two pairs: i = j, i = l or i = r, three ways.",
        ),
        line("moments", Sum(moment(q, 4) * moment(k, 4), i) + 3 * Sum(1 - delta(i, j), i, j), *FOURTH, *STANDARD),
        line("evaluate", known + 3 * d_k * (d_k - 1), note="There are d_k(d_k − 1) ordered pairs."),
        role=role,
        heading="" if role == "statement" else "The fourth moment",
    )


def score_fourth_moment() -> Derivation:
    """E[(kᵀq)⁴] = d_k m₄(q) m₄(k) + 3 d_k (d_k − 1), and again by cumulants."""
    cumulant = Sum(E((q[i] * k[i]) ** 4) - 3 * E((q[i] * k[i]) ** 2) ** 2, i)
    square = Sum(E((q[i] * k[i]) ** 2), i) ** 2
    separate = Sum(E(q[i] ** 4) * E(k[i] ** 4) - 3 * E(q[i] ** 2) ** 2 * E(k[i] ** 2) ** 2, i)
    both = moment(q, 4) * moment(k, 4)
    return Derivation(
        key="score-fourth-moment",
        title="the fourth moment of a score",
        chains=(
            fourth_moment(),
            chain(
                E(SCORE**4),
                line(
                    "cumulants add",
                    cumulant + 3 * square,
                    *ALL_INDEPENDENT,
                    "zero_mean(q)",
                    note="E[x⁴] = κ₄ + 3E[x²]² for a centred x, and κ₄ and E[x²] both add over independent terms.",
                ),
                line(
                    "independence",
                    separate + 3 * Sum(E(q[i] ** 2) * E(k[i] ** 2), i) ** 2,
                    INDEPENDENT,
                ),
                line("moments", Sum(both - 3, i) + 3 * Sum(Integer(1), i) ** 2, *FOURTH, *STANDARD),
                line("evaluate", d_k * (both - 3) + 3 * d_k**2),
                line("expand", d_k * both + 3 * d_k * (d_k - 1)),
                role="second route",
                heading="Second route: cumulants add",
            ),
        ),
        source="derived here",
        remark="For normal components m₄ = 3 and E[(kᵀq)⁴] = 3d_k² + 6d_k.",
    )


def score_kurtosis() -> Derivation:
    """Excess kurtosis (m₄(q) m₄(k) − 3) / d_k."""
    fourth = fourth_moment(role="lemma")
    both = moment(q, 4) * moment(k, 4)
    return Derivation(
        key="score-kurtosis",
        title="the excess kurtosis of a score falls like 1/d_k",
        chains=(
            fourth,
            chain(
                E(Dot(k, q) ** 4) / d_k**2 - 3,
                line(
                    "known",
                    (d_k * both + 3 * d_k * (d_k - 1)) / d_k**2 - 3,
                    known=(Known(fourth, 1 / d_k**2),),
                    note="The fourth moment over the square of the variance d_k, less 3.",
                ),
                line("collect", (both - 3) / d_k),
                heading="The excess kurtosis",
            ),
            chain(
                (both - 3) / d_k,
                line("Isserlis", 6 / d_k, *FOURTH, *NORMAL, note="A standard normal has m₄ = 3."),
                heading="For normal components",
            ),
        ),
        source="derived here",
        remark=(
            "For random signs m₄ = 1 and the excess is −2/d_k; for uniform components m₄ = 9/5 and it is 6/(25 d_k). A "
            "score is close to normal only for large d_k, and a χ² interval for its variance is wrong at small d_k."
        ),
    )


def score_mgf() -> Derivation:
    """E[exp(t kᵀq)] = (1 − t²)^(−d_k/2), |t| < 1, and the cumulants d_k (2r − 1)!."""
    adds = Axiom(
        "the expectation of a product of independent factors exp(t qᵢkᵢ) is the product of theirs, so that "
        "log E[exp(t·kᵀq)] = Σᵢ Kᵢ with Kᵢ = log E[exp(t qᵢkᵢ)]",
        Equation(cgf, Sum(cgf_i[i], i)),
        under=tuple(map(assumption, ALL_INDEPENDENT)),
    )
    integral = Axiom(
        "the Gaussian integral: E[exp(t x y)] = E[exp(t²x²/2)] = (1 − t²)^(−1/2) for independent standard normal x, y "
        "and |t| < 1",
        Equation(cgf_i[i], -log_1mt2 / 2),
        under=tuple(map(assumption, (INDEPENDENT, *NORMAL))),
    )
    logarithm = Axiom(
        "the series log(1 − t²) = −t² − t⁴/2 − t⁶/3 − t⁸/4 + O(t¹⁰)",
        Equation(log_1mt2, -(t**2) - t**4 / 2 - t**6 / 3 - t**8 / 4, remainder=t**10),
    )
    second, fourth, sixth = E(SCORE**2), E(SCORE**4), E(SCORE**6)
    return Derivation(
        key="score-mgf",
        title="the generating function of a score: E[exp(t·kᵀq)] = (1 − t²)^(−d_k/2)",
        chains=(
            chain(
                cgf,
                line("known", Sum(cgf_i[i], i), known=(Known(adds),)),
                line("known", Sum(-log_1mt2 / 2, i), known=(Known(integral, over=(i,)),)),
                line("evaluate", -d_k * log_1mt2 / 2, note="So E[exp(t·kᵀq)] = (1 − t²)^(−d_k/2), for |t| < 1."),
                heading="The logarithm of the generating function",
            ),
            chain(
                -d_k * log_1mt2 / 2,
                line(
                    "series",
                    d_k * (t**2 / 2 + t**4 / 4 + t**6 / 6 + t**8 / 8),
                    "modulo(t, 10)",
                    known=(Known(logarithm, -d_k / 2),),
                    note="κ_2r = d_k (2r)!/(2r) = d_k (2r − 1)!, that is d_k, 6d_k, 120d_k, 5040d_k.",
                ),
                heading="The cumulants",
            ),
            chain(
                fourth - 3 * second**2,
                line("Isserlis", 6 * d_k, *ALL_INDEPENDENT, *NORMAL, note="κ₄, with no axiom."),
                role="second route",
                heading="Second route: the fourth cumulant from the moments",
            ),
            chain(
                sixth - 15 * fourth * second + 30 * second**3,
                line("Isserlis", 120 * d_k, *ALL_INDEPENDENT, *NORMAL, note="κ₆, with no axiom."),
                role="second route",
                heading="Second route: the sixth",
            ),
        ),
        source="derived here",
    )
