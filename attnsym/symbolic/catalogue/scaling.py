"""What dividing a score by √d_k does."""

from __future__ import annotations

from sympy import Integer, sqrt

from attnsym.symbolic.catalogue.scores import INDEPENDENT, VASWANI
from attnsym.symbolic.derivation.derivation import Derivation
from attnsym.symbolic.derivation.steps import Axiom, Equation, Known
from attnsym.symbolic.derivation.writing import by, chain, line
from attnsym.symbolic.language.notation import Dot, Var, c, d_k, k, q


def scaled_score_variance() -> Derivation:
    """Var(kᵀq / √d_k) = 1."""
    return Derivation(
        key="scaled-score-variance",
        title="divided by √d_k, the score has variance 1",
        chains=(
            chain(
                Var(Dot(k, q) / sqrt(d_k)),
                line("linearity", Var(Dot(k, q)) / d_k, note="A constant factor leaves a variance squared."),
                by("definition of the inner product"),
                by(
                    "Bienaymé",
                    INDEPENDENT,
                    "independent_components(q)",
                    "zero_mean(q)",
                    note="The products qᵢkᵢ are uncorrelated.",
                ),
                by("definition of variance"),
                by("independence", INDEPENDENT),
                by("moments", "zero_mean(q)", "zero_mean(k)"),
                by("moments", "unit_variance(q)", "unit_variance(k)"),
                by("evaluate", note="At every d_k: this is what the √d_k is for."),
            ),
        ),
        source=VASWANI,
    )


def scale_uniqueness() -> Derivation:
    """If Var(c·kᵀq) = 1 then c = ±1/√d_k, so no constant serves two sizes."""
    variance = chain(
        Var(c * Dot(k, q)),
        line("linearity", c**2 * Var(Dot(k, q)), note="For any real c."),
        by("definition of the inner product"),
        by("Bienaymé", INDEPENDENT, "independent_components(q)", "zero_mean(q)"),
        by("definition of variance"),
        by("independence", INDEPENDENT),
        by("moments", "zero_mean(q)", "zero_mean(k)"),
        by("moments", "unit_variance(q)", "unit_variance(k)"),
        by("evaluate"),
        heading="The variance of a score times c",
    )
    wanted = Axiom("c brings the variance to 1", Equation(Var(c * Dot(k, q)), Integer(1)), supposed=True)
    wanted_next = Axiom(
        "the same c does it for d_k + 1 components, whose variance is c² (d_k + 1) by the first chain",
        Equation(c**2 * (d_k + 1), Integer(1)),
        supposed=True,
    )
    return Derivation(
        key="scale-uniqueness",
        title="only c = 1/√d_k and c = −1/√d_k bring the variance of a score to 1",
        chains=(
            variance,
            chain(
                (c * sqrt(d_k) - 1) * (c * sqrt(d_k) + 1),
                line("expand", c**2 * d_k - 1),
                line("known", Var(c * Dot(k, q)) - 1, known=(Known(variance, -1),)),
                line("known", 0, known=(Known(wanted),), note="A product of real numbers is 0 only if a factor is 0."),
                heading="The scale, if the variance is to be 1",
            ),
            chain(
                c**2,
                line("expand", c**2 * (d_k + 1) - c**2 * d_k),
                line("known", c**2 * (d_k + 1) - Var(c * Dot(k, q)), known=(Known(variance),)),
                line(
                    "known",
                    0,
                    known=(Known(wanted_next), Known(wanted, -1)),
                    note="But then c = 0 and Var(c·kᵀq) = 0, not 1: no c does both.",
                ),
                heading="No constant serves two sizes",
            ),
        ),
        source="derived here",
        remark=(
            "The variance cannot tell the sign: −1/√d_k serves as well, and turns the order of the keys around. That "
            "the scale is to be positive is a choice, not a consequence."
        ),
    )
