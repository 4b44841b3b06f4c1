"""Claims about scores that are bounded by design: normalised queries and keys, soft-capped scores."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims.draws import FloatArray, query_and_keys
from analysis.confront.relation import Exactly
from analysis.confront.relation_draws import AtMost


def largest_cosine_score(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return |score| of normalised vectors; in every fourth replicate the key is parallel to the query."""
    query, key = query_and_keys(cell, rng, replicates)
    key[::4] = -7.0 * query[::4]
    return np.abs(attnsym.attention_scores(query, key, score="cosine", scale=cell.gain)[:, 0, 0])


def gain(cell: Cell) -> float:
    """Return the scale."""
    return float(cell.gain)


def typical_cosine_score(cell: Cell) -> float:
    """Return four standard deviations, as if the score of normalised vectors were bounded by its usual size."""
    return float(4.0 * cell.gain / math.sqrt(cell.d_k))


COSINE_SCORE_BOUND = Claim(
    key="cosine-score-bound",
    statement="With normalised q and k, |score| ≤ scale, reached where they are parallel",
    meaning="QK-norm makes the scale the one parameter that bounds every score, whatever the weights do. Scores cannot "
    "blow up during training unless that scale does.",
    assumptions=("q and k not zero",),
    source="Henry et al. 2020, Query-Key Normalization for Transformers",
    derivation=None,
    predict=gain,
    sample=largest_cosine_score,
    estimator=None,
    relation=AtMost(attained=True),
    grid={"d_k": (64,), "gain": (1.0, 10.0)},
    rival=typical_cosine_score,
    mistake="four standard deviations in the place of the bound",
    is_code_check=True,
    replicates=10_000,
)


def cosine_score(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the score of normalised vectors at the cell's scale."""
    query, key = query_and_keys(cell, rng, replicates)
    return attnsym.attention_scores(query, key, score="cosine", scale=cell.gain)[:, 0, 0]


def cosine_score_variance(cell: Cell) -> float:
    """Return scale²/d_k."""
    return float(cell.gain**2 / cell.d_k)


def cosine_score_subject(cell: Cell) -> str:
    """Return the variance of scale·cos, as derivations write it."""
    return f"{cell.gain}**2*Var(Dot(u, w))"


def unnormalised_variance(cell: Cell) -> float:
    """Return scale², the variance of scores that were divided by √d_k instead of by the lengths."""
    return float(cell.gain**2)


COSINE_SCORE_VARIANCE = Claim(
    key="cosine-score-variance",
    statement="With normalised q and k, Var[score] = scale²/d_k",
    meaning="QK-norm with scale 1 gives nearly uniform attention; unit variance needs scale √d_k. Models that learn "
    "the scale therefore move it far above 1.",
    assumptions=("isotropic(u)", "independent(u, w)", "unit(w)", "u and w the directions of q and k"),
    subject=cosine_score_subject,
    source="Henry et al. 2020, Query-Key Normalization for Transformers, for the norm; variance derived here",
    derivation="cosine-variance",
    predict=cosine_score_variance,
    sample=cosine_score,
    estimator="variance",
    relation=Exactly(),
    grid={"d_k": (16, 64), "gain": (1.0, 10.0)},
    rival=unnormalised_variance,
    mistake="scale², as if dividing by √d_k instead of by the lengths",
    replicates=85_000,
)


def capped_score(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return |score| after the soft-cap, over queries whose lengths run from usual to enormous."""
    query, key = query_and_keys(cell, rng, replicates)
    query *= 10.0 ** rng.uniform(0, 6, (replicates, 1, 1))
    return np.abs(attnsym.attention_scores(query, key, softcap=cell.cap)[:, 0, 0])


def cap(cell: Cell) -> float:
    """Return the cap."""
    return float(cell.cap)


def cap_of_unit_slope(cell: Cell) -> float:
    """Return cap·tanh(1), the bound if scores were below the cap before they are capped."""
    return float(cell.cap * math.tanh(1.0))


SOFTCAP_BOUND = Claim(
    key="softcap-bound",
    statement="|cap·tanh(score/cap)| ≤ cap, approached for large scores",
    meaning="A soft-cap bounds the scores, hence the entropy from below, without touching small scores. Its slope at a "
    "score s is 1 - tanh²(s/cap), so capped scores pass little gradient: it stops a blow-up, it does not undo one.",
    assumptions=("cap > 0",),
    source="Gemma Team 2024, Gemma 2, section 2 (logit soft-capping)",
    derivation=None,
    predict=cap,
    sample=capped_score,
    estimator=None,
    relation=AtMost(attained=True),
    grid={"d_k": (64,), "cap": (1.0, 50.0)},
    rival=cap_of_unit_slope,
    mistake="cap·tanh(1): scores taken to lie below the cap before they are capped",
    is_code_check=True,
    replicates=10_000,
)

BOUNDED_CLAIMS = (COSINE_SCORE_BOUND, COSINE_SCORE_VARIANCE, SOFTCAP_BOUND)
