"""Claims about scores whose ingredients depend on one another: components, keys, or query and key."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims.draws import (
    LAWS,
    ROW,
    SHOWN,
    STANDARD,
    WITHIN,
    FloatArray,
    moment,
    query_and_keys,
    vectors,
)
from analysis.confront.claims.scores import dimension, mean_or_variance, zero
from analysis.confront.inputs import Inputs
from analysis.confront.relation import Exactly
from analysis.predict.exact import expected_entropy


def autoregressive(d_k: int, correlation: float) -> FloatArray:
    """Return the covariance matrix with entries correlation^|i - j|."""
    index = np.arange(d_k)
    return np.asarray(float(correlation) ** np.abs(index[:, None] - index), dtype=np.float64)


def correlated_score(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return kᵀq of vectors A x with A Aᵀ the cell's covariance."""
    query, key = query_and_keys(cell, rng, replicates)
    query = query @ np.linalg.cholesky(autoregressive(cell.d_k, cell.correlation_q)).T
    key = key @ np.linalg.cholesky(autoregressive(cell.d_k, cell.correlation_k)).T
    return attnsym.attention_scores(query, key, scale=1.0)[:, 0, 0]


def trace_of_product(cell: Cell) -> float:
    """Return tr(C_q C_k) = Σᵢⱼ (r_q r_k)^|i - j|, summed by distance."""
    both = cell.correlation_q * cell.correlation_k
    return float(cell.d_k + 2 * sum((cell.d_k - lag) * both**lag for lag in range(1, cell.d_k)))


def correlated_replicates(cell: Cell) -> int:
    """Return what the tail asks for: correlation skews the terms."""
    if cell.law in ("laplace", "student_t10"):
        return SHOWN
    return 160_000 if cell.d_k == 64 else 460_000


SCORE_VARIANCE_CORRELATED = Claim(
    key="score-variance-correlated",
    statement="Var[kᵀq] = tr(C_q C_k) for components with covariance matrices C_q and C_k",
    meaning="A trained head's components are correlated, and where query and key share their dominant directions the "
    "scores are larger than √d_k. If only one of the two is correlated the variance is still d_k.",
    assumptions=("independent(q, k)", "zero_mean(q)", "zero_mean(k)", "second_moments(q)", "second_moments(k)"),
    subject="Var(Dot(k, q))",
    source="derived here",
    derivation="score-variance-correlated",
    predict=trace_of_product,
    sample=correlated_score,
    estimator="variance",
    relation=Exactly(),
    grid=[
        {"law": LAWS, "d_k": (16,), "correlation_q": (0.8,), "correlation_k": (0.5,)},
        {"law": ("normal",), "d_k": (64,), "correlation_q": (0.8,), "correlation_k": (0.0, -0.5)},
    ],
    rival=dimension,
    mistake="d_k: correlation within both vectors forgotten",
    replicates=correlated_replicates,
)


def score_with_itself(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return xᵀx, the diagonal of an attention whose query and key are one vector."""
    vector = vectors(cell, rng, replicates, 1)
    return attnsym.attention_scores(vector, vector, scale=1.0)[:, 0, 0]


def query_as_key(cell: Cell) -> Inputs:
    """Return the law of k = q."""
    return replace(Inputs.of(cell), alignment=1.0)


def self_moment(cell: Cell) -> float:
    """Return d_k or d_k (m₄ - 1)."""
    return float(cell.d_k) if cell.statistic == "mean" else float(cell.d_k * (moment(cell, 4) - 1))


def independent_moment(cell: Cell) -> float:
    """Return the moment for independent q and k."""
    return 0.0 if cell.statistic == "mean" else float(cell.d_k)


def self_replicates(cell: Cell) -> int:
    """Return what the tail asks for; a variance of heavy-tailed squares is only shown."""
    if cell.statistic == "mean":
        return 130_000 if (cell.d_k, cell.law) in ((4, "laplace"), (4, "student_t10")) else 25_000
    return {("uniform", 4): 90_000, ("uniform", 64): 90_000, ("normal", 64): 160_000}.get((cell.law, cell.d_k), SHOWN)


SCORE_SELF = Claim(
    key="score-self",
    statement="For k = q: E[kᵀq] = d_k and Var[kᵀq] = d_k (m₄ - 1)",
    meaning="Without separate projections a token's score with itself is √d_k after scaling, so in rows of up to "
    "about e^(√d_k - 1/2) keys it attends mostly to itself. Zero mean and unit variance are not enough: it is "
    "independence that keeps the scores small.",
    assumptions=(
        "same(q, k)",
        "independent_components(q)",
        "zero_mean(q)",
        "unit_variance(q)",
        "fourth_moment(q)",
    ),
    subject=mean_or_variance,
    inputs=query_as_key,
    source="derived here",
    derivation="score-self",
    predict=self_moment,
    sample=score_with_itself,
    estimator=None,
    relation=Exactly(),
    grid={"statistic": ("mean", "variance"), "law": LAWS, "d_k": (4, 64)},
    rival=independent_moment,
    mistake="the moments of independent query and key, 0 and d_k",
    replicates=self_replicates,
)


def product_of_two_scores(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return S₁S₂, or (S₁² - d_k)(S₂² - d_k), for two keys and one query."""
    query, key = vectors(cell, rng, replicates, 1), vectors(cell, rng, replicates, 2)
    first, second = attnsym.attention_scores(query, key, scale=1.0)[:, 0].T
    if cell.of == "squares":
        first, second = first**2 - cell.d_k, second**2 - cell.d_k
    return np.asarray(first * second)


def covariance_of_squares(cell: Cell) -> float:
    """Return 0 for the scores and d_k (m₄(q) - 1) for their squares."""
    return float(cell.d_k * (moment(cell, 4) - 1)) if cell.of == "squares" else 0.0


def covariance_of_two_scores(cell: Cell) -> str:
    """Return what is averaged, as derivations write it: the means of the factors are 0."""
    return "Cov(Dot(k, q)**2, Dot(k2, q)**2)" if cell.of == "squares" else "Cov(Dot(k, q), Dot(k2, q))"


def shared_query_replicates(cell: Cell) -> int:
    """Return what the tail of a product of squares asks for: millions for normal components and more for others."""
    if cell.of == "scores":
        return SHOWN
    return {"uniform": 1_150_000, "rademacher": 450_000}.get(cell.law, SHOWN)


SCORES_SHARE_QUERY = Claim(
    key="scores-share-query",
    statement="Two scores of one query: Cov(S₁, S₂) = 0 but Cov(S₁², S₂²) = d_k (m₄(q) - 1)",
    meaning="The scores of a row are uncorrelated but not independent: a long query makes them all large at once. "
    "Hence the entries of one score matrix are no independent replicates, and an error bar that counts them is too "
    "small.",
    assumptions=(*ROW, "fourth_moment(q)"),
    subject=covariance_of_two_scores,
    source="derived here",
    derivation="scores-share-query",
    predict=covariance_of_squares,
    sample=product_of_two_scores,
    estimator="mean",
    relation=Exactly(),
    grid={"of": ("scores", "squares"), "law": LAWS, "d_k": (16,)},
    rival=zero,
    mistake="uncorrelated taken for independent: no covariance of the squares either",
    replicates=shared_query_replicates,
)


def keys_with_common_part(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the entropy of a query over keys √ρ c + √(1 - ρ) eᵢ."""
    query, own = query_and_keys(cell, rng, replicates)
    common = vectors(cell, rng, replicates, 1)
    key = math.sqrt(cell.key_correlation) * common + math.sqrt(1 - cell.key_correlation) * own
    return np.asarray(attnsym.entropy(attnsym.attention_weights(query, key))[:, 0])


def entropy_at_reduced_scale(cell: Cell) -> float:
    """Return the exact entropy at scale √((1 - ρ)/d_k)."""
    scale = math.sqrt((1 - cell.key_correlation) / cell.d_k)
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k, scale=scale))


def entropy_at_full_scale(cell: Cell) -> float:
    """Return the exact entropy at scale 1/√d_k, as if the keys were independent."""
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k))


ALIKE_KEYS = Claim(
    key="alike-keys",
    statement="Keys with pairwise correlation ρ act as independent keys at scale·√(1 - ρ)",
    meaning="The part that all keys share shifts every score of a row alike, and softmax removes it: rows are flatter "
    "than d_k suggests. Keys that grow alike, as in deep or over-smoothed layers, can be spread by a larger scale.",
    assumptions=(
        "independent_of(q, k, k2)",
        *WITHIN,
        *STANDARD,
        "gaussian(q)",
        "gaussian(k)",
        "aligned(k, k2)",
        "keys jointly normal",
    ),
    source="derived here",
    derivation="score-common-key",
    predict=entropy_at_reduced_scale,
    sample=keys_with_common_part,
    estimator="mean",
    relation=Exactly(),
    grid={"d_k": (16,), "n_keys": (2, 10), "key_correlation": (0.25, 0.9)},
    rival=entropy_at_full_scale,
    mistake="keys taken for independent ones at the full scale",
    replicates=88_000,
)

DEPENDENCE_CLAIMS = (
    SCORE_VARIANCE_CORRELATED,
    SCORE_SELF,
    SCORES_SHARE_QUERY,
    ALIKE_KEYS,
)
