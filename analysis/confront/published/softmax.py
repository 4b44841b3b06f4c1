"""Sentences about softmax itself: its gradient, its bounds, and what changes it."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import VASWANI, FloatArray
from analysis.confront.claims.softmax import JACOBIAN_SPECTRAL_NORM
from analysis.confront.published.draws import normal_rows, vector_rows
from analysis.confront.published.ground import Claimed, Derived, Follows
from analysis.confront.published.numbers import Numbers, cells
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import (
    expected_jacobian_frobenius_squared,
    expected_jacobian_trace,
    expected_query_gradient_squared,
)


def unscaled_trace(d_k: int) -> float:
    """Return E tr J over ten keys, unscaled."""
    return float(expected_jacobian_trace(10, d_k=d_k, scale="unscaled"))


def unscaled_query_gradient(d_k: int) -> float:
    """Return the mean square of the gradient by the query over ten keys, unscaled."""
    return float(expected_query_gradient_squared(10, d_k=d_k, scale="unscaled"))


def query_gradient_squares(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return ‖∂(g·p)/∂q‖² over ten keys, unscaled, for g standard normal: values of one component, output g·p."""
    query, key = rng.standard_normal((replicates, 1, cell.d_k)), rng.standard_normal((replicates, 10, cell.d_k))
    value, one = rng.standard_normal((replicates, 10, 1)), np.ones((replicates, 1, 1))
    d_query, _, _ = attnsym.scaled_dot_product_attention_vjp(query, key, value, one, scale=1.0)
    return np.asarray(np.sum(d_query[:, 0] ** 2, axis=1))


def leading_row(cell: Cell) -> FloatArray:
    """Return the weights of a row whose first key leads by the cell's lead, over its keys or over four."""
    row = np.zeros(cell.get("n_keys", 4))
    row[0] = cell.lead
    return np.asarray(attnsym.softmax(row))


def slope(cell: Cell) -> float:
    """Return ∂p₀/∂s₀ of the leading row by central differences of the core's softmax."""
    step = 1e-4
    above, below = (
        leading_row(Cell((("lead", cell.lead + sign * step), ("n_keys", cell.n_keys))))[0] for sign in (1, -1)
    )
    return float((above - below) / (2 * step))


def slope_formula(cell: Cell) -> float:
    """Return p₀(1 - p₀) there."""
    weight = float(leading_row(cell)[0])
    return weight * (1 - weight)


def tied_norm(cell: Cell) -> float:
    """Return ‖J‖₂ where two keys tie and lead all others by the cell's lead, for ever where it names none."""
    row = np.zeros(cell.n_keys)
    row[:2] = cell.get("lead", 800.0)
    return float(np.linalg.eigvalsh(attnsym.softmax_jacobian(attnsym.softmax(row)))[-1])


def vanished_gradient(cell: Cell) -> float:
    """Return the largest entry of the gradients by query and key where tokens differ by the cell's spread, if any."""
    rng = np.random.default_rng(cell.n_keys)
    spread = cell.get("spread", 0.0) * rng.standard_normal((cell.n_keys, 16))
    token = rng.standard_normal(16) + spread
    upstream = rng.standard_normal((cell.n_keys, 16))
    d_query, d_key, _ = attnsym.scaled_dot_product_attention_vjp(token, token, token, upstream)
    return float(max(np.abs(d_query).max(), np.abs(d_key).max()))


def at_triple_spread(cell: Cell) -> float:
    """Return the largest entry where tokens differ three times as much."""
    return vanished_gradient(Cell((("n_keys", cell.n_keys), ("spread", 3 * cell.spread))))


def mixed(cell: Cell, *, tiled: bool) -> float:
    """Return the output for normal scores and values: whole, or seen one key at a time with a running maximum."""
    rng = np.random.default_rng(cell.n_keys)
    scores, values = rng.standard_normal((2, cell.n_keys)) * [[cell.spread], [1.0]]
    if not tiled:
        return float(attnsym.softmax(scores) @ values)
    top, total, output = -math.inf, 0.0, 0.0
    for score, value in zip(scores, values, strict=True):
        shrunk = math.exp(top - max(top, score))
        top = max(top, score)
        total, output = total * shrunk + math.exp(score - top), output * shrunk + math.exp(score - top) * value
    return float(output / total)


def biased_weight(cell: Cell, *, moved: bool) -> float:
    """Return the largest of eight weights, with a vector of the cell's length added to every key or without."""
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((1, 16)), rng.standard_normal((8, 16))
    bias = attnsym.qk_norm(rng.standard_normal(16), kind="l2") * cell.length
    return float(attnsym.attention_weights(query, key + bias if moved else key).max())


def uniform_norm(cell: Cell) -> float:
    """Return ‖J‖_F² of a uniform row."""
    return float((cell.n_keys - 1) / cell.n_keys**2)


def mean_norm(cell: Cell) -> float:
    """Return E‖J‖_F² at σ = 1."""
    return float(expected_jacobian_frobenius_squared(cell.n_keys, sigma=1.0))


SOFTMAX_SENTENCES = (
    Sentence(
        "softmax-gradient",
        "The derivative of softmax is pᵢ(δᵢⱼ - pⱼ).",
        "Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs, with Relationships "
        "to Statistical Pattern Recognition",
        (),
        (
            Derived("softmax-jacobian"),
            Follows("D(p[i], s[j])", "p[i]*(delta(i, j) - p[j])", ()),
            Numbers(
                "the slope of one weight of four along its own score, by differences",
                slope_formula,
                slope,
                cells(n_keys=(4,), lead=(-4.0, -2.0, 0.0, 1.0, 2.0, 4.0)),
                within=1e-6,
            ),
        ),
    ),
    Sentence(
        "large-d-kills-the-gradient",
        "For large d_k unscaled dot products push softmax into regions where its gradients are extremely small.",
        f"{VASWANI}; the sentence before it",
        ("which gradient, and which summary of it over rows",),
        (
            Numbers(
                "E tr J over ten keys, as smaller than at a quarter of the width",
                lambda c: unscaled_trace(c.d_k // 4),
                lambda c: unscaled_trace(c.d_k),
                cells(d_k=(64, 256, 1024)),
                "at most",
                regime="the gradient by the scores",
                sample=vector_rows("trace", lambda c: 1.0, n_keys=10),
                replicates=500,
            ),
            Numbers(
                "the mean square over ten keys, as smaller than at a quarter of the width",
                lambda c: unscaled_query_gradient(c.d_k // 4),
                lambda c: unscaled_query_gradient(c.d_k),
                cells(d_k=(64, 256, 1024)),
                "at most",
                regime="the mean square of the gradient by the query",
                sample=query_gradient_squares,
                replicates=500,
                smallest=cells(d_k=(4, 8, 16)),
            ),
        ),
        depends_on="which gradient: that by the scores vanishes, the mean square of that by the query grows",
        remark="A few rows near a tie carry large gradients by the query, most rows none: its median vanishes.",
    ),
    Sentence(
        "softmax-is-one-lipschitz",
        "Softmax is Lipschitz with constant λ, its inverse temperature.",
        "Gao and Pavel 2017, On the Properties of the Softmax Function with Application in Game Theory and "
        "Reinforcement Learning",
        ("nothing is left out; half of it would do",),
        (
            Numbers("the largest ‖J‖₂ at λ = 1", lambda c: 1.0, tied_norm, cells(n_keys=(2, 4, 16, 64)), "at most"),
            Claimed(JACOBIAN_SPECTRAL_NORM),
        ),
        remark="The constant λ/2 suffices: two keys that tie reach it, and with more keys it is approached where two "
        "share all the weight.",
    ),
    Sentence(
        "half-is-never-reached",
        "In the Euclidean norm the local Lipschitz constant of softmax stays below 1/2, which it reaches only in the "
        "limit.",
        "Nair 2025, Softmax is 1/2-Lipschitz: A Tight Bound Across All ℓp Norms, arXiv:2510.23012, abstract",
        ("how many keys there are", "below: by a hundred-millionth at least"),
        (
            Numbers(
                "‖J‖₂ where two keys tie and lead the others",
                lambda c: 0.5 - 1e-8,
                tied_norm,
                cells(n_keys=(3,), lead=(0.0, 2.0, 4.0, 8.0)),
                "at most",
                regime="three keys and more",
            ),
            Numbers(
                "‖J‖₂ where two keys tie",
                lambda c: 0.5 - 1e-8,
                tied_norm,
                cells(n_keys=(2,), lead=(0.0, 2.0, 4.0, 8.0)),
                "at most",
                within=1e-12,
                regime="two keys",
            ),
        ),
        depends_on="whether there are more than two keys: with two, a tie reaches 1/2",
    ),
    Sentence(
        "logistic-slope-bounds-softmax",
        "The logistic slope 1/4 bounds how fast softmax can change.",
        "common telling",
        ("the two-key case taken for one variable",),
        (Numbers("the largest ‖J‖₂", lambda c: 0.25, tied_norm, cells(n_keys=(2, 4, 16, 64)), "at most"),),
        remark="1/4 is the slope of one weight along one score; along the difference of two scores it is 1/2.",
    ),
    Sentence(
        "uniform-rows-pass-most",
        "A uniform row passes the largest gradient, and any spread of the scores only reduces it.",
        "common telling",
        ("how many keys there are",),
        (
            Numbers(
                "E‖J‖_F² at σ = 1, against the uniform row",
                uniform_norm,
                mean_norm,
                cells(n_keys=(2, 3, 4)),
                "at most",
                regime="up to four keys",
                sample=normal_rows("frobenius", lambda c: 1.0),
            ),
            Numbers(
                "E‖J‖_F² at σ = 1, against the uniform row",
                uniform_norm,
                mean_norm,
                cells(n_keys=(8, 64, 1024)),
                "at most",
                regime="more keys",
                sample=normal_rows("frobenius", lambda c: 1.0),
                smallest=cells(n_keys=range(5, 9)),
            ),
        ),
        depends_on="the number of keys",
    ),
    Sentence(
        "alike-tokens-stop-query-and-key",
        "Where all tokens have become alike the gradients by queries and keys vanish.",
        "Noci et al. 2022, Signal Propagation in Transformers: Theoretical Perspectives and the Role of Rank Collapse",
        ("tokens exactly alike; one layer that maps tokens to themselves stands for the projections",),
        (
            Numbers(
                "the largest entry where tokens are alike",
                lambda c: 1e-14,
                vanished_gradient,
                cells(n_keys=(4, 32)),
                "at most",
            ),
            Numbers(
                "the largest entry where tokens nearly are, as smaller than at three times the spread",
                at_triple_spread,
                vanished_gradient,
                cells(n_keys=(32,), spread=(0.1, 0.03, 0.01, 0.003)),
                "at most",
            ),
        ),
    ),
    Sentence(
        "running-maximum-is-exact",
        "A softmax taken tile by tile with a running maximum gives the same output.",
        "Dao et al. 2022, FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
        ("up to rounding",),
        (
            Numbers(
                "the output",
                lambda c: mixed(c, tiled=False),
                lambda c: mixed(c, tiled=True),
                cells(spread=(1.0, 100.0), n_keys=(64, 512, 4096)),
            ),
        ),
    ),
    Sentence(
        "key-bias-matters",
        "A bias on the keys changes what a head attends to.",
        "common code: key projections with a bias",
        ("the same vector added to every key",),
        (
            Numbers(
                "the largest weight after a vector of some length is added to every key",
                lambda c: biased_weight(c, moved=False),
                lambda c: biased_weight(c, moved=True),
                cells(length=(1.0, 10.0, 100.0)),
                "other than",
            ),
        ),
        remark="It adds one number to every score of a row, which softmax removes; a bias on the queries does matter.",
    ),
)
