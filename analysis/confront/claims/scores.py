"""Claims about one score: its moments and its law, for independent components."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims.draws import (
    INDEPENDENT,
    LAWS,
    SHOWN,
    VASWANI,
    WITHIN,
    FloatArray,
    moment,
    query_and_keys,
    vectors,
)
from analysis.confront.inputs import Components, Inputs
from analysis.confront.relation import Exactly
from analysis.confront.relation_draws import Fits
from analysis.predict.score_law import score_distribution
from analysis.vocabulary.laws import resolve_law


def unscaled_score(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return kᵀq of one query and one key."""
    query, key = query_and_keys(cell, rng, replicates)
    return attnsym.attention_scores(query, key, scale=1.0)[:, 0, 0]


def zero(cell: Cell) -> float:
    """Return 0."""
    return 0.0


def one(cell: Cell) -> float:
    """Return 1."""
    return 1.0


def dimension(cell: Cell) -> float:
    """Return d_k."""
    return float(cell.d_k)


def dimension_squared(cell: Cell) -> float:
    """Return d_k², the variance of a sum of one product counted d_k times."""
    return float(cell.d_k) ** 2


SCORE_MEAN = Claim(
    key="score-mean",
    statement="E[kᵀq] = 0",
    meaning="At initialisation no key is preferred on average, whatever d_k. A score whose mean is not 0 says that "
    "query and key are not independent, as when one projection serves for both.",
    assumptions=("independent(q, k)", "zero_mean(q)"),
    subject="E(Dot(k, q))",
    source=VASWANI,
    derivation="score-mean",
    predict=zero,
    sample=unscaled_score,
    estimator="mean",
    relation=Exactly(),
    grid={"law": LAWS, "d_k": (1, 4, 64)},
    rival=dimension,  # the mean of a vector's score with itself
    mistake="the mean of a vector's score with itself, d_k: query and key taken for one",
    replicates=12_000,
)


def variance_replicates(cell: Cell) -> int:
    """Return what the tail of a variance of scores asks for; narrow heads of heavy-tailed components are only shown."""
    if cell.d_k < 64 and cell.law not in ("rademacher", "uniform"):
        return SHOWN
    return 210_000 if cell.law == "laplace" else 120_000


SCORE_VARIANCE = Claim(
    key="score-variance",
    statement="Var[kᵀq] = d_k",
    meaning="Scores grow like √d_k, not like d_k: the products of different components are uncorrelated, so their "
    "variances add and nothing else does. This is the growth that the division by √d_k undoes.",
    assumptions=INDEPENDENT,
    subject="Var(Dot(k, q))",
    source=VASWANI,
    derivation="score-variance",
    predict=dimension,
    sample=unscaled_score,
    estimator="variance",
    relation=Exactly(),
    grid={"law": LAWS, "d_k": (1, 4, 64)},
    rival=dimension_squared,
    mistake="the variance of one product counted d_k times, d_k²: the products taken for copies of one another",
    replicates=variance_replicates,
)


def default_score(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the score with the core's default scale."""
    query, key = query_and_keys(cell, rng, replicates)
    return attnsym.attention_scores(query, key)[:, 0, 0]


def inverse_dimension(cell: Cell) -> float:
    """Return 1/d_k, the variance after dividing by d_k."""
    return float(1.0 / cell.d_k)


def scaled_variance_replicates(cell: Cell) -> int:
    """Return enough to see, in the widest head, that a scale is off by 1 %."""
    return 260_000 if cell.d_k == 64 and cell.law in ("rademacher", "normal") else variance_replicates(cell)


SCALED_SCORE_VARIANCE = Claim(
    key="scaled-score-variance",
    statement="Var[kᵀq/√d_k] = 1",
    meaning="With the default scale softmax sees scores of the same size at every d_k, so that depth of saturation is "
    "no function of the head's width. Dividing by d_k instead would flatten every row as the head gets wider.",
    assumptions=INDEPENDENT,
    subject="Var(Dot(k, q)/sqrt(d_k))",
    source=VASWANI,
    derivation="scaled-score-variance",
    predict=one,
    sample=default_score,
    estimator="variance",
    relation=Exactly(),
    grid={"law": LAWS, "d_k": (1, 4, 64)},
    rival=inverse_dimension,
    mistake="dividing by d_k in place of √d_k, which leaves 1/d_k",
    replicates=scaled_variance_replicates,
)


def shifted_score(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return kᵀq of components with the cell's means and standard deviations."""
    query, key = query_and_keys(cell, rng, replicates)
    query = cell.mean_q + cell.std_q * query
    key = cell.mean_k + cell.std_k * key
    return attnsym.attention_scores(query, key, scale=1.0)[:, 0, 0]


def general_moment(cell: Cell) -> float:
    """Return d_k μ_q μ_k or d_k (σ_q²σ_k² + μ_q²σ_k² + μ_k²σ_q²)."""
    if cell.statistic == "mean":
        return float(cell.d_k * cell.mean_q * cell.mean_k)
    var_q, var_k = cell.std_q**2, cell.std_k**2
    return float(cell.d_k * (var_q * var_k + cell.mean_q**2 * var_k + cell.mean_k**2 * var_q))


def mean_or_variance(cell: Cell) -> str:
    """Return the cell's statistic of kᵀq, as derivations write it."""
    return "E(Dot(k, q))" if cell.statistic == "mean" else "Var(Dot(k, q))"


def centred_moment(cell: Cell) -> float:
    """Return the moment with the means forgotten."""
    return 0.0 if cell.statistic == "mean" else float(cell.d_k * cell.std_q**2 * cell.std_k**2)


def general_replicates(cell: Cell) -> int:
    """Return more for a variance, whose terms are skewed, than for a mean."""
    return 160_000 if cell.statistic == "variance" else SHOWN


SCORE_MOMENTS_GENERAL = Claim(
    key="score-moments-general",
    statement="E[kᵀq] = d_k μ_q μ_k and Var[kᵀq] = d_k (σ_q²σ_k² + μ_q²σ_k² + μ_k²σ_q²)",
    meaning="Activations with a mean, such as those after a ReLU or a LayerNorm bias, have larger scores than their "
    "variances suggest, and 1/√d_k no longer gives variance 1. The part from μ_k shifts all scores of a row alike, "
    "which softmax does not see.",
    assumptions=("independent(q, k)", *WITHIN, "mean_variance(q)", "mean_variance(k)"),
    subject=mean_or_variance,
    source="derived here",
    derivation="score-moments-general",
    predict=general_moment,
    sample=shifted_score,
    estimator=None,
    relation=Exactly(),
    grid={
        "statistic": ("mean", "variance"),
        "law": LAWS,
        "d_k": (16,),
        "mean_q": (0.5,),
        "std_q": (2.0,),
        "mean_k": (-1.0,),
        "std_k": (0.5,),
    },
    rival=centred_moment,
    mistake="the means forgotten, as if any activations were centred",
    replicates=general_replicates,
)


def fourth_power(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return (kᵀq)⁴."""
    return unscaled_score(cell, rng, replicates) ** 4


def fourth_moment(cell: Cell) -> float:
    """Return d_k m₄² + 3 d_k (d_k - 1), m₄ the fourth moment of a component."""
    return float(cell.d_k * moment(cell, 4) ** 2 + 3 * cell.d_k * (cell.d_k - 1))


def normal_fourth_moment(cell: Cell) -> float:
    """Return 3 d_k², the fourth moment of a normal score."""
    return float(3.0 * cell.d_k**2)


def fourth_moment_replicates(cell: Cell) -> int:
    """Return what the tail of S⁴ asks for; out of reach for heavy-tailed components, whose cells are only shown."""
    needed = {
        ("rademacher", 16): 640_000,
        ("uniform", 1): 200_000,
        ("rademacher", 4): 60_000,
        ("normal", 16): 3_300_000,
    }
    return needed.get((cell.law, cell.d_k), SHOWN)


SCORE_FOURTH_MOMENT = Claim(
    key="score-fourth-moment",
    statement="E[(kᵀq)⁴] = d_k m₄(q) m₄(k) + 3 d_k (d_k - 1), hence excess kurtosis (m₄(q) m₄(k) - 3)/d_k",
    meaning="Scores are not normal: at small d_k Gaussian vectors give heavy tails (6/d_k), sign vectors light ones "
    "(-2/d_k). Error bars for a variance of scores must use this kurtosis, since the χ² interval covers 70 % instead "
    "of 95 % at d_k = 1.",
    assumptions=(*INDEPENDENT, "fourth_moment(q)", "fourth_moment(k)"),
    subject="E(Dot(k, q)**4)",
    source="derived here",
    derivation="score-fourth-moment",
    predict=fourth_moment,
    sample=fourth_power,
    estimator="mean",
    relation=Exactly(),
    grid=[
        {"law": ("rademacher", "uniform"), "d_k": (1, 4, 16)},
        {"law": ("normal", "laplace", "student_t10"), "d_k": (1, 16)},
    ],
    rival=normal_fourth_moment,
    mistake="3 d_k², the fourth moment of a normal score",
    replicates=fourth_moment_replicates,
)


def law_of_score(cell: Cell) -> Any:
    """Return the exact law of kᵀq for Gaussian vectors."""
    return score_distribution(cell.d_k, scale=1.0)


def normal_score(cell: Cell) -> Any:
    """Return N(0, d_k)."""
    from scipy import stats

    return stats.norm(scale=math.sqrt(cell.d_k))


SCORE_DISTRIBUTION = Claim(
    key="score-distribution",
    statement="For Gaussian q and k the score has the generating function (1 - t²)^(-d_k/2): a variance-gamma law",
    meaning="Extreme scores are more frequent than a normal law says, the more so in narrow heads. Thresholds for "
    "outlying scores belong to this law, which `score_distribution` gives exactly.",
    assumptions=(*INDEPENDENT, "gaussian(q)", "gaussian(k)"),
    source="derived here; Madan and Seneta 1990 for the law",
    derivation="score-mgf",
    predict=law_of_score,
    sample=unscaled_score,
    estimator=None,
    relation=Fits(),
    grid={"d_k": (1, 2, 4, 8)},
    rival=normal_score,
    mistake="the normal law N(0, d_k), as if the sum of products had already converged",
    replicates=50_000,
)


def cosine(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the cosine of an isotropic query with a key of the cell's law."""
    query = rng.standard_normal((replicates, 1, cell.d_k))
    key = vectors(cell, rng, replicates, 1)
    return attnsym.attention_scores(query, key, score="cosine")[:, 0, 0]


def isotropic_query(cell: Cell) -> Inputs:
    """Return the law of a Gaussian query and a key of the cell's law."""
    return Inputs(Components(resolve_law("normal")), Components(resolve_law(cell.get("law", "normal"))))


def inverse_dimension_squared(cell: Cell) -> float:
    """Return 1/d_k²."""
    return float(1.0 / cell.d_k**2)


COSINE_VARIANCE = Claim(
    key="cosine-variance",
    statement="Var[cos(q, k)] = 1/d_k if one of the two is isotropic",
    meaning="Cosine similarities of unrelated vectors shrink like 1/√d_k, so a cosine of 0.3 means much in a wide head "
    "and little in a narrow one. Cosine attention therefore needs a scale that grows like √d_k to keep its contrast.",
    assumptions=("isotropic(u)", "independent(u, w)", "unit(w)", "u and w the directions of q and k, which are not 0"),
    subject="Var(Dot(u, w))",
    inputs=isotropic_query,
    source="derived here",
    derivation="cosine-variance",
    predict=inverse_dimension,
    sample=cosine,
    estimator="variance",
    relation=Exactly(),
    grid={"law": ("normal", "rademacher", "laplace"), "d_k": (2, 8, 64)},
    rival=inverse_dimension_squared,
    mistake="1/d_k²: dividing by d_k a second time",
    replicates=85_000,
)


SCORE_CLAIMS = (
    SCORE_MEAN,
    SCORE_VARIANCE,
    SCALED_SCORE_VARIANCE,
    SCORE_MOMENTS_GENERAL,
    SCORE_FOURTH_MOMENT,
    SCORE_DISTRIBUTION,
    COSINE_VARIANCE,
)
