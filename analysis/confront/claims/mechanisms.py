"""Claims about what lies between scores and weights: a sink, ALiBi, a soft-cap, a norm, a scale a query, no softmax."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims.draws import GAUSSIAN, FloatArray, query_and_keys, scale_of, vectors
from analysis.confront.relation import Exactly
from analysis.predict.exact import expected_entropy, expected_key_weight, expected_sink_weight
from analysis.predict.row_sums import expected_row_sum


def weight_of_sink(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return what the weights of the keys leave of 1."""
    query, key = query_and_keys(cell, rng, replicates)
    return np.asarray(1.0 - attnsym.attention_weights(query, key, sink=cell.sink)[:, 0].sum(axis=-1))


def exact_weight_of_sink(cell: Cell) -> float:
    """Return the exact expectation."""
    return float(expected_sink_weight(cell.n_keys, d_k=cell.d_k, sink=cell.sink))


def share_among_equal_scores(cell: Cell) -> float:
    """Return e^b/(e^b + n)."""
    return float(1.0 / (1.0 + cell.n_keys * math.exp(-cell.sink)))


SINK_WEIGHT = Claim(
    key="sink-weight",
    statement="Beside a sink of logit b, the keys lose E[e^b/(e^b + Σ exp s)] of a row, its quadrature",
    meaning="A sink takes its share at initialisation already, and less than its logit suggests, since random scores "
    "make the sum of the others larger. The share falls like 1/n_keys: in long rows only a learned logit keeps it.",
    assumptions=GAUSSIAN,
    source="Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks; number derived here",
    derivation=None,
    predict=exact_weight_of_sink,
    sample=weight_of_sink,
    estimator="mean",
    relation=Exactly(),
    grid={"d_k": (16,), "n_keys": (4, 32), "sink": (0.0, 2.0)},
    rival=share_among_equal_scores,
    mistake="the share that a sink has among scores of 0",
    replicates=20_000,
)


def weight_at_own_place(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the weight of the key at the query's own position, the first, in one head of eight with ALiBi."""
    query, key = query_and_keys(cell, rng, replicates)
    bias = attnsym.alibi_bias(8, 1, cell.n_keys)[cell.head - 1]
    return np.asarray(attnsym.attention_weights(query, key, attn_mask=bias)[:, 0, 0])


def alibi(cell: Cell) -> FloatArray:
    """Return -2^(-h)·j, the biases of head h of eight."""
    return np.asarray(-(2.0**-cell.head) * np.arange(float(cell.n_keys)))


def exact_weight_at_own_place(cell: Cell) -> float:
    """Return the exact expectation."""
    return float(expected_key_weight(cell.n_keys, d_k=cell.d_k, bias=alibi(cell)))


def weight_by_bias_alone(cell: Cell) -> float:
    """Return 1/Σ exp(bias)."""
    return float(1.0 / np.exp(alibi(cell)).sum())


ALIBI_WEIGHT = Claim(
    key="alibi-nearest-key",
    statement="With ALiBi's bias -2^(-h) per position the nearest key has the mean weight of its quadrature",
    meaning="How far a head sees is set before training by its slope and the variance of its scores together: random "
    "scores flatten the profile that the bias alone would give. Halving the scale sharpens the locality of every head.",
    assumptions=GAUSSIAN,
    source="Press, Smith and Lewis 2022, Train Short, Test Long, section 3; number derived here",
    derivation=None,
    predict=exact_weight_at_own_place,
    sample=weight_at_own_place,
    estimator="mean",
    relation=Exactly(),
    grid={"d_k": (16,), "n_keys": (8, 32), "head": (1, 2)},
    rival=weight_by_bias_alone,
    mistake="the weight that the bias alone gives, as if scores of mean 0 left it as it is",
    replicates=20_000,
)


def entropy_of_capped(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the entropy of a row of soft-capped scores."""
    query, key = query_and_keys(cell, rng, replicates)
    weights = attnsym.attention_weights(query, key, scale=scale_of(cell), softcap=cell.softcap)
    return np.asarray(attnsym.entropy(weights)[:, 0])


def exact_entropy_of_capped(cell: Cell) -> float:
    """Return the exact expectation."""
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k, scale=cell.scale, softcap=cell.softcap))


def entropy_without_cap(cell: Cell) -> float:
    """Return the exact expectation of the scores as they are."""
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k, scale=cell.scale))


SOFTCAP_ENTROPY = Claim(
    key="softcap-entropy",
    statement="Capped as c·tanh(s/c), Gaussian scores have the mean entropy of its quadrature",
    meaning="A cap well above the scores changes nothing at initialisation; one of their size is part of the scale. A "
    "kernel that drops the cap shows in the entropy of large scores, not in that of small ones.",
    assumptions=GAUSSIAN,
    source="Gemma Team 2024, Gemma 2, section 2; number derived here",
    derivation=None,
    predict=exact_entropy_of_capped,
    sample=entropy_of_capped,
    estimator="mean",
    relation=Exactly(),
    grid=[
        {"scale": ("sqrt",), "d_k": (16,), "n_keys": (16,), "softcap": (1.0, 3.0)},
        {"scale": ("unscaled",), "d_k": (16,), "n_keys": (16,), "softcap": (5.0,)},
    ],
    rival=entropy_without_cap,
    mistake="the entropy of the scores without their cap, as where a kernel drops it",
    replicates=25_000,
)


def entropy_of_normed(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the entropy of a row of RMS-normalised query and keys at the core's own scale."""
    query, key = (attnsym.qk_norm(x, kind="rms") for x in query_and_keys(cell, rng, replicates))
    return np.asarray(attnsym.entropy(attnsym.attention_weights(query, key))[:, 0])


def exact_entropy_of_normed(cell: Cell) -> float:
    """Return the exact expectation over cosines of temperature √d_k."""
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k, scale="sqrt(d_k)", score="cosine"))


def entropy_without_norm(cell: Cell) -> float:
    """Return the exact expectation of the dot products."""
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k))


QK_NORM_ENTROPY = Claim(
    key="qk-norm-entropy",
    statement="RMS-normalised Gaussian q and k at scale 1/√d_k have the entropy of cosines of temperature √d_k",
    meaning="QK-norm keeps the variance of a score at 1 and takes away the spread of the lengths, and with it the rare "
    "rows that look at one key. Wide heads hardly change at initialisation; what changes is what training can do.",
    assumptions=GAUSSIAN,
    source="Henry et al. 2020, Query-Key Normalization for Transformers; number derived here",
    derivation=None,
    predict=exact_entropy_of_normed,
    sample=entropy_of_normed,
    estimator="mean",
    relation=Exactly(),
    grid={"d_k": (3, 8), "n_keys": (4, 16)},
    rival=entropy_without_norm,
    mistake="the entropy of vectors as they are, as if a norm that keeps the variance kept the law",
    replicates=30_000,
)


def entropy_at_own_scale(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the entropy of one causal row, where query i has the scale log(i + 1)/√d_k."""
    query, key = (vectors(cell, rng, replicates, cell.n_keys) for _ in range(2))
    scales = np.log(np.arange(1.0, cell.n_keys + 1)) / math.sqrt(cell.d_k)
    weights = attnsym.attention_weights(query, key, is_causal=True, scale=scales)
    return np.asarray(attnsym.entropy(weights[:, cell.row]))


def exact_entropy_at_own_scale(cell: Cell) -> float:
    """Return the exact expectation over the row + 1 keys that the query sees, at its own scale."""
    return float(expected_entropy(cell.row + 1, d_k=cell.d_k, scale="log(n_keys)/sqrt(d_k)"))


def entropy_at_common_scale(cell: Cell) -> float:
    """Return the exact expectation at log(n_keys)/√d_k for all queries."""
    return float(expected_entropy(cell.row + 1, d_k=cell.d_k, scale=math.log(cell.n_keys) / math.sqrt(cell.d_k)))


PER_QUERY_SCALE = Claim(
    key="per-query-scale-entropy",
    statement="Where query i has the scale log(i + 1)/√d_k, its causal row has the entropy of i + 1 keys at that scale",
    meaning="A temperature by position is decided by what the query sees, not by the length of the batch. A row has "
    "then the same entropy in a short and in a long context, and with a cache as without.",
    assumptions=GAUSSIAN,
    source="Chiang and Cholak 2022, Overcoming a Theoretical Limitation of Self-Attention; number derived here",
    derivation=None,
    predict=exact_entropy_at_own_scale,
    sample=entropy_at_own_scale,
    estimator="mean",
    relation=Exactly(),
    grid={"d_k": (8,), "n_keys": (12,), "row": (3, 7, 11)},
    rival=entropy_at_common_scale,
    mistake="one scale for all queries, of the logarithm of the whole length",
    replicates=20_000,
)


def row_sum(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the sum of a row of weights of the cell's normalizer."""
    query, key = query_and_keys(cell, rng, replicates)
    return np.asarray(attnsym.attention_weights(query, key, normalizer=cell.normalizer)[:, 0].sum(axis=-1))


def exact_row_sum(cell: Cell) -> float:
    """Return the exact expectation."""
    return float(expected_row_sum(cell.n_keys, normalizer=cell.normalizer, d_k=cell.d_k))


def one(cell: Cell) -> float:
    """Return 1, the sum of a row of softmax."""
    return 1.0


SIGMOID_ROW_SUM = Claim(
    key="sigmoid-row-sum",
    statement="Σ sigmoid(s - log n) over a row of n unit-variance scores has the mean n E sigmoid(s - log n): near √e "
    "in long rows",
    meaning="The bias -log n keeps the sum of sigmoid weights of order 1, not at 1: unit-variance scores make it "
    "e^(1/2) in long rows. With unscaled scores it grows like e^(d_k/2) until the weights saturate.",
    assumptions=GAUSSIAN,
    source="Ramapuram et al. 2025, Theory, Analysis, and Best Practices for Sigmoid Self-Attention; "
    "number derived here",
    derivation=None,
    predict=exact_row_sum,
    sample=row_sum,
    estimator="mean",
    relation=Exactly(),
    grid={"normalizer": ("sigmoid",), "d_k": (16,), "n_keys": (4, 64)},
    rival=one,
    mistake="a sum of 1, as of softmax",
    replicates=20_000,
)


def relu_sum_of_equal_lengths(cell: Cell) -> float:
    """Return 1/√(2π), the mean of a standard normal's positive part."""
    return 1.0 / math.sqrt(2.0 * math.pi)


RELU_ROW_SUM = Claim(
    key="relu-row-sum",
    statement="Σ max(s, 0)/n has the mean E‖q‖/√(2π d_k), whatever n",
    meaning="ReLU weights divided by n keep their sum at every length, at about .4 of softmax's: an output that much "
    "smaller, which the next norm must undo. Long queries attend more in all, where softmax only sharpens.",
    assumptions=GAUSSIAN,
    source="Wortsman et al. 2023, Replacing softmax with ReLU in Vision Transformers; number derived here",
    derivation=None,
    predict=exact_row_sum,
    sample=row_sum,
    estimator="mean",
    relation=Exactly(),
    grid={"normalizer": ("relu",), "d_k": (4,), "n_keys": (4, 32)},
    rival=relu_sum_of_equal_lengths,
    mistake="every query taken to have length √d_k",
    replicates=28_000,
)


MECHANISM_CLAIMS = (
    SINK_WEIGHT,
    ALIBI_WEIGHT,
    SOFTCAP_ENTROPY,
    QK_NORM_ENTROPY,
    PER_QUERY_SCALE,
    SIGMOID_ROW_SUM,
    RELU_ROW_SUM,
)
