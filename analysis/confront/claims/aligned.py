"""Claims about a query that is aligned with its key, as training makes it: the case for 1/d_k."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims.draws import LAWS, SHOWN, STANDARD, FloatArray, moment, query_and_keys, scale_of
from analysis.confront.claims.scores import mean_or_variance
from analysis.confront.relation import Exactly
from analysis.vocabulary.scale import resolve_scale


def aligned_score(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the scaled score of k = ρ q + √(1 - ρ²) e."""
    query, other = query_and_keys(cell, rng, replicates)
    key = cell.alignment * query + math.sqrt(1 - cell.alignment**2) * other
    return attnsym.attention_scores(query, key, scale=scale_of(cell))[:, 0, 0]


def scale_factor(cell: Cell) -> float:
    """Return the cell's scale as a number."""
    return resolve_scale(cell.scale)(cell.d_k, 1)


def aligned_subject(cell: Cell) -> str:
    """Return the cell's statistic of the scaled score, as derivations write it."""
    scale = {"sqrt": "1/sqrt(d_k)", "1/d_k": "1/d_k"}[cell.scale]
    return f"{mean_or_variance(cell)}*({scale})" + (f"*({scale})" if cell.statistic == "variance" else "")


def aligned_normal_moment(cell: Cell) -> float:
    """Return ρ d_k, or d_k (1 + ρ²), times the scale (squared)."""
    if cell.statistic == "mean":
        return float(cell.alignment * cell.d_k * scale_factor(cell))
    return float(cell.d_k * (1 + cell.alignment**2) * scale_factor(cell) ** 2)


def aligned_moment(cell: Cell) -> float:
    """Return ρ d_k, or d_k (1 - ρ² + ρ² (m₄ - 1)), times the scale (squared)."""
    if cell.statistic == "mean":
        return aligned_normal_moment(cell)
    square = cell.alignment**2
    return float(cell.d_k * (1 - square + square * (moment(cell, 4) - 1)) * scale_factor(cell) ** 2)


def aligned_replicates(cell: Cell) -> int:
    """Return what the tail asks for, more for a variance than for a mean; heavy-tailed ones are only shown."""
    needed = {"normal": 290_000, "rademacher": 110_000, "uniform": 110_000} if cell.statistic == "variance" else {}
    return needed.get(cell.law, SHOWN)


def unaligned_moment(cell: Cell) -> float:
    """Return the moment for independent q and k."""
    return 0.0 if cell.statistic == "mean" else float(cell.d_k * scale_factor(cell) ** 2)


SCORE_ALIGNED = Claim(
    key="score-aligned",
    statement="For normal pairs (qᵢ, kᵢ) of correlation ρ: E[S/√d_k] = ρ√d_k, E[S/d_k] = ρ and Var[S] = d_k (1 + ρ²)",
    meaning="Once training aligns queries with keys, scores scaled by 1/√d_k grow like √d_k again, while 1/d_k keeps "
    "them of order one at every width. That is the case for 1/d_k in the maximal-update parametrisation (muP).",
    assumptions=("aligned(q, k)", "independent_pairs(q, k)", "gaussian_pairs(q, k)", *STANDARD),
    source="Yang et al. 2022, Tensor Programs V, for 1/d_k; moments derived here",
    derivation="score-aligned",
    subject=aligned_subject,
    predict=aligned_normal_moment,
    sample=aligned_score,
    estimator=None,
    relation=Exactly(),
    grid=[
        {
            "statistic": ("mean",),
            "law": ("normal",),
            "d_k": (4, 64, 256),
            "alignment": (0.3,),
            "scale": ("sqrt", "1/d_k"),
        },
        {"statistic": ("variance",), "law": ("normal",), "d_k": (16,), "alignment": (0.8,), "scale": ("sqrt",)},
    ],
    rival=unaligned_moment,
    mistake="the moments of independent query and key",
    replicates=aligned_replicates,
)

SCORE_ALIGNED_LAWS = Claim(
    key="score-aligned-laws",
    statement="For k = ρ q + √(1 - ρ²) e with e independent of q and like it: E[S] = ρ d_k and "
    "Var[S] = d_k (1 - ρ² + ρ² (m₄ - 1))",
    meaning="How much alignment widens the scores depends on the tails of the components, and on how the two are "
    "aligned: correlation alone does not determine it. Sign vectors narrow as they align, Laplace ones widen most.",
    assumptions=(
        "aligned(q, k)",
        "independent_pairs(q, k)",
        *STANDARD,
        "k = ρ q + √(1 - ρ²) e, e independent of q and of its law",
    ),
    source="derived here",
    derivation="score-aligned",
    subject=aligned_subject,
    predict=aligned_moment,
    sample=aligned_score,
    estimator=None,
    relation=Exactly(),
    grid=[
        {"statistic": ("mean",), "law": LAWS[1:], "d_k": (64,), "alignment": (0.3,), "scale": ("sqrt",)},
        {"statistic": ("variance",), "law": LAWS[1:], "d_k": (16,), "alignment": (0.8,), "scale": ("sqrt",)},
    ],
    rival=aligned_normal_moment,
    mistake="the variance d_k (1 + ρ²), which holds for normal pairs only",
    replicates=aligned_replicates,
)

ALIGNED_CLAIMS = (SCORE_ALIGNED, SCORE_ALIGNED_LAWS)
