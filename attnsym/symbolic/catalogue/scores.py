"""Mean and variance of a score, and what they become under other assumptions."""

from __future__ import annotations

from sympy import Integer

from attnsym.symbolic.derivation import Derivation, chain, line
from attnsym.symbolic.notation import Dot, E, Sum, Var, d_k, delta, i, j, k, q

VASWANI = "Vaswani et al. 2017, Attention Is All You Need, section 3.2.1, footnote 4"

SCORE = Sum(q[i] * k[i], i)
INDEPENDENT = "independent(q, k)"


def score_mean() -> Derivation:
    """E[kᵀq] = 0."""
    return Derivation(
        key="score-mean",
        title="the mean of a score is 0",
        chains=(
            chain(
                E(Dot(k, q)),
                line(
                    "definition of the inner product",
                    E(SCORE),
                    note="Multiply component by component and add.",
                ),
                line("linearity", Sum(E(q[i] * k[i]), i), note="No independence is needed to exchange E and Σ."),
                line("independence", Sum(E(q[i]) * E(k[i]), i), INDEPENDENT),
                line("moments", 0, "zero_mean(q)", note="One factor that is 0 is enough: k may have any mean."),
            ),
        ),
        source=VASWANI,
        remark="Only one of the two vectors needs mean 0; the components of a vector may depend on one another.",
    )


def score_variance() -> Derivation:
    """Var(kᵀq) = d_k."""
    diagonal = Sum(q[i] ** 2 * k[i] ** 2, i)
    off_diagonal = Sum((1 - delta(i, j)) * q[i] * q[j] * k[i] * k[j], i, j)
    separated = Sum((1 - delta(i, j)) * E(q[i] * q[j]) * E(k[i] * k[j]), i, j)
    factored = Sum((1 - delta(i, j)) * E(q[i]) * E(q[j]) * E(k[i] * k[j]), i, j)
    squares = Sum(E(q[i] ** 2) * E(k[i] ** 2), i)
    mean = Sum(E(q[i]) * E(k[i]), i)
    return Derivation(
        key="score-variance",
        title="the variance of a score is d_k",
        chains=(
            chain(
                Var(Dot(k, q)),
                line("definition of the inner product", Var(SCORE)),
                line("definition of variance", E(SCORE**2) - E(SCORE) ** 2, note="Var X = E[X²] − (E X)²."),
                line("split the diagonal", E(diagonal + off_diagonal) - E(SCORE) ** 2),
                line(
                    "linearity",
                    Sum(E(q[i] ** 2 * k[i] ** 2), i)
                    + Sum((1 - delta(i, j)) * E(q[i] * q[j] * k[i] * k[j]), i, j)
                    - Sum(E(q[i] * k[i]), i) ** 2,
                ),
                line(
                    "independence",
                    squares + separated - mean**2,
                    INDEPENDENT,
                    note="The query knows nothing of the key.",
                ),
                line(
                    "independence",
                    squares + factored - mean**2,
                    "independent_components(q)",
                    note="Different components of the query know nothing of one another. The key's may: E[kᵢkⱼ] stays.",
                ),
                line("moments", squares, "zero_mean(q)", note="Every term with a lone E[qᵢ] is 0."),
                line(
                    "moments",
                    Sum(Var(q[i]) * Var(k[i]), i),
                    "zero_mean(q)",
                    "zero_mean(k)",
                    note="With mean 0, E[x²] is the variance. Here, and only here, the mean of k matters.",
                ),
                line("moments", Sum(Integer(1), i), "unit_variance(q)", "unit_variance(k)", note="1 · 1 = 1."),
                line("evaluate", d_k, note="d_k equal terms: each component adds one unit of variance."),
            ),
        ),
        source=VASWANI,
        remark=(
            "Uncorrelated is not independent. Let q = a·e and k = a·f with independent random signs e and f and one "
            "common length a: all components of q and k are uncorrelated, yet Var(kᵀq) = d_k E[a⁴], which is not d_k "
            "unless a is constant. Orthogonal is something else again: kᵀq = 0 is an event about two given vectors."
        ),
    )
