"""Sentences about softmax itself: its gradient, its bounds, and what saturates it."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import VASWANI
from analysis.confront.claims.softmax import ENTROPY_LOWER_BOUND, JACOBIAN_SPECTRAL_NORM, SOFTMAX_SATURATION
from analysis.confront.published.draws import normal_rows, retrieved
from analysis.confront.published.ground import Claimed, Derived, Follows, Numbers, cells
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import (
    expected_jacobian_frobenius_squared,
    expected_jacobian_trace,
    expected_max_weight,
    expected_query_gradient_squared,
    expected_sink_weight,
)


def unscaled_trace(d_k: int) -> float:
    """Return E tr J over ten keys, unscaled."""
    return float(expected_jacobian_trace(10, d_k=d_k, scale="unscaled"))


def unscaled_query_gradient(d_k: int) -> float:
    """Return the root mean square of the gradient by the query over ten keys, unscaled."""
    return math.sqrt(float(expected_query_gradient_squared(10, d_k=d_k, scale="unscaled")))


def lone_entropy(cell: Cell) -> float:
    """Return the entropy of a row whose centred scores have the cell's norm, in one key or shared by half of them."""
    row = np.zeros(cell.n_keys)
    row[: 1 if cell.shape == "one key" else cell.n_keys // 2] = 1.0
    row -= row.mean()
    weights = attnsym.softmax(row * cell.norm / np.linalg.norm(row))
    return float(attnsym.entropy(weights))


def largest_bounded_weight(cell: Cell) -> float:
    """Return the largest weight of the sharpest row within a range: one key at the top, the others at the bottom."""
    row = np.zeros(cell.n_keys)
    row[0] = cell.range
    return float(attnsym.softmax(row)[0])


def smallest_bounded_weight(cell: Cell) -> float:
    """Return the smallest weight within a range: one key at the bottom, the others at the top."""
    row = np.full(cell.n_keys, float(cell.range))
    row[0] = 0.0
    return float(attnsym.softmax(row)[0])


def largest_slope(cell: Cell) -> float:
    """Return ‖J‖₂ at the row where it is largest: two keys tie and share all the weight."""
    weights = np.zeros(cell.n_keys)
    weights[:2] = 0.5
    return float(np.linalg.eigvalsh(attnsym.softmax_jacobian(weights))[-1])


def vanished_gradient(cell: Cell) -> float:
    """Return the largest entry of the gradients by query and key where all tokens are alike."""
    rng = np.random.default_rng(cell.n_keys)
    token = np.broadcast_to(rng.standard_normal(16), (cell.n_keys, 16))
    upstream = rng.standard_normal((cell.n_keys, 16))
    d_query, d_key, _ = attnsym.scaled_dot_product_attention_vjp(token, token, token, upstream)
    return float(max(np.abs(d_query).max(), np.abs(d_key).max()))


def tiled_difference(cell: Cell) -> float:
    """Return how far a softmax that sees one key at a time, rescaling by a running maximum, is from the whole one."""
    rng = np.random.default_rng(cell.n_keys)
    scores, values = rng.standard_normal(cell.n_keys) * cell.spread, rng.standard_normal(cell.n_keys)
    top, total, mixed = -math.inf, 0.0, 0.0
    for score, value in zip(scores, values, strict=True):
        shrunk = math.exp(top - max(top, score))
        top = max(top, score)
        total, mixed = total * shrunk + math.exp(score - top), mixed * shrunk + math.exp(score - top) * value
    return float(abs(mixed / total - attnsym.softmax(scores) @ values) / np.abs(values).max())


def key_bias_difference(cell: Cell) -> float:
    """Return the largest change of a weight when one vector is added to every key."""
    rng = np.random.default_rng(cell.d_k)
    query, key = rng.standard_normal((2, 8, cell.d_k))
    moved = attnsym.attention_weights(query, key + rng.standard_normal(cell.d_k))
    return float(np.abs(moved - attnsym.attention_weights(query, key)).max())


@cache
def retrieved_weight(cell: Cell) -> float:
    """Return E of a Gaussian pattern's weight on itself: others score N(0, (c‖x‖)²), itself c‖x‖², c = d_k^(-power)."""
    from scipy.stats import chi2

    scale, places = float(cell.d_k) ** -cell.power, (np.arange(24) + 0.5) / 24
    squares = chi2(cell.d_k).ppf(places)
    weights = [
        float(expected_sink_weight(cell.n_keys - 1, sigma=scale * math.sqrt(square), sink=scale * square))
        for square in squares
    ]
    return float(np.mean(weights))


_RANGES = cells(range=(2.0,), n_keys=(8, 64, 1024))

SOFTMAX_SENTENCES = (
    Sentence(
        "softmax-gradient",
        "The derivative of softmax is pᵢ(δᵢⱼ - pⱼ).",
        "Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs, with Relationships "
        "to Statistical Pattern Recognition",
        (),
        (Derived("softmax-jacobian"), Follows("D(p[i], s[j])", "p[i]*(delta(i, j) - p[j])", ())),
    ),
    Sentence(
        "large-d-kills-the-gradient",
        "For large d_k unscaled dot products push softmax into regions where its gradients are extremely small.",
        f"{VASWANI}; the sentence before it",
        ("which gradient, and which summary of it over rows",),
        (
            Numbers(
                "E tr J at four times the width, as at most .6 of that before",
                lambda c: 0.6 * unscaled_trace(c.d_k // 4),
                lambda c: unscaled_trace(c.d_k),
                cells(d_k=(64, 256, 1024)),
                "at most",
                regime="the gradient by the scores",
            ),
            Numbers(
                "the root mean square at four times the width, as no larger than before",
                lambda c: unscaled_query_gradient(c.d_k // 4),
                lambda c: unscaled_query_gradient(c.d_k),
                cells(d_k=(64, 256, 1024)),
                "at most",
                regime="the root mean square of the gradient by the query",
            ),
        ),
        depends_on="which gradient: that by the scores vanishes, the root mean square of that by the query grows",
        remark="A few rows near a tie carry large gradients by the query, most rows none: its median vanishes.",
    ),
    Sentence(
        "softmax-is-one-lipschitz",
        "Softmax is Lipschitz with constant λ, its inverse temperature.",
        "Gao and Pavel 2017, On the Properties of the Softmax Function with Application in Game Theory and "
        "Reinforcement Learning",
        ("nothing is left out; half of it would do",),
        (
            Numbers("the largest ‖J‖₂", lambda c: 1.0, largest_slope, cells(n_keys=(2, 4, 64)), "at most"),
            Claimed(JACOBIAN_SPECTRAL_NORM),
        ),
        remark="The constant λ/2 suffices, and is reached where two keys share all the weight.",
    ),
    Sentence(
        "logistic-slope-bounds-softmax",
        "The logistic slope 1/4 bounds how fast softmax can change.",
        "common telling",
        ("the two-key case taken for one variable",),
        (Numbers("the largest ‖J‖₂", lambda c: 0.25, largest_slope, cells(n_keys=(2, 4, 64)), "at most"),),
        remark="1/4 is the slope of one weight along one score; along the difference of two scores it is 1/2.",
    ),
    Sentence(
        "gap-saturates",
        "The error of retrieving the best pattern is exponentially small in its separation from the others.",
        "Ramsauer et al. 2020, Hopfield Networks is All You Need",
        ("one strict maximum",),
        (Claimed(SOFTMAX_SATURATION), Derived("softmax-saturation")),
    ),
    Sentence(
        "retrieval-capacity-is-exponential",
        "The number of random patterns that one update retrieves grows exponentially with their dimension.",
        "Ramsauer et al. 2020, Hopfield Networks is All You Need",
        ("the inverse temperature; the smallest model of it: a Gaussian pattern asks for itself among 2^(d_k/4)",),
        (
            Numbers(
                "the weight of the pattern that is asked for, at inverse temperature 1",
                lambda c: 0.5,
                retrieved_weight,
                tuple(Cell((("power", 0.0), ("d_k", d), ("n_keys", 2 ** (d // 4)))) for d in (16, 32, 48)),
                "at least",
                regime="inverse temperature 1",
                sample=retrieved,
                replicates=400,
            ),
            Numbers(
                "the weight of the pattern that is asked for, at inverse temperature 1/√d_k",
                lambda c: 0.5,
                retrieved_weight,
                tuple(Cell((("power", 0.5), ("d_k", d), ("n_keys", 2 ** (d // 4)))) for d in (32, 48, 64)),
                "at least",
                regime="inverse temperature 1/√d_k",
            ),
        ),
        depends_on="the inverse temperature: at 1/√d_k it is about e^(√d_k - 1/2)",
    ),
    Sentence(
        "entropy-bounded-by-spectral-norm",
        "The entropy of a row is at least a bound that falls with the norm of its scores.",
        "Zhai et al. 2023, Stabilizing Transformer Training by Preventing Attention Entropy Collapse, theorem 3.1",
        (),
        (Claimed(ENTROPY_LOWER_BOUND),),
    ),
    Sentence(
        "large-norm-means-collapse",
        "A large norm of the scores means that the entropy has collapsed.",
        "as Zhai et al. 2023 is often retold; they prove the bound in one direction",
        ("how the scores of that norm are arranged",),
        (
            Numbers(
                "the entropy at norm 60",
                lambda c: 0.05 * math.log(c.n_keys),
                lone_entropy,
                cells(n_keys=(16, 64), norm=(60.0,), shape=("one key",)),
                "at most",
                regime="one key stands apart",
            ),
            Numbers(
                "the entropy at norm 60",
                lambda c: 0.05 * math.log(c.n_keys),
                lone_entropy,
                cells(n_keys=(16, 64), norm=(60.0,), shape=("half",)),
                "at most",
                regime="half of the keys share the top",
            ),
        ),
        depends_on="how many keys share the large scores",
    ),
    Sentence(
        "bounded-scores-disperse",
        "While scores stay within a range, every weight is of order 1/n: softmax must disperse as rows grow.",
        "Veličković et al. 2024, softmax is not enough (for sharp out-of-distribution), arXiv:2410.01104",
        ("a range that does not grow with n",),
        (
            Numbers(
                "the largest weight at range 2",
                lambda c: math.exp(c.range) / (c.n_keys - 1 + math.exp(c.range)),
                largest_bounded_weight,
                _RANGES,
            ),
            Numbers(
                "n times the smallest weight at range 2",
                lambda c: math.exp(-c.range),
                lambda c: c.n_keys * smallest_bounded_weight(c),
                _RANGES,
                "at least",
            ),
        ),
    ),
    Sentence(
        "exact-zeros-need-infinite-scores",
        "Softmax cannot give a weight of exactly zero: a head that wants to ignore keys must make its scores grow.",
        "Bondarenko et al. 2023, Quantizable Transformers: Removing Outliers by Helping Attention Heads Do Nothing",
        ("arithmetic without underflow",),
        (
            Numbers(
                "the smallest weight at a range",
                lambda c: 1 / (1 + (c.n_keys - 1) * math.exp(c.range)),
                smallest_bounded_weight,
                cells(range=(2.0, 20.0), n_keys=(8, 64)),
            ),
        ),
    ),
    Sentence(
        "uniform-rows-pass-most",
        "A uniform row passes the largest gradient, and any spread of the scores only reduces it.",
        "common telling",
        ("how many keys there are",),
        (
            Numbers(
                "E‖J‖_F² at σ = 1, against the uniform row",
                lambda c: (c.n_keys - 1) / c.n_keys**2,
                lambda c: float(expected_jacobian_frobenius_squared(c.n_keys, sigma=1.0)),
                cells(n_keys=(2, 3)),
                "at most",
                regime="up to four keys",
            ),
            Numbers(
                "E‖J‖_F² at σ = 1, against the uniform row",
                lambda c: (c.n_keys - 1) / c.n_keys**2,
                lambda c: float(expected_jacobian_frobenius_squared(c.n_keys, sigma=1.0)),
                cells(n_keys=(8, 64, 1024)),
                "at most",
                regime="five keys and more",
            ),
        ),
        depends_on="the number of keys",
    ),
    Sentence(
        "initial-attention-is-uniform",
        "At initialisation with 1/√d_k every key has about the weight 1/n.",
        "common telling",
        ("scores of variance 1",),
        (
            Numbers(
                "the largest weight at σ = 1",
                lambda c: 1 / c.n_keys,
                lambda c: float(expected_max_weight(c.n_keys, sigma=1.0)),
                cells(n_keys=(8, 64, 1024)),
                within=0.5,
                sample=normal_rows("largest", lambda c: 1.0),
            ),
        ),
        remark="The mean weight is 1/n, the largest several times that: at 64 keys about eight times.",
    ),
    Sentence(
        "alike-tokens-stop-query-and-key",
        "Where all tokens have become alike the gradients by queries and keys vanish.",
        "Noci et al. 2022, Signal Propagation in Transformers: Theoretical Perspectives and the Role of Rank Collapse",
        ("tokens exactly alike",),
        (Numbers("the largest entry", lambda c: 1e-14, vanished_gradient, cells(n_keys=(4, 32)), "at most"),),
    ),
    Sentence(
        "running-maximum-is-exact",
        "A softmax taken tile by tile with a running maximum gives the same output.",
        "Dao et al. 2022, FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
        ("up to rounding",),
        (
            Numbers(
                "the difference, as a share",
                lambda c: 8 * c.n_keys * 2.3e-16,
                tiled_difference,
                cells(spread=(1.0, 100.0), n_keys=(64, 4096)),
                "at most",
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
                "the largest change of a weight", lambda c: 1e-3, key_bias_difference, cells(d_k=(16, 64)), "at least"
            ),
        ),
        remark="It adds one number to every score of a row, which softmax removes; a bias on the queries does matter.",
    ),
)
