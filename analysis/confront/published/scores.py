"""Sentences about one score: its moments, what they need, and what makes them so at initialisation and after."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import GAUSSIAN, INDEPENDENT, VASWANI, FloatArray
from analysis.confront.published.ground import Derived, Follows, Numbers, cells
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import expected_entropy
from analysis.predict.score_moments import score_moments

_COMMON = "common telling"
_WIDTHS = cells(d_k=(16, 64, 256))


def aligned_mean(cell: Cell) -> float:
    """Return E of the scaled score of k = ρ q + √(1 - ρ²) e with ρ = 1/2."""
    return float(0.5 * cell.d_k * float(cell.d_k) ** -cell.power)


def independent_spread(cell: Cell) -> float:
    """Return the standard deviation of kᵀq/d_k^power for independent vectors."""
    return math.sqrt(score_moments(cell.d_k, scale=float(cell.d_k) ** -cell.power).variance)


def aligned_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return scaled scores of a query with a key of correlation 1/2."""
    query, other = rng.standard_normal((2, replicates, 1, cell.d_k))
    key = 0.5 * query + math.sqrt(0.75) * other
    return attnsym.attention_scores(query, key, scale=float(cell.d_k) ** -cell.power)[:, 0, 0]


def projected_variance(cell: Cell) -> float:
    """Return scale² d_k (d_model Var w_q)(d_model Var w_k), the variance of the score of two projected tokens."""
    components = cell.d_model * cell.weight_variance
    return float(cell.get("scale", cell.d_k**-0.5) ** 2 * cell.d_k * components**2 * cell.get("query_gain", 1.0) ** 2)


def projected_squares(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared scores of two tokens under projections drawn anew for each replicate, at the cell's scale."""
    tokens = rng.standard_normal((2, replicates, 1, cell.d_model))
    spread = math.sqrt(cell.weight_variance)
    w_query, w_key = rng.standard_normal((2, replicates, cell.d_model, cell.d_k)) * spread
    query, key = tokens[0] @ (w_query * cell.get("query_gain", 1.0)), tokens[1] @ w_key
    return np.asarray(attnsym.attention_scores(query, key, scale=cell.get("scale"))[:, 0, 0] ** 2)


def initialised(d_model: int, d_k: int, variance: float, **more: Any) -> tuple[Cell, ...]:
    """Return the cell of an initialisation: weights of this variance."""
    return (Cell((("d_model", d_model), ("d_k", d_k), ("weight_variance", variance), *more.items())),)


def one(cell: Cell) -> float:
    """Return 1."""
    return 1.0


_XAVIER = (
    "Glorot and Bengio 2010, Understanding the Difficulty of Training Deep Feedforward Neural Networks, for the "
    "weights; common telling for the scores"
)
_WITHOUT_INDEPENDENT_COMPONENTS = (
    "independent(q, k)",
    "uncorrelated(q)",
    "zero_mean(q)",
    "zero_mean(k)",
    "unit_variance(q)",
    "unit_variance(k)",
)

SCORE_SENTENCES = (
    Sentence(
        "score-variance-is-d-k",
        "If the components of q and k are independent with mean 0 and variance 1, their dot product has mean 0 and "
        "variance d_k.",
        VASWANI,
        ("nothing is left out; less would do",),
        (
            Follows("E(Dot(k, q))", "0", INDEPENDENT),
            Follows("Var(Dot(k, q))", "d_k", INDEPENDENT),
            Derived("score-variance"),
        ),
    ),
    Sentence(
        "all-components-independent",
        "The variance is d_k only because all components are independent of one another.",
        _COMMON,
        ("independence of the components of both vectors",),
        (Follows("Var(Dot(k, q))", "d_k", _WITHOUT_INDEPENDENT_COMPONENTS, follows=False),),
        remark="That q is independent of k and that one of the two has uncorrelated components suffices.",
    ),
    Sentence(
        "both-means-zero",
        "Both vectors must have mean 0 for the score to have mean 0.",
        _COMMON,
        ("q independent of k",),
        (Follows("E(Dot(k, q))", "0", ("independent(q, k)", "zero_mean(q)"), follows=False),),
        remark="One zero mean suffices; for the variance both are needed.",
    ),
    Sentence(
        "uncorrelated-means-independent",
        "Two scores of one query are uncorrelated, so they may be counted as independent samples.",
        _COMMON,
        ("entries of one score matrix",),
        (Follows("Cov(Dot(k, q)**2, Dot(k2, q)**2)", "0", GAUSSIAN),),
        remark="Their squares have covariance 2 d_k for Gaussian vectors: a long query makes all of them large.",
    ),
    Sentence(
        "scores-are-normal",
        "By the central limit theorem the score is normal.",
        _COMMON,
        ("how wide the head is",),
        (
            Numbers(
                "the kurtosis of a score of Gaussian vectors",
                lambda cell: 3.0,
                lambda cell: 3.0 + score_moments(cell.d_k).excess_kurtosis,
                cells(d_k=(4, 64, 256)),
                "limit",
            ),
        ),
        remark="The excess kurtosis is 6/d_k; thresholds for outliers belong to the exact law.",
    ),
    Sentence(
        "one-over-d-is-only-slower",
        "Dividing by d_k instead of √d_k changes nothing but the speed of training.",
        _COMMON,
        ("initialisation",),
        (
            Numbers(
                "the entropy over 64 keys at scale 1/d_k, against that at 1/√d_k",
                lambda cell: float(expected_entropy(64, d_k=cell.d_k)),
                lambda cell: float(expected_entropy(64, d_k=cell.d_k, scale="1/d_k")),
                _WIDTHS,
            ),
        ),
        remark="At 1/d_k the variance is 1/d_k and every row starts near uniform.",
    ),
    Sentence(
        "one-over-sqrt-d-keeps-order-one",
        "The scale 1/√d_k keeps the scores of order one at every width.",
        "Vaswani et al. 2017, Attention Is All You Need, section 3.2.1; as it is usually taken",
        ("independent query and key, as at initialisation",),
        (
            Numbers(
                "the standard deviation",
                one,
                independent_spread,
                cells(d_k=(16, 64, 256), power=(0.5,)),
                regime="query independent of key",
            ),
            Numbers(
                "the mean",
                lambda cell: 2.0,
                aligned_mean,
                cells(d_k=(16, 64, 256), power=(0.5,)),
                within=0.5,
                regime="query and key correlated, ρ = 1/2",
                sample=aligned_draws,
            ),
        ),
        depends_on="whether query and key are independent",
    ),
    Sentence(
        "mup-one-over-d",
        "The scale 1/d_k is the right one: it keeps scores of order one at every width.",
        "Yang et al. 2022, Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer",
        ("query and key that training has aligned",),
        (
            Numbers(
                "the mean",
                lambda cell: 0.5,
                aligned_mean,
                cells(d_k=(16, 64, 256), power=(1.0,)),
                regime="query and key correlated, ρ = 1/2",
                sample=aligned_draws,
            ),
            Numbers(
                "the standard deviation",
                lambda cell: 0.25,
                independent_spread,
                cells(d_k=(16, 64, 256), power=(1.0,)),
                regime="query independent of key",
            ),
        ),
        depends_on="whether training has aligned query and key",
    ),
    Sentence(
        "mup-starts-uniform",
        "At scale 1/d_k attention starts out uniform: log n - E H is about (n - 1)/(2 n d_k).",
        "Yang et al. 2022, Tensor Programs V, for the scale; expansion of the entropy to its leading term",
        ("initialisation",),
        (
            Numbers(
                "log n - E H over 64 keys",
                lambda cell: 63 / (2 * 64 * cell.d_k),
                lambda cell: math.log(64) - float(expected_entropy(64, d_k=cell.d_k, scale="1/d_k")),
                _WIDTHS,
                "limit",
            ),
        ),
    ),
    Sentence(
        "quarter-power-on-each-side",
        "Multiplying query and key by d_k^(-1/4) each is the same as dividing the score by √d_k.",
        "common code, as in guided-diffusion",
        (),
        (
            Numbers(
                "the largest difference of the two scores",
                lambda cell: 1e-13,
                lambda cell: quarter_power_difference(cell.d_k),
                _WIDTHS,
                "at most",
            ),
        ),
    ),
    Sentence(
        "xavier-gives-unit-scores",
        "Xavier initialisation of the projections gives scaled scores of variance 1.",
        _XAVIER,
        ("which fan-out the initialiser sees",),
        (
            Numbers(
                "the variance of a scaled score",
                one,
                projected_variance,
                initialised(64, 16, 2 / 128),
                regime="one square matrix for all heads",
                sample=projected_squares,
            ),
            Numbers(
                "the variance of a scaled score",
                one,
                projected_variance,
                initialised(64, 16, 2 / 256),
                regime="query, key and value packed into one matrix",
                sample=projected_squares,
            ),
            Numbers(
                "the variance of a scaled score",
                one,
                projected_variance,
                initialised(64, 16, 2 / 80),
                regime="one matrix for each head",
                sample=projected_squares,
            ),
        ),
        depends_on="the shape of the matrix that is initialised",
    ),
    Sentence(
        "fresh-layer-has-unit-scores",
        "A freshly built attention layer on normalised inputs has scores of variance 1.",
        "common telling; linear layers as PyTorch initialises them, uniform with variance 1/(3 fan_in)",
        ("inputs of variance 1",),
        (
            Numbers(
                "the variance of a scaled score",
                one,
                projected_variance,
                initialised(64, 16, 1 / 192),
                sample=projected_squares,
            ),
        ),
        remark="It is 1/9: such a layer starts nearer to uniform attention than 1/√d_k means it to.",
    ),
    Sentence(
        "t5-needs-no-scale",
        "No 1/√d_k is needed, since the initialisation of the query projection holds it.",
        "Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (code)",
        ("initialisation; training may undo it",),
        (
            Numbers(
                "the variance of an unscaled score",
                one,
                projected_variance,
                initialised(64, 16, 1 / 64, query_gain=0.25, scale=1.0),
                sample=projected_squares,
            ),
        ),
    ),
    Sentence(
        "cosines-of-strangers-are-small",
        "The cosine of two independent random directions is of size 1/√d_k.",
        "Henry et al. 2020, Query-Key Normalization for Transformers; common telling",
        ("one of the two directions isotropic",),
        (Derived("cosine-variance"),),
    ),
    Sentence(
        "residual-doubles-variance",
        "Adding a branch to the residual stream doubles its variance.",
        "analyses of residual streams, as in Liu et al. 2020, Understanding the Difficulty of Training Transformers",
        ("branch independent of the stream, both of variance 1",),
        (
            Follows(
                "Var(q[i] + k[i])",
                "2",
                ("independent(q, k)", "zero_mean(q)", "zero_mean(k)", "unit_variance(q)", "unit_variance(k)"),
            ),
        ),
    ),
)


def quarter_power_difference(d_k: int) -> float:
    """Return the largest difference, per score, between the two ways to scale, through the core."""
    rng = np.random.default_rng(d_k)
    query, key = rng.standard_normal((2, 8, d_k))
    split = attnsym.attention_scores(query * d_k**-0.25, key * d_k**-0.25, scale=1.0)
    return float(np.max(np.abs(split - attnsym.attention_scores(query, key))))
