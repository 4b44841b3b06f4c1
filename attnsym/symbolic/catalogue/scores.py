"""Mean and variance of a score, and what they become under other assumptions."""

from __future__ import annotations

from sympy import Integer

from attnsym.symbolic.derivation.derivation import Derivation
from attnsym.symbolic.derivation.steps import Axiom, Equation, Known
from attnsym.symbolic.derivation.writing import by, chain, line
from attnsym.symbolic.language.notation import Dot, E, S, Sum, Var, X, Y, d_k, delta, i, j, k, q
from attnsym.symbolic.trusted.assumptions import assumption

VASWANI = "Vaswani et al. 2017, Attention Is All You Need, section 3.2.1, footnote 4"

SCORE = Sum(q[i] * k[i], i)
INDEPENDENT = "independent(q, k)"
STANDARD = ("zero_mean(q)", "zero_mean(k)", "unit_variance(q)", "unit_variance(k)")


def score_mean() -> Derivation:
    """E[kᵀq] = 0."""
    return Derivation(
        key="score-mean",
        title="the mean of a score is 0",
        chains=(
            chain(
                E(Dot(k, q)),
                by("definition of the inner product", note="Multiply component by component and add."),
                by("linearity", note="No independence is needed to exchange E and Σ."),
                by("independence", INDEPENDENT),
                by("moments", "zero_mean(q)", note="One factor that is 0 is enough: k may have any mean."),
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
            "common length a of E[a²] = 1: all components of q and k are uncorrelated with mean 0 and variance 1, yet "
            "Var(kᵀq) = d_k E[a⁴], which is above d_k unless a² is constant. Orthogonal is something else again: "
            "kᵀq = 0 is an event about two given vectors."
        ),
    )


def score_variance_bienayme() -> Derivation:
    """Var(kᵀq) = d_k, from the variance of a sum of independent terms."""
    return Derivation(
        key="score-variance-bienayme",
        title="the variance of a score, by Bienaymé's identity",
        chains=(
            chain(
                Var(Dot(k, q)),
                by("definition of the inner product"),
                by(
                    "Bienaymé",
                    INDEPENDENT,
                    "independent_components(q)",
                    "independent_components(k)",
                    note="The products qᵢkᵢ are independent of one another, so their variances add.",
                ),
                by("definition of variance"),
                by("independence", INDEPENDENT),
                by("moments", "zero_mean(q)", "zero_mean(k)", note="With mean 0, E[x²] is the variance."),
                by("moments", "unit_variance(q)", "unit_variance(k)"),
                by("evaluate"),
            ),
        ),
        source=VASWANI,
        remark=(
            "Variances of a sum add when its terms are uncorrelated; independence is more than that. Here the products "
            "qᵢkᵢ are already uncorrelated when only one of the two vectors has uncorrelated components of mean 0."
        ),
    )


def score_variance_induction() -> Derivation:
    """Var(kᵀq) = d_k, one component at a time."""
    principle = Axiom(
        "the principle of induction over the number of components: the score of d_k + 1 components is S + XY, where S "
        "is the score of the first d_k, and X and Y are the last components of q and of k, independent of S and of one "
        "another, with mean 0 and variance 1",
        Equation(Var(Dot(k, q)), d_k),
        under=tuple(
            map(assumption, (INDEPENDENT, "independent_components(q)", "independent_components(k)", *STANDARD))
        ),
    )
    both = ("zero_mean(X)", "zero_mean(Y)", "unit_variance(X)", "unit_variance(Y)")
    base = chain(
        Var(X * Y),
        line("definition of variance", E(X**2 * Y**2) - E(X * Y) ** 2),
        line("independence", E(X**2) * E(Y**2) - E(X) ** 2 * E(Y) ** 2, "independent(S, X, Y)"),
        line("moments", 1, *both),
        role="lemma",
        heading="One component, XY",
    )
    step = chain(
        Var(S + X * Y),
        line("definition of variance", E((S + X * Y) ** 2) - E(S + X * Y) ** 2),
        line("linearity", E(S**2) + 2 * E(S * X * Y) + E(X**2 * Y**2) - (E(S) + E(X * Y)) ** 2),
        line(
            "independence",
            E(S**2) + 2 * E(S) * E(X) * E(Y) + E(X**2) * E(Y**2) - (E(S) + E(X) * E(Y)) ** 2,
            "independent(S, X, Y)",
        ),
        line("moments", E(S**2) + 1 - E(S) ** 2, *both),
        line("moments", d_k + 1, "induction_hypothesis(S)"),
        role="lemma",
        heading="From d_k components, S, to d_k + 1, S + XY",
    )
    conclusion = line("induction", d_k, known=(Known(principle), Known(base, 0), Known(step, 0)))
    return Derivation(
        key="score-variance-induction",
        title="the variance of a score, by induction on d_k",
        chains=(base, step, chain(Var(Dot(k, q)), conclusion, heading="Every number of components")),
        source="derived here",
    )
