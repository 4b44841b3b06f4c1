"""What dividing a score by √d_k does."""

from __future__ import annotations

from sympy import Integer, sqrt

from attnsym.symbolic.catalogue.scores import INDEPENDENT, SCORE, VASWANI
from attnsym.symbolic.derivation import Derivation, chain, line
from attnsym.symbolic.notation import Dot, E, Sum, Var, d_k, i, k, q


def scaled_score_variance() -> Derivation:
    """Var(kᵀq / √d_k) = 1."""
    return Derivation(
        key="scaled-score-variance",
        title="divided by √d_k, the score has variance 1",
        chains=(
            chain(
                Var(Dot(k, q) / sqrt(d_k)),
                line("linearity", Var(Dot(k, q)) / d_k, note="A constant factor leaves a variance squared."),
                line("definition of the inner product", Var(SCORE) / d_k),
                line(
                    "Bienaymé",
                    Sum(Var(q[i] * k[i]), i) / d_k,
                    INDEPENDENT,
                    "independent_components(q)",
                    "zero_mean(q)",
                    note="The products qᵢkᵢ are uncorrelated.",
                ),
                line("definition of variance", Sum(E(q[i] ** 2 * k[i] ** 2) - E(q[i] * k[i]) ** 2, i) / d_k),
                line(
                    "independence",
                    Sum(E(q[i] ** 2) * E(k[i] ** 2) - E(q[i]) ** 2 * E(k[i]) ** 2, i) / d_k,
                    INDEPENDENT,
                ),
                line("moments", Sum(Var(q[i]) * Var(k[i]), i) / d_k, "zero_mean(q)", "zero_mean(k)"),
                line("moments", Sum(Integer(1), i) / d_k, "unit_variance(q)", "unit_variance(k)"),
                line("evaluate", 1, note="At every d_k: this is what the √d_k is for."),
            ),
        ),
        source=VASWANI,
    )
