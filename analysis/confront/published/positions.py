"""Sentences about positions: rotary embeddings and linear biases."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import FloatArray
from analysis.confront.published.numbers import Numbers, cells
from analysis.confront.published.sentence import Sentence

_ROFORMER = "Su et al. 2021, RoFormer: Enhanced Transformer with Rotary Position Embedding"


def rotary_score(cell: Cell) -> float:
    """Return the score of a key seven positions before its query, both moved by the cell's shift."""
    query, key = np.random.default_rng(cell.d_k).standard_normal((2, 1, cell.d_k))
    at = float(cell.get("shift", 0))
    turned_query = attnsym.rotary(query, np.array([at + 7.0]))
    return float(attnsym.attention_scores(turned_query, attnsym.rotary(key, np.array([at])))[0, 0])


def turned_length(cell: Cell) -> float:
    """Return the length of a vector after its rotation by the cell's shift."""
    x = np.random.default_rng(cell.d_k).standard_normal((1, cell.d_k))
    return float(np.linalg.norm(attnsym.rotary(x, np.array([float(cell.get("shift", 0))]))))


def unshifted(cell: Cell) -> Cell:
    """Return the cell without its shift."""
    return Cell((("d_k", cell.d_k),))


def rotary_bound(cell: Cell) -> float:
    """Return the mean over j of |Σ e^(i m θ)| of the first j frequencies θ at distance m: the authors' bound."""
    angles = cell.distance * 10000.0 ** (-np.arange(0, cell.d_k, 2) / cell.d_k)
    return float(np.mean(np.abs(np.cumsum(np.exp(1j * angles)))))


def rotary_second_moment(cell: Cell) -> float:
    """Return E of the squared score of independent vectors at the cell's distance: ‖R‖_F²/d_k for its rotation R."""
    turned = attnsym.rotary(np.eye(cell.d_k), np.full(cell.d_k, float(cell.distance)))
    return float(np.sum(turned**2) / cell.d_k)


def rotary_squares(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared scores of independent vectors at the cell's distance, per d_k."""
    query, key = rng.standard_normal((2, replicates, 1, cell.d_k))
    turned = attnsym.rotary(key, np.array([float(cell.distance)]))
    return np.asarray(attnsym.attention_scores(query, turned)[:, 0, 0] ** 2)


def nearer(cell: Cell) -> Cell:
    """Return the cell at a fifth of the distance."""
    return Cell((("d_k", cell.d_k), ("distance", cell.distance / 5)))


def alibi_distance(cell: Cell) -> float:
    """Return the mean distance of the last of n positions to what it attends to, under ALiBi and equal scores."""
    bias = attnsym.alibi_bias(8, cell.n_keys, cell.n_keys)[0, -1]
    return float(attnsym.softmax(bias) @ np.arange(cell.n_keys)[::-1])


POSITION_SENTENCES = (
    Sentence(
        "rotary-sees-relative-positions",
        "Rotary embeddings make the score a function of the relative position alone and leave lengths as they are.",
        _ROFORMER,
        ("up to rounding",),
        (
            Numbers(
                "the score of a key seven positions away, when both are moved",
                lambda c: rotary_score(unshifted(c)),
                rotary_score,
                cells(d_k=(16, 64), shift=(1, 10, 100, 1000)),
            ),
            Numbers(
                "the length of a vector after its rotation",
                lambda c: turned_length(unshifted(c)),
                turned_length,
                cells(d_k=(16, 64), shift=(1, 10, 100, 1000)),
            ),
        ),
    ),
    Sentence(
        "rotary-decays",
        "Scores under rotary embeddings decay with the distance.",
        f"{_ROFORMER}, on long-term decay",
        ("query and key alike in every pair of components; the authors bound a sum over frequencies",),
        (
            Numbers(
                "the bound at a distance, as at most .95 of that at a fifth of it",
                lambda c: 0.95 * rotary_bound(nearer(c)),
                rotary_bound,
                cells(d_k=(64,), distance=(10, 50, 250)),
                "at most",
                regime="the bound for aligned query and key",
            ),
            Numbers(
                "E of the squared score, as at most .95 of that at a fifth of the distance",
                lambda c: 0.95 * rotary_second_moment(nearer(c)),
                rotary_second_moment,
                cells(d_k=(64,), distance=(10, 50, 250)),
                "at most",
                regime="independent query and key",
                sample=rotary_squares,
                smallest=cells(d_k=(2,), distance=(5,)),
            ),
        ),
        depends_on="whether query and key are aligned",
        remark="Between independent vectors the variance is d_k at every distance.",
    ),
    Sentence(
        "alibi-is-local",
        "Linear biases give each head a window of recent keys whose width does not depend on the length.",
        "Press, Smith and Lewis 2022, Train Short, Test Long: Attention with Linear Biases Enables Input Length "
        "Extrapolation",
        ("equal scores; the head of slope 1/2", "rows longer than the window"),
        (
            Numbers(
                "the mean distance of what the last position attends to",
                lambda c: 1 / math.expm1(0.5),
                alibi_distance,
                cells(n_keys=(4, 8, 16, 32)),
                "limit",
            ),
        ),
    ),
)
