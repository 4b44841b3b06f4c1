"""Sentences about one score: its moments, what they need, and its scale."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import beta, norm

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import GAUSSIAN, INDEPENDENT, VASWANI, FloatArray
from analysis.confront.published.draws import scores_squared, vector_rows
from analysis.confront.published.ground import Derived, Follows
from analysis.confront.published.numbers import Numbers, cells
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import expected_entropy
from analysis.predict.score_moments import score_moments

_COMMON = "common telling"
_WIDTHS = cells(d_k=(4, 16, 64, 256))
_UNIT = ("zero_mean(q)", "zero_mean(k)", "unit_variance(q)", "unit_variance(k)")


def variance(cell: Cell) -> float:
    """Return the variance of a score of independent standard vectors, at scale d_k^(-power) or unscaled."""
    return float(score_moments(cell.d_k, scale=power_scale(cell)).variance)


def power_scale(cell: Cell) -> float:
    """Return the cell's scale d_k^(-power), 1 without a power."""
    return float(float(cell.d_k) ** -float(cell.get("power", 0.0)))


def aligned_mean(cell: Cell) -> float:
    """Return E of the scaled score of k = ρ q + √(1 - ρ²) e with ρ = 1/2."""
    return float(0.5 * cell.d_k * power_scale(cell))


def aligned_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return scaled scores of a query with a key of correlation 1/2."""
    query, other = rng.standard_normal((2, replicates, 1, cell.d_k))
    key = 0.5 * query + math.sqrt(0.75) * other
    return attnsym.attention_scores(query, key, scale=power_scale(cell))[:, 0, 0]


def axis_variance(cell: Cell) -> float:
    """Return the variance of the score of a query that is one axis at random, times ±√d_k, with unit keys."""
    axes = math.sqrt(cell.d_k) * np.concatenate([np.eye(cell.d_k), -np.eye(cell.d_k)])
    return float(np.mean(np.sum(axes**2, axis=1)))  # Var(kᵀq | q) = ‖q‖², and E(kᵀq | q) = 0


def axis_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared unscaled scores of such queries: uncorrelated components, one of which determines the others."""
    at, sign = rng.integers(cell.d_k, size=replicates), rng.choice([-1.0, 1.0], size=replicates)
    query = np.zeros((replicates, 1, cell.d_k))
    query[np.arange(replicates), 0, at] = sign * math.sqrt(cell.d_k)
    key = rng.standard_normal((replicates, 1, cell.d_k))
    return np.asarray(attnsym.attention_scores(query, key, scale=1.0)[:, 0, 0] ** 2)


def mean_with_shifted_keys(cell: Cell) -> float:
    """Return the mean score of queries of mean 0 and keys of mean 1."""
    return score_moments(cell.d_k, scale=1.0, law=(norm(0, 1), norm(1, 1))).mean


def shifted_key_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return such scores."""
    query, key = rng.standard_normal((2, replicates, 1, cell.d_k))
    return np.asarray(attnsym.attention_scores(query, key + 1.0, scale=1.0)[:, 0, 0])


def squares_correlation(cell: Cell) -> float:
    """Return the correlation of the squares of two scores of one query."""
    return score_moments(cell.d_k).squared_score_correlation


def squares_correlation_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return products of the standardised squares of two scores of one query."""
    query = rng.standard_normal((replicates, 1, cell.d_k))
    scores = attnsym.attention_scores(query, rng.standard_normal((replicates, 2, cell.d_k)), scale=1.0)[:, 0]
    moments = score_moments(cell.d_k, scale=1.0)
    centred = scores**2 - moments.variance
    return np.asarray(centred[:, 0] * centred[:, 1] / (moments.fourth_moment - moments.variance**2))


def kurtosis_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return fourth powers of scores of variance 1."""
    return np.asarray(scores_squared(lambda c: None)(cell, rng, replicates) ** 2)


def shared_key_covariance(cell: Cell) -> float:
    """Return E of the product of two heads' scores with one key: d_k E q E q' E k², here with means 0."""
    law = (norm(0, 1), norm(0, 1))
    return float(score_moments(cell.d_k, scale=1.0, law=law).mean ** 2 / cell.d_k)


def shared_key_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return products of two heads' scores with one key."""
    queries = rng.standard_normal((replicates, 2, cell.d_k))
    scores = attnsym.attention_scores(queries, rng.standard_normal((replicates, 1, cell.d_k)), scale=1.0)
    return np.asarray(scores[:, 0, 0] * scores[:, 1, 0])


def cosine_variance(cell: Cell) -> float:
    """Return Var cos of two independent directions, one isotropic: (1 + cos)/2 is Beta((d - 1)/2, (d - 1)/2)."""
    return float(4 * beta((cell.d_k - 1) / 2, (cell.d_k - 1) / 2).var())


def cosine_squares(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared cosines of independent vectors."""
    query, key = rng.standard_normal((2, replicates, 1, cell.d_k))
    return np.asarray(attnsym.attention_scores(query, key, score="cosine")[:, 0, 0] ** 2)


def entropy_at(cell: Cell, scale: str) -> float:
    """Return E H over the cell's keys at a scale."""
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k, scale=scale))


def largest_of_scores(cell: Cell, *, split: bool) -> float:
    """Return the largest of 64 scores, scaled once or by d_k^(-1/4) on each side."""
    query, key = np.random.default_rng(cell.d_k).standard_normal((2, 8, cell.d_k))
    factor = cell.d_k**-0.25
    scores = (
        attnsym.attention_scores(query * factor, key * factor, scale=1.0)
        if split
        else attnsym.attention_scores(query, key)
    )
    return float(scores.max())


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
            Numbers("the variance of a score", lambda c: c.d_k, variance, _WIDTHS, sample=scores_squared(power_scale)),
        ),
    ),
    Sentence(
        "all-components-independent",
        "The variance is d_k only because all components are independent of one another.",
        _COMMON,
        ("independence of the components of both vectors",),
        (
            Follows("Var(Dot(k, q))", "d_k", ("independent(q, k)", "uncorrelated(q)", *_UNIT), follows=False),
            Numbers(
                "the variance of a score if the query is one axis at random, so that its components depend on one "
                "another",
                lambda c: c.d_k,
                axis_variance,
                cells(d_k=(2, 4, 16, 64)),
                "other than",
                sample=axis_draws,
            ),
        ),
        remark="That q is independent of k and that one of the two has uncorrelated components suffices.",
    ),
    Sentence(
        "both-means-zero",
        "Both vectors must have mean 0 for the score to have mean 0.",
        _COMMON,
        ("q independent of k",),
        (
            Follows("E(Dot(k, q))", "0", ("independent(q, k)", "zero_mean(q)"), follows=False),
            Numbers(
                "the mean score of queries of mean 0 and keys of mean 1",
                lambda c: 0.0,
                mean_with_shifted_keys,
                cells(d_k=(1, 4, 16, 64)),
                "other than",
                sample=shifted_key_draws,
            ),
        ),
        remark="One zero mean suffices; for the variance both are needed.",
    ),
    Sentence(
        "uncorrelated-means-independent",
        "Two scores of one query are uncorrelated, so they may be counted as independent samples.",
        _COMMON,
        ("entries of one score matrix",),
        (
            Follows("Cov(Dot(k, q)**2, Dot(k2, q)**2)", "0", GAUSSIAN),
            Numbers(
                "the correlation of the squares of two scores",
                lambda c: 0.0,
                squares_correlation,
                cells(d_k=(1, 4, 16, 64)),
                sample=squares_correlation_draws,
                replicates=40_000,
            ),
        ),
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
                lambda c: 3.0,
                lambda c: 3.0 + score_moments(c.d_k).excess_kurtosis,
                cells(d_k=(16, 64, 256)),
                "limit",
                sample=kurtosis_draws,
                replicates=20_000,
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
                "the entropy at scale 1/d_k, against that at 1/√d_k",
                lambda c: entropy_at(c, "sqrt"),
                lambda c: entropy_at(c, "1/d_k"),
                cells(n_keys=(64,), d_k=(4, 16, 64, 256)),
                sample=vector_rows("entropy", lambda c: 1 / c.d_k),
                replicates=500,
                smallest=cells(n_keys=(2,), d_k=(1, 2)),
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
                "the variance",
                lambda c: 1.0,
                variance,
                cells(power=(0.5,), d_k=(16, 64, 256, 1024)),
                regime="query independent of key",
                sample=scores_squared(power_scale),
                replicates=1_000,
            ),
            Numbers(
                "the mean, as no larger than at d_k = 16",
                lambda c: aligned_mean(Cell((("power", 0.5), ("d_k", 16)))),
                aligned_mean,
                cells(power=(0.5,), d_k=(16, 64, 256, 1024)),
                "at most",
                regime="query and key correlated, ρ = 1/2",
                sample=aligned_draws,
                replicates=1_000,
                smallest=cells(power=(0.5,), d_k=(16, 17)),
            ),
        ),
        depends_on="whether query and key are independent",
    ),
    Sentence(
        "quarter-power-on-each-side",
        "Multiplying query and key by d_k^(-1/4) each is the same as dividing the score by √d_k.",
        "common code, as in guided-diffusion",
        ("up to rounding; in half precision it is the safer of the two",),
        (
            Numbers(
                "the largest of 64 scores",
                lambda c: largest_of_scores(c, split=False),
                lambda c: largest_of_scores(c, split=True),
                _WIDTHS,
            ),
        ),
    ),
    Sentence(
        "cosines-of-strangers-are-small",
        "The cosine of two independent random directions is of size 1/√d_k.",
        "common telling",
        ("one of the two directions isotropic",),
        (
            Derived("cosine-variance"),
            Numbers("the mean squared cosine", lambda c: 1 / c.d_k, cosine_variance, _WIDTHS, sample=cosine_squares),
        ),
    ),
    Sentence(
        "shared-keys-correlate-heads",
        "Heads that share their keys have correlated scores.",
        "common telling about multi-query attention, Shazeer 2019, Fast Transformer Decoding: One Write-Head is "
        "All You Need",
        ("independent queries of mean 0",),
        (
            Follows(
                "Cov(Dot(k, q), Dot(k2, q))", "0", ("independent(q, k, k2)", *_UNIT, "zero_mean(k2)"), follows=False
            ),
            Numbers(
                "the covariance of two heads' scores with one key",
                lambda c: 0.0,
                shared_key_covariance,
                cells(d_k=(1, 4, 16, 64)),
                "other than",
                sample=shared_key_draws,
            ),
        ),
        remark="They are uncorrelated; their squares are not. In the proof q is the shared key, k and k2 two queries.",
    ),
)
