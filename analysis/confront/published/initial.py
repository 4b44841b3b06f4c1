"""Sentences about initialisation: what scores, rows, outputs and gradients are before training, and what is meant."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import FloatArray
from analysis.confront.published.draws import normal_rows, scores_squared, vector_rows
from analysis.confront.published.ground import Follows
from analysis.confront.published.numbers import Numbers, cells
from analysis.confront.published.scores import aligned_draws, aligned_mean, power_scale, variance
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import expected_entropy, expected_max_weight, expected_power_sum

_XAVIER = (
    "Glorot and Bengio 2010, Understanding the Difficulty of Training Deep Feedforward Neural Networks, for the "
    "weights; common telling for the scores"
)
_TENSOR_PROGRAMS = (
    "Yang et al. 2022, Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer"
)
_UNIT_SCALING = "graphcore-research/unit-scaling, functional.scaled_dot_product_attention, common code"
_XIONG = "Xiong et al. 2020, On Layer Normalization in the Transformer Architecture, arXiv:2002.04745"


def projected_variance(cell: Cell) -> float:
    """Return scale² d_k (d_model Var w_q)(d_model Var w_k), the variance of the score of two projected tokens."""
    gain = cell.get("query_gain", 1.0)
    scale = cell.get("scale", cell.d_k**-0.5)
    return float(scale**2 * cell.d_k * (cell.d_model * weight_variance(cell)) ** 2 * gain**2)


def weight_variance(cell: Cell) -> float:
    """Return the variance of a weight under the cell's initialiser, for its matrix of d_model inputs."""
    outputs = {"square": cell.d_model, "packed": 3 * cell.d_model, "per head": cell.d_k}
    if cell.init in outputs:  # Xavier: 2/(fan_in + fan_out)
        return float(2 / (cell.d_model + outputs[cell.init]))
    return float({"linear layer": 1 / 3, "T5": 1.0}[cell.init] / cell.d_model)


def projected_squares(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared scores of two tokens under projections drawn anew for each replicate, at the cell's scale."""
    tokens = rng.standard_normal((2, replicates, 1, cell.d_model))
    spread = math.sqrt(weight_variance(cell))
    w_query, w_key = rng.standard_normal((2, replicates, cell.d_model, cell.d_k)) * spread
    query, key = tokens[0] @ (w_query * cell.get("query_gain", 1.0)), tokens[1] @ w_key
    return np.asarray(attnsym.attention_scores(query, key, scale=cell.get("scale"))[:, 0, 0] ** 2)


def stream_variance(cell: Cell) -> float:
    """Return the variance of the stream after so many branches, each a linear layer of what it reads."""
    return float(2.0**cell.layers if cell.branch == "as it stands" else cell.layers + 1.0)


def stream(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return streams of variance 1 with the cell's branches added: random linear layers, drawn anew each time."""
    x = rng.standard_normal((replicates, cell.d_k))
    for _ in range(cell.layers):
        read = attnsym.qk_norm(x, kind="rms") if cell.branch == "normed" else x
        # A fresh layer of weights N(0, 1/d) applied to one vector gives independent N(0, ‖read‖²/d) components.
        x = x + rng.standard_normal(x.shape) * np.linalg.norm(read, axis=1, keepdims=True) / math.sqrt(cell.d_k)
    return np.asarray(x)


def stream_squares(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared components of such streams, averaged over each."""
    return np.asarray(np.mean(stream(cell, rng, replicates) ** 2, axis=1))


def last_gradient(cell: Cell) -> float:
    """
    Return E‖∂‖_F²/d of gᵀ rms(x) by the weights of the last branch, g standard normal.

    The branch reads n with ‖n‖² = d, so ∂ = (Jᵀg) nᵀ, J = (√d/‖x‖)(I - x̂x̂ᵀ) and E‖Jᵀg‖² = d (d - 1) E 1/‖x‖². Norm
    inside the branch: ‖x‖² ~ (L + 1) χ²_d. Norm after each sum: x = n + e, e standard normal, ‖x‖² noncentral χ².
    """
    d = cell.d_k
    if cell.norm == "inside":
        return float(d * (d - 1) / (d - 2) / (cell.layers + 1))
    from scipy.stats import poisson

    counts = np.arange(20 * d)  # a noncentral χ²_d(d) is a Poisson(d/2) mixture of χ²_(d + 2j)
    return float(d * (d - 1) * np.sum(poisson(d / 2).pmf(counts) / (d + 2 * counts - 2)))


def last_gradient_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared gradients by the last branch's weights, per d_k, by differencing the core's norm along g."""
    d = cell.d_k
    if cell.norm == "inside":
        x = stream(Cell((("d_k", d), ("layers", cell.layers), ("branch", "normed"))), rng, replicates)
    else:
        x = rng.standard_normal((replicates, d))
        for _ in range(cell.layers):  # ‖read‖² = d: a fresh layer of it is standard normal
            x = attnsym.qk_norm(x, kind="rms") + rng.standard_normal((replicates, d))
    g, step = rng.standard_normal((replicates, d)), 1e-5
    # Jᵀg = Jg: J is symmetric.
    change = (attnsym.qk_norm(x + step * g, kind="rms") - attnsym.qk_norm(x - step * g, kind="rms")) / (2 * step)
    return np.asarray(np.sum(change**2, axis=1))


def deep_limit(cell: Cell) -> float:
    """Return lim L E‖∂‖_F²/d for the norm inside the branch."""
    return float(cell.d_k * (cell.d_k - 1) / (cell.d_k - 2))


def one_layer(cell: Cell) -> Cell:
    """Return the cell with one layer."""
    return Cell(tuple((name, 1 if name == "layers" else value) for name, value in cell.settings))


def fitted_output(cell: Cell) -> float:
    """Return the square of the fitted standard deviation of the output, log-interpolated from flat to one-hot rows."""
    alpha = 1 / (1 + 4 * cell.d_k / cell.mult**2)
    flat = (math.log(cell.n_keys) if cell.causal else 1.0) / cell.n_keys
    return float(flat ** (1 - alpha))


def exact_output(cell: Cell) -> float:
    """Return E Σp², the variance of the output for independent values of variance 1; causal: its mean over rows."""
    scale = cell.mult / cell.d_k
    return float(expected_power_sum(2, cell.n_keys, d_k=cell.d_k, scale=scale, is_causal=cell.causal))


def output_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return Σp² of rows at scale mult/d_k; causal: their mean over the rows of an attention."""
    if not cell.causal:
        return vector_rows("squares", lambda c: c.mult / c.d_k)(cell, rng, min(replicates, 200))
    query, key = rng.standard_normal((2, 64, cell.n_keys, cell.d_k))
    weights = attnsym.attention_weights(query, key, scale=cell.mult / cell.d_k, is_causal=True)
    return np.asarray(np.mean(np.sum(weights**2, axis=2), axis=1))


XAVIER_SQUARE, XAVIER_PACKED, XAVIER_HEAD = (
    cells(init=(init,), d_k=(16,), d_model=(32, 64, 128)) for init in ("square", "packed", "per head")
)

INITIAL_SENTENCES = (
    Sentence(
        "xavier-gives-unit-scores",
        "Xavier initialisation of the projections gives scaled scores of variance 1.",
        _XAVIER,
        ("which fan-out the initialiser sees", "inputs of variance 1"),
        tuple(
            Numbers(
                "the variance of a scaled score",
                lambda c: 1.0,
                projected_variance,
                where,
                regime=regime,
                sample=projected_squares,
                replicates=2_000,
            )
            for where, regime in (
                (XAVIER_SQUARE, "one square matrix for all heads"),
                (XAVIER_PACKED, "query, key and value packed into one matrix"),
                (XAVIER_HEAD, "one matrix for each head of 16"),
            )
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
                lambda c: 1.0,
                projected_variance,
                cells(init=("linear layer",), d_k=(16,), d_model=(32, 64, 128)),
                sample=projected_squares,
                replicates=2_000,
                smallest=cells(init=("linear layer",), d_k=(1,), d_model=(1,)),
            ),
        ),
        remark="It is 1/9: such a layer starts nearer to uniform attention than 1/√d_k means it to.",
    ),
    Sentence(
        "t5-needs-no-scale",
        "At initialisation no 1/√d_k is needed, since the initialisation of the query projection holds it.",
        "Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (code)",
        ("initialisation; training may undo it",),
        (
            Numbers(
                "the variance of an unscaled score",
                lambda c: 1.0,
                projected_variance,
                cells(init=("T5",), query_gain=(0.25,), scale=(1.0,), d_k=(16,), d_model=(32, 64, 128)),
                sample=projected_squares,
                replicates=2_000,
            ),
        ),
    ),
    Sentence(
        "mup-one-over-d",
        "With 1/d_k in the place of 1/√d_k scores are of the same size at every width.",
        _TENSOR_PROGRAMS,
        ("query and key that training has aligned, as the authors say",),
        (
            Numbers(
                "the mean",
                lambda c: 0.5,
                aligned_mean,
                cells(power=(1.0,), d_k=(16, 64, 256)),
                regime="query and key correlated, ρ = 1/2",
                sample=aligned_draws,
            ),
            Numbers(
                "the variance, as no smaller than at d_k = 16",
                lambda c: variance(Cell((("power", 1.0), ("d_k", 16)))),
                variance,
                cells(power=(1.0,), d_k=(16, 64, 256)),
                "at least",
                regime="query independent of key",
                sample=scores_squared(power_scale),
                smallest=cells(power=(1.0,), d_k=(16, 17)),
            ),
        ),
        depends_on="whether training has aligned query and key",
        remark="The authors argue for it where they are aligned, and there it holds.",
    ),
    Sentence(
        "mup-starts-uniform",
        "At scale 1/d_k attention starts out uniform: log n - E H is about (n - 1)/(2 n d_k).",
        "Yang et al. 2022, Tensor Programs V, for the scale; expansion of the entropy to its leading term",
        ("initialisation",),
        (
            Numbers(
                "log n - E H over 64 keys",
                lambda c: 63 / (2 * 64 * c.d_k),
                lambda c: math.log(64) - float(expected_entropy(64, d_k=c.d_k, scale="1/d_k")),
                cells(d_k=(16, 64, 256)),
                "limit",
                sample=vector_rows("dispersion", lambda c: 1 / c.d_k, n_keys=64),
                replicates=500,
            ),
        ),
    ),
    Sentence(
        "initial-attention-is-uniform",
        "At initialisation with 1/√d_k every key has about the weight 1/n.",
        "common telling",
        ("scores of variance 1", "about: within a half"),
        (
            Numbers(
                "the largest weight at σ = 1",
                lambda c: 1 / c.n_keys,
                lambda c: float(expected_max_weight(c.n_keys, sigma=1.0)),
                cells(n_keys=(8, 64, 1024)),
                within=0.5,
                sample=normal_rows("largest", lambda c: 1.0),
                smallest=cells(n_keys=range(2, 9)),
            ),
        ),
        remark="The mean weight is 1/n, the largest several times that: at 64 keys about eight times.",
    ),
    Sentence(
        "output-needs-sqrt-n-over-e",
        "At scores of variance 1 the output of attention has the variance e/n, so that a factor √(n/e) restores it.",
        "Orr 2023, Almost-scaled Dot-product Attention (Graphcore Research)",
        ("values independent with variance 1", "rows long against e"),
        (
            Numbers(
                "the variance of the output times n/e",
                lambda c: 1.0,
                lambda c: c.n_keys * float(expected_power_sum(2, c.n_keys, sigma=1.0)) / math.e,
                cells(n_keys=(64, 256, 1024, 4096)),
                "limit",
                sample=lambda c, rng, count: normal_rows("spread", lambda c: 1.0)(c, rng, count) / math.e,
            ),
        ),
        remark="The author reports that the factor makes training worse.",
    ),
    Sentence(
        "fitted-output-scale",
        "The standard deviation of attention's output is log-interpolated between the flat and the one-hot row.",
        f"{_UNIT_SCALING}; Blake et al. 2024, u-μP: The Unit-Scaled Maximal Update Parametrization, for the scheme",
        ("a fit by its authors' own word", "near: the variance within a fifth", "values independent with variance 1"),
        tuple(
            Numbers(
                "the variance of the output",
                fitted_output,
                exact_output,
                where,
                within=0.2,
                regime=regime,
                sample=output_draws,
            )
            for where, regime in (
                (cells(mult=(1.0,), causal=(False,), d_k=(64,), n_keys=(64, 256, 1024)), "scale 1/d_k, whole rows"),
                (cells(mult=(1.0,), causal=(True,), d_k=(64,), n_keys=(64, 128, 256)), "scale 1/d_k, causal rows"),
                (cells(mult=(8.0,), causal=(False,), d_k=(64,), n_keys=(64, 256, 1024)), "scale 1/√d_k"),
            )
        ),
        depends_on="the scale: the fit holds near 1/d_k, its default, and is too large at 1/√d_k in long rows",
    ),
    Sentence(
        "branches-double-the-variance",
        "Each branch that is added doubles the variance of the residual stream.",
        "common telling about residual networks",
        ("a branch that is independent of the stream and as large; the smallest model of it: random linear layers",),
        (
            Follows(
                "Var(q[i] + k[i])",
                "2",
                ("independent(q, k)", "zero_mean(q)", "zero_mean(k)", "unit_variance(q)", "unit_variance(k)"),
                regime="one branch",
            ),
            Numbers(
                "the variance of the stream after so many branches",
                lambda c: 2.0**c.layers,
                stream_variance,
                cells(branch=("as it stands",), d_k=(32,), layers=(1, 2, 4, 8)),
                regime="branches read the stream as it stands",
                sample=stream_squares,
            ),
            Numbers(
                "the variance of the stream after so many branches",
                lambda c: 2.0**c.layers,
                stream_variance,
                cells(branch=("normed",), d_k=(32,), layers=(1, 2, 4, 8)),
                regime="branches read the stream through a norm",
                sample=stream_squares,
            ),
        ),
        depends_on="whether a norm stands before the branch: then the variance grows by 1 a branch",
    ),
    Sentence(
        "norm-inside-tames-the-last-gradient",
        "With the norm inside the branch the gradient of the last layer falls with depth as 1/√L; with the norm after "
        "the sum it does not.",
        _XIONG,
        (
            "initialisation",
            "the smallest model of it: random linear branches, a root-mean-square norm, a standard normal gradient "
            "from above; no attention",
        ),
        (
            Numbers(
                "L times the mean squared gradient, norm inside the branch",
                deep_limit,
                lambda c: c.layers * last_gradient(c),
                cells(norm=("inside",), d_k=(32,), layers=(2, 8, 32)),
                "limit",
                sample=lambda c, rng, count: c.layers * last_gradient_draws(c, rng, count),
            ),
            Numbers(
                "the mean squared gradient, norm after the sum, against that of one layer",
                lambda c: last_gradient(one_layer(c)),
                last_gradient,
                cells(norm=("after",), d_k=(32,), layers=(2, 8, 32)),
                sample=last_gradient_draws,
            ),
        ),
    ),
)
