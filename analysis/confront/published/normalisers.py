"""Sentences about sinks, about weights that need not sum to one, and about other normalisers than softmax."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import FloatArray
from analysis.confront.published.draws import normal_rows
from analysis.confront.published.numbers import Numbers, cells
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import expected_sink_weight

_MILLER = "Miller 2023, Attention Is Off By One (blog)"


def smallest_weight(cell: Cell) -> float:
    """Return the smallest weight within a range: one key at the bottom, the others at the top."""
    row = np.full(cell.n_keys, float(cell.range))
    row[0] = 0.0
    return float(attnsym.softmax(row)[0])


def total_weight(cell: Cell) -> float:
    """Return the weight that n equal real keys keep beside a sink of logit 0."""
    score = cell.score - (math.log(cell.n_keys) if cell.below_log_n else 0.0)
    weights = attnsym.attention_weights(np.full((1, 1), score), np.ones((cell.n_keys, 1)), scale=1.0, sink=0.0)
    return float(weights.sum())


def unit_sink(cell: Cell) -> float:
    """Return E of the weight of a sink of logit 0 beside normal scores of variance 1."""
    return float(expected_sink_weight(cell.n_keys, sink=0.0, sigma=1.0))


def sink_logit(cell: Cell) -> float:
    """Return the sink's logit: the cell's lead, above log n or above 0."""
    return float(cell.lead + (math.log(cell.n_keys) if cell.above_log_n else 0.0))


def sink_weight(cell: Cell) -> float:
    """Return E of the weight of that sink beside normal scores of variance 1."""
    return float(expected_sink_weight(cell.n_keys, sink=sink_logit(cell), sigma=1.0))


def sigmoid_row_sum(cell: Cell) -> float:
    """Return E of the row sum of sigmoid weights with bias -log n, by quadrature over one normal score."""
    z, mass = np.polynomial.hermite_e.hermegauss(200)
    scores = cell.sigma * z - math.log(cell.n_keys)
    return float(cell.n_keys * mass @ (1 / (1 + np.exp(-scores))) / math.sqrt(2 * math.pi))


def one_hot_rows(cell: Cell, rng: np.random.Generator, replicates: int) -> tuple[FloatArray, FloatArray]:
    """Return queries and keys whose scores are iid normal with the cell's spread: one-hot keys."""
    query = cell.sigma * rng.standard_normal((replicates, 1, cell.n_keys))
    return query, np.eye(cell.n_keys)


def sigmoid_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return row sums of the core's sigmoid weights."""
    query, key = one_hot_rows(cell, rng, replicates)
    return np.asarray(attnsym.attention_weights(query, key, scale=1.0, normalizer="sigmoid").sum(axis=(1, 2)))


def relu_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return row sums of the core's ReLU weights, or sums of their squares: outputs of values all 1 or random."""
    query, key = one_hot_rows(cell, rng, replicates)
    weights = attnsym.attention_weights(query, key, scale=1.0, normalizer="relu")
    return np.asarray((weights if cell.of == "sum" else weights**2).sum(axis=(1, 2)))


def relu_mean(cell: Cell) -> float:
    """Return E Σp = σ/√(2π), or E Σp² = σ²/(2n)."""
    return float(cell.sigma / math.sqrt(2 * math.pi) if cell.of == "sum" else cell.sigma**2 / (2 * cell.n_keys))


def relu_at_sixteen(cell: Cell) -> float:
    """Return the same over sixteen keys."""
    return relu_mean(Cell((("sigma", cell.sigma), ("of", cell.of), ("n_keys", 16))))


NORMALISER_SENTENCES = (
    Sentence(
        "exact-zeros-need-infinite-scores",
        "Softmax cannot give a weight of exactly zero: a head that wants to ignore keys must make its scores grow.",
        "Bondarenko, Nagel and Blankevoort 2023, Quantizable Transformers: Removing Outliers by Helping Attention "
        "Heads Do Nothing",
        ("arithmetic without underflow",),
        (
            Numbers(
                "the smallest weight at a range, as more than zero",
                lambda c: math.exp(-c.range) / c.n_keys,
                smallest_weight,
                cells(n_keys=(8, 64), range=(1.0, 5.0, 10.0, 20.0)),
                "at least",
            ),
        ),
    ),
    Sentence(
        "sinks-fill-the-denominator",
        "Evicting the sink takes a considerable part of softmax's denominator away.",
        "Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks, arXiv:2309.17453",
        ("how far the sink leads; normal scores of variance 1", "considerable: a third"),
        tuple(
            Numbers(
                "the share of the denominator that is the sink's",
                lambda c: 1 / 3,
                sink_weight,
                cells(above_log_n=(above,), lead=(lead,), n_keys=(16, 64, 256, 1024)),
                "at least",
                regime=regime,
                sample=normal_rows("sink", lambda c: 1.0, sink=sink_logit),
            )
            for above, lead, regime in (
                (True, 0.5, "a sink that leads by log n + 1/2"),
                (False, 3.0, "a sink that leads by 3 at every length"),
            )
        ),
        depends_on="whether the sink's lead grows with log n",
        remark="The authors observe leads that do: initial tokens that take much of the weight in long contexts.",
    ),
    Sentence(
        "off-by-one-lets-heads-be-silent",
        "With 1 added to its denominator softmax lets a head say nothing.",
        _MILLER,
        ("how far all scores lie below -log n", "nothing: at most a tenth of the weight"),
        tuple(
            Numbers(
                "the weight left to the keys",
                lambda c: 0.1,
                total_weight,
                cells(below_log_n=(below,), score=(-3.0,), n_keys=(2, 16, 64, 1024)),
                "at most",
                regime=regime,
                smallest=cells(below_log_n=(below,), score=(-3.0,), n_keys=(1, 2, 3)),
            )
            for below, regime in ((True, "scores of 3 below -log n"), (False, "scores of -3 at every length"))
        ),
        depends_on="whether the scores fall below -log n",
        remark="The author says it of scores that fall without bound, and there it holds.",
    ),
    Sentence(
        "added-one-weighs-something",
        "The 1 that is added to softmax's denominator takes a noticeable share of the attention from the start.",
        f"as {_MILLER}, is often retold",
        ("how many keys there are; normal scores of variance 1", "noticeable: 5 %"),
        (
            Numbers(
                "the share that it takes",
                lambda c: 0.05,
                unit_sink,
                cells(n_keys=(4, 8, 12)),
                "at least",
                regime="up to a dozen keys",
                sample=normal_rows("sink", lambda c: 1.0),
            ),
            Numbers(
                "the share that it takes",
                lambda c: 0.05,
                unit_sink,
                cells(n_keys=(64, 256, 1024)),
                "at least",
                regime="longer rows",
                sample=normal_rows("sink", lambda c: 1.0),
                smallest=cells(n_keys=(12, 13, 14, 15, 16)),
            ),
        ),
        depends_on="the number of keys",
        remark="It is about e^(-σ²/2)/n: by 64 keys less than 1 %.",
    ),
    Sentence(
        "sigmoid-bias-keeps-row-sums",
        "A bias of -log n keeps the row sums of sigmoid attention near 1.",
        "Ramapuram et al. 2024, Theory, Analysis, and Best Practices for Sigmoid Self-Attention, arXiv:2409.04431",
        ("scores near 0, as at the start of training", "near: within a tenth"),
        tuple(
            Numbers(
                "the mean row sum",
                lambda c: 1.0,
                sigmoid_row_sum,
                cells(sigma=(sigma,), n_keys=(16, 64, 256)),
                within=0.1,
                regime=regime,
                sample=sigmoid_draws,
                smallest=cells(sigma=(sigma,), n_keys=(2, 3, 4)),
            )
            for sigma, regime in ((0.25, "scores of spread 1/4"), (1.0, "scores of spread 1"))
        ),
        depends_on="the variance of the scores",
        remark="It tends to e^(σ²/2).",
    ),
    Sentence(
        "relu-over-n-keeps-the-output",
        "ReLU divided by the length keeps the size of the output when the length changes.",
        "Wortsman et al. 2023, Replacing softmax with ReLU in Vision Transformers",
        ("values that share a mean; scores of variance 1",),
        tuple(
            Numbers(
                what,
                relu_at_sixteen,
                relu_mean,
                cells(sigma=(1.0,), of=(of,), n_keys=(16, 64, 256)),
                regime=regime,
                sample=relu_draws,
                smallest=cells(sigma=(1.0,), of=(of,), n_keys=(16, 17)),
            )
            for of, what, regime in (
                ("sum", "E Σp, against sixteen keys", "values that are alike"),
                ("squares", "E Σp², the variance of the output, against sixteen keys", "values of mean 0"),
            )
        ),
        depends_on="whether the values share a mean",
    ),
)
