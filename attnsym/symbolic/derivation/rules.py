"""The registry of rules: what each step may be called, and which assumptions a step of that name may cite."""

from __future__ import annotations

from dataclasses import dataclass

INDEPENDENCE = frozenset(
    {"independent", "independent_of", "independent_components", "independent_pairs", "uncorrelated"}
)
MOMENTS = frozenset(
    {
        "zero_mean",
        "unit_variance",
        "mean_variance",
        "identical",
        "fourth_moment",
        "gaussian",
        "gaussian_pairs",
        "aligned",
        "second_moments",
        "isotropic",
        "unit",
        "moment",
        "induction_hypothesis",
    }
)


@dataclass(frozen=True)
class Rule:
    """
    A name for a kind of step.

    The kernel judges the equality itself; the rule only caps what the step may lean on, so that "split the diagonal"
    cannot silently use independence.
    """

    name: str
    may_cite: frozenset[str]
    says: str


def _rules(*rules: tuple[str, frozenset[str], str]) -> dict[str, Rule]:
    return {name: Rule(name, may_cite, says) for name, may_cite, says in rules}


NONE: frozenset[str] = frozenset()

RULES = _rules(
    ("definition", NONE, "put in the definition"),
    ("definition of the inner product", NONE, "kᵀq = Σᵢ qᵢkᵢ"),
    ("definition of variance", NONE, "Var X = E[X²] − (E X)²"),
    ("definition of covariance", NONE, "Cov(X, Y) = E[XY] − E[X]E[Y]"),
    ("linearity", NONE, "E of a sum is the sum of the E's; constants come out"),
    ("split the diagonal", NONE, "a square of a sum: the terms i = j, and the terms i ≠ j"),
    ("expand", NONE, "multiply out"),
    ("collect", NONE, "gather equal terms"),
    ("evaluate", NONE, "sum equal terms: Σᵢ 1 is the size"),
    ("independence", INDEPENDENCE, "E of a product of independent factors is the product of the E's"),
    ("Bienaymé", INDEPENDENCE | {"zero_mean"}, "the variance of a sum of uncorrelated terms is the sum of variances"),
    ("moments", MOMENTS, "put in the moments that are given"),
    ("substitute", frozenset({"same", "constant"}), "put in what the vectors are"),
    ("lone factors vanish", INDEPENDENCE | {"zero_mean"}, "a term in which some index stands alone has mean 0"),
    ("cumulants add", INDEPENDENCE | {"zero_mean"}, "cumulants of a sum of independent terms add"),
    ("Isserlis", INDEPENDENCE | MOMENTS, "all moments of a normal law follow from mean and covariance"),
    ("softmax derivative", NONE, "∂e^{s_i}/∂s_j = δ_ij e^{s_i}, and the quotient rule"),
    ("chain rule", NONE, "through every score: s_l = scale · Σ_r q_r K_lr"),
    ("weights sum to 1", NONE, "Σᵢ pᵢ = 1"),
    ("series", frozenset({"modulo"}), "drop the powers beyond the order"),
    ("compare terms", NONE, "every term left out is at least 0"),
    ("induction", MOMENTS | INDEPENDENCE, "the case 1, and the step from d_k to d_k + 1, give every d_k"),
    ("known", MOMENTS | INDEPENDENCE | {"modulo"}, "put in an earlier result or a trusted axiom"),
)
