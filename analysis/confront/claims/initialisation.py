"""Claims about scores at initialisation: projections of normalised tokens, by the laws that libraries use."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims.draws import FloatArray
from analysis.confront.relation import Exactly, ToLeadingOrder
from analysis.predict.exact import expected_entropy
from analysis.predict.initialisation import read_initialisation
from analysis.vocabulary.scale import resolve_scale

PROJECTED = (
    "tokens of squared length d_model, as after a LayerNorm or RMSNorm",
    "independent entries of mean 0 in both projections",
)


def projections(cell: Cell, rng: np.random.Generator, replicates: int) -> tuple[FloatArray, FloatArray]:
    """Return w_query and w_key, (replicates, d_model, d_k), as the libraries write their bounds and deviations."""
    rows, columns = cell.d_model, cell.d_k
    shape = replicates, rows, columns
    if cell.init in ("t5", "mup"):
        w_query, w_key = (rng.standard_normal(shape) * rows**-0.5 for _ in range(2))
        return (w_query * columns**-0.5, w_key) if cell.init == "t5" else (w_query, w_key)
    if cell.init == "normal:0.25":
        return rng.standard_normal(shape) / 4, rng.standard_normal(shape) / 4
    outgoing = {"xavier": 3 * rows, "xavier-head": columns}.get(cell.init)
    bound = rows**-0.5 if outgoing is None else math.sqrt(6.0 / (rows + outgoing))
    return rng.uniform(-bound, bound, shape), rng.uniform(-bound, bound, shape)


def of_tokens(
    cell: Cell, rng: np.random.Generator, replicates: int, n_queries: int = 1
) -> tuple[FloatArray, FloatArray]:
    """Return queries and n_keys keys of a replicate, projected from normalised tokens."""
    w_query, w_key = projections(cell, rng, replicates)
    tokens = attnsym.qk_norm(rng.standard_normal((replicates, n_queries + cell.n_keys, cell.d_model)), kind="rms")
    return tokens[:, :n_queries] @ w_query, tokens[:, n_queries:] @ w_key


def scale_of_init(cell: Cell) -> float:
    """Return the scale that belongs to the initialisation."""
    named = {"t5": 1.0, "mup": 1.0 / cell.d_k}
    return float(named.get(cell.init, cell.d_k**-0.5))


def mean_square_of_scores(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the mean square of scores that share projections; their own mean is 0 by the sign of the projections."""
    query, key = of_tokens(cell, rng, replicates, cell.n_keys)
    scores = attnsym.attention_scores(query, key, scale=scale_of_init(cell))
    return np.asarray(np.mean(scores**2, axis=(-1, -2)))


def effective_scale(cell: Cell) -> float:
    """Return the scale of standard vectors that the initialisation amounts to."""
    law = read_initialisation(cell.init, cell.d_model, cell.d_k)
    return float(resolve_scale(law.scale)(cell.d_k, cell.n_keys) * law.query * law.key * cell.d_model)


def variance_at_start(cell: Cell) -> float:
    """Return scale² d_k (a_q a_k d_model)²."""
    return effective_scale(cell) ** 2 * float(cell.d_k)


def unit_variance(cell: Cell) -> float:
    """Return 1."""
    return 1.0


INITIALISATION_VARIANCE = Claim(
    key="initialisation-variance",
    statement="Var(score) = scale² d_k (a_q a_k d_model)² for projections with entries of deviation a_q and a_k, of "
    "any law",
    meaning="The factor 1/√d_k gives unit variance only to queries and keys of unit variance, and few initialisations "
    "give them that. Which one is used moves the variance of the first scores by a factor of a hundred.",
    assumptions=PROJECTED,
    source="Bienaymé's formula; derived here",
    derivation=None,
    predict=variance_at_start,
    sample=mean_square_of_scores,
    estimator="mean",
    relation=Exactly(),
    grid={
        "init": ("normal:0.25", "xavier", "xavier-head", "linear", "t5", "mup"),
        "d_model": (32,),
        "d_k": (16,),
        "n_keys": (8,),
    },
    rival=unit_variance,
    mistake="variance 1, as if dividing by √d_k had seen to it whatever the projections are",
    replicates=18_000,
)


def entropy_of_tokens(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the entropy of a row of projected tokens."""
    query, key = of_tokens(cell, rng, replicates)
    return np.asarray(attnsym.entropy(attnsym.attention_weights(query, key, scale=scale_of_init(cell)))[:, 0])


def entropy_at_start(cell: Cell) -> float:
    """Return the exact expectation over Gaussian vectors at the effective scale."""
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k, scale=effective_scale(cell)))


def entropy_at_unit_variance(cell: Cell) -> float:
    """Return the exact expectation at score variance 1."""
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k))


INITIALISATION_ENTROPY = Claim(
    key="initialisation-entropy",
    statement="E H of projected tokens is that of Gaussian vectors at scale·a_q a_k d_model, up to O(1/d_model)",
    meaning="The entropy of a head before training is known from three numbers of its configuration. What is left over "
    "comes from cosines between random tokens and fades with the width of the model.",
    assumptions=PROJECTED,
    source="rotation invariance of Gaussian projections; derived here",
    derivation=None,
    predict=entropy_at_start,
    sample=entropy_of_tokens,
    estimator="mean",
    relation=ToLeadingOrder("d_model", order=1, constant=0.25),
    grid={"init": ("t5", "xavier-head"), "d_model": (8, 32), "d_k": (8,), "n_keys": (8,)},
    rival=entropy_at_unit_variance,
    mistake="the entropy of scores of variance 1, whatever the projections are",
    replicates=36_000,
)

INITIALISATION_CLAIMS = (INITIALISATION_VARIANCE, INITIALISATION_ENTROPY)
