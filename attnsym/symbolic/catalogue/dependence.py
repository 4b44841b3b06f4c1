"""Scores that depend on one another, or whose vectors do."""

from __future__ import annotations

from sympy import Integer

from attnsym.symbolic.catalogue.scores import INDEPENDENT, SCORE
from attnsym.symbolic.derivation.derivation import Derivation
from attnsym.symbolic.derivation.writing import chain, line
from attnsym.symbolic.language.notation import (
    Cov,
    D,
    Dot,
    E,
    Sum,
    Var,
    d_k,
    delta,
    i,
    j,
    k,
    k2,
    l,
    moment,
    p,
    q,
    r,
    rho,
    s,
    u,
    w,
)


def score_self() -> Derivation:
    """K = q gives mean d_k and variance d_k (m₄ − 1); both vectors constant give d_k²; one constant gives d_k."""
    return Derivation(
        key="score-self",
        title="what dependence does: a vector with itself, and vectors of one repeated number",
        chains=(
            chain(
                E(Dot(k, q)),
                line("definition of the inner product", E(SCORE)),
                line("substitute", E(Sum(q[i] ** 2, i)), "same(q, k)"),
                line("linearity", Sum(E(q[i] ** 2), i)),
                line("moments", Sum(Integer(1), i), "zero_mean(q)", "unit_variance(q)"),
                line("evaluate", d_k),
                heading="k = q: the mean",
            ),
            chain(
                Var(Dot(k, q)),
                line("definition of the inner product", Var(SCORE)),
                line("substitute", Var(Sum(q[i] ** 2, i)), "same(q, k)"),
                line("Bienaymé", Sum(Var(q[i] ** 2), i), "independent_components(q)"),
                line("definition of variance", Sum(E(q[i] ** 4) - E(q[i] ** 2) ** 2, i)),
                line("moments", Sum(moment(q, 4) - 1, i), "zero_mean(q)", "unit_variance(q)", "fourth_moment(q)"),
                line("evaluate", d_k * (moment(q, 4) - 1), note="Not d_k: 0 for random signs."),
                heading="k = q: the variance",
            ),
            chain(
                d_k * (moment(q, 4) - 1),
                line("Isserlis", 2 * d_k, "gaussian(q)", "zero_mean(q)", "unit_variance(q)", "fourth_moment(q)"),
                heading="k = q, normal",
            ),
            chain(
                Var(Dot(k, q)),
                line("definition of the inner product", Var(SCORE)),
                line("substitute", Var(d_k * q[i] * k[i]), "constant(q)", "constant(k)", note="For any one i."),
                line("linearity", d_k**2 * Var(q[i] * k[i])),
                line("definition of variance", d_k**2 * (E(q[i] ** 2 * k[i] ** 2) - E(q[i] * k[i]) ** 2)),
                line("independence", d_k**2 * (E(q[i] ** 2) * E(k[i] ** 2) - E(q[i]) ** 2 * E(k[i]) ** 2), INDEPENDENT),
                line("moments", d_k**2, "zero_mean(q)", "zero_mean(k)", "unit_variance(q)", "unit_variance(k)"),
                heading="Both vectors constant over the components",
            ),
            chain(
                Var(Dot(k, q)),
                line("definition of the inner product", Var(SCORE)),
                line("definition of variance", E(SCORE**2) - E(SCORE) ** 2),
                line(
                    "substitute",
                    E(k[l] ** 2 * Sum(q[i], i) ** 2) - E(k[l] * Sum(q[i], i)) ** 2,
                    "constant(k)",
                    note="Every component of k is the same number, that of any l.",
                ),
                line(
                    "independence",
                    E(k[l] ** 2) * E(Sum(q[i], i) ** 2) - (E(k[l]) * Sum(E(q[i]), i)) ** 2,
                    INDEPENDENT,
                ),
                line(
                    "Bienaymé",
                    E(k[l] ** 2) * Sum(E(q[i] ** 2), i) - (E(k[l]) * Sum(E(q[i]), i)) ** 2,
                    "independent_components(q)",
                    "zero_mean(q)",
                ),
                line(
                    "moments",
                    Sum(Integer(1), i),
                    "zero_mean(q)",
                    "zero_mean(k)",
                    "unit_variance(q)",
                    "unit_variance(k)",
                ),
                line("evaluate", d_k),
                heading="Only the key constant over the components",
            ),
        ),
        source="derived here",
        remark=(
            "Writing Σᵢ qᵢkᵢ as d_k copies of one product is the constant case, d_k², and a common mistake in symbolic "
            "statistics. One constant vector does no harm."
        ),
    )


def scores_share_query() -> Derivation:
    """Two keys and one query: uncorrelated scores that are not independent."""
    first, second = Dot(k, q), Dot(k2, q)
    other = Sum(q[i] * k2[i], i)
    products = E(q[i] * q[j] * q[l] * q[r]) * E(k[i] * k[j]) * E(k2[l] * k2[r])
    keys = ("zero_mean(k)", "zero_mean(k2)", "unit_variance(k)", "unit_variance(k2)")
    together = "independent(q, k, k2)"
    square = Sum(E(q[i] * q[j]) * E(k[i] * k[j]), i, j) * Sum(E(q[i] * q[j]) * E(k2[i] * k2[j]), i, j)
    return Derivation(
        key="scores-share-query",
        title="two scores of one query are uncorrelated, but not independent",
        chains=(
            chain(
                Cov(first, second),
                line("definition of covariance", E(first * second) - E(first) * E(second)),
                line("definition of the inner product", E(SCORE * other) - E(SCORE) * E(other)),
                line(
                    "linearity",
                    Sum(E(q[i] * q[j] * k[i] * k2[j]), i, j) - Sum(E(q[i] * k[i]), i) * Sum(E(q[i] * k2[i]), i),
                ),
                line(
                    "independence",
                    Sum(E(q[i] * q[j]) * E(k[i]) * E(k2[j]), i, j)
                    - Sum(E(q[i]) * E(k[i]), i) * Sum(E(q[i]) * E(k2[i]), i),
                    together,
                ),
                line("moments", 0, "zero_mean(k)"),
                heading="The scores",
            ),
            chain(
                Cov(first**2, second**2),
                line("definition of covariance", E(first**2 * second**2) - E(first**2) * E(second**2)),
                line("definition of the inner product", E(SCORE**2 * other**2) - E(SCORE**2) * E(other**2)),
                line("independence", Sum(products, i, j, l, r) - square, together),
                line(
                    "lone factors vanish",
                    Sum(E(q[i] ** 2 * q[l] ** 2) * E(k[i] ** 2) * E(k2[l] ** 2), i, l)
                    - Sum(E(q[i] ** 2) * E(k[i] ** 2), i) * Sum(E(q[i] ** 2) * E(k2[i] ** 2), i),
                    "uncorrelated(k)",
                    "uncorrelated(k2)",
                    "zero_mean(k)",
                    "zero_mean(k2)",
                ),
                line("moments", Sum(E(q[i] ** 2 * q[l] ** 2) - E(q[i] ** 2) * E(q[l] ** 2), i, l), *keys),
                line(
                    "independence",
                    Sum(E(q[i] ** 4) - E(q[i] ** 2) ** 2, i),
                    "independent_components(q)",
                    note="For i ≠ l the two terms cancel.",
                ),
                line("moments", Sum(moment(q, 4) - 1, i), "zero_mean(q)", "unit_variance(q)", "fourth_moment(q)"),
                line("evaluate", d_k * (moment(q, 4) - 1)),
                heading="Their squares",
            ),
            chain(
                d_k * (moment(q, 4) - 1),
                line("Isserlis", 2 * d_k, "gaussian(q)", "zero_mean(q)", "unit_variance(q)", "fourth_moment(q)"),
                heading="Normal queries",
            ),
        ),
        source="derived here",
        remark=(
            "A long query makes all its scores large at once. So the entries of one score matrix are no independent "
            "replicates, although they are uncorrelated."
        ),
    )


def score_common_key() -> Derivation:
    """Keys that share a part: softmax sees the difference of scores, variance 2 d_k (1 − ρ)."""
    gap = k[i] - k2[i]
    gap_j = k[j] - k2[j]
    difference = Dot(k, q) - Dot(k2, q)
    joint = "independent_of(q, k, k2)"
    return Derivation(
        key="score-common-key",
        title="what keys have in common, softmax does not see",
        chains=(
            chain(
                Sum(D(p[i], s[j]), j),
                line("softmax derivative", Sum(p[i] * (delta(i, j) - p[j]), j)),
                line("weights sum to 1", 0, note="Adding one number to every score changes no weight."),
                role="lemma",
                heading="Only differences of scores matter",
            ),
            chain(
                Var(difference),
                line("definition of the inner product", Var(Sum(q[i] * gap, i))),
                line("definition of variance", E(Sum(q[i] * gap, i) ** 2) - E(Sum(q[i] * gap, i)) ** 2),
                line(
                    "linearity",
                    Sum(E(q[i] * q[j] * gap * gap_j), i, j) - Sum(E(q[i] * gap), i) ** 2,
                ),
                line(
                    "independence",
                    Sum(E(q[i] * q[j]) * E(gap * gap_j), i, j) - Sum(E(q[i]) * E(gap), i) ** 2,
                    joint,
                ),
                line(
                    "lone factors vanish",
                    Sum(E(q[i] ** 2) * E(gap**2), i),
                    "uncorrelated(q)",
                    "zero_mean(q)",
                ),
                line(
                    "moments",
                    Sum(2 - 2 * rho, i),
                    "aligned(k, k2)",
                    "zero_mean(q)",
                    "zero_mean(k)",
                    "zero_mean(k2)",
                    "unit_variance(q)",
                    "unit_variance(k)",
                    "unit_variance(k2)",
                ),
                line("evaluate", 2 * (1 - rho) * d_k),
                heading="The difference of two scores",
            ),
        ),
        source="derived here",
        remark=(
            "Two keys with nothing in common give 2 d_k. Standard normal keys with one pairwise correlation ρ ≥ 0 are "
            "√ρ·c + √(1 − ρ)·zₐ with a common c: softmax sees scale·√(1 − ρ) in place of scale. For two keys ρ may be "
            "negative, down to −1; for n keys not below −1/(n − 1)."
        ),
    )


def cosine_variance() -> Derivation:
    """The cosine of two directions has mean 0 and variance 1/d_k when one of them prefers no axis."""
    cosine = Sum(w[i] * u[i], i)
    return Derivation(
        key="cosine-variance",
        title="the cosine of two directions has variance 1/d_k",
        chains=(
            chain(
                E(Dot(u, w)),
                line("definition of the inner product", E(cosine)),
                line("linearity", Sum(E(w[i] * u[i]), i)),
                line("independence", Sum(E(w[i]) * E(u[i]), i), "independent(u, w)"),
                line("moments", 0, "isotropic(u)"),
                heading="The mean",
            ),
            chain(
                Var(Dot(u, w)),
                line("definition of the inner product", Var(cosine)),
                line("definition of variance", E(cosine**2) - E(cosine) ** 2),
                line("linearity", Sum(E(w[i] * w[j] * u[i] * u[j]), i, j) - Sum(E(w[i] * u[i]), i) ** 2),
                line(
                    "independence",
                    Sum(E(w[i] * w[j]) * E(u[i] * u[j]), i, j) - Sum(E(w[i]) * E(u[i]), i) ** 2,
                    "independent(u, w)",
                ),
                line("moments", Sum(E(w[i] ** 2) / d_k, i), "isotropic(u)", note="E[ûû^⊤] = I/d_k."),
                line("linearity", E(Sum(w[i] ** 2, i)) / d_k),
                line("moments", 1 / d_k, "unit(w)", note="Σᵢ ŵᵢ² = 1."),
                heading="The variance",
            ),
        ),
        source="derived here; for query-key normalisation see Henry et al. 2020, Query-Key Normalization",
        remark=(
            "Only û need be isotropic; ŵ may be any direction independent of it. Cosine scores therefore call for a "
            "scale that grows like √d_k, not one that shrinks."
        ),
    )
