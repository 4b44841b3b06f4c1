"""Claims about the length of a row: causal masks, long contexts, and scales that grow with the length."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims.draws import GAUSSIAN, FloatArray, scale_of, vectors, weights
from analysis.confront.claims.entropy import row_entropy
from analysis.confront.relation import Exactly, ToLeadingOrder
from analysis.predict.exact import expected_entropy, expected_max_weight


def causal_row_entropy(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the entropy of one row of a causal attention over n_keys positions."""
    query, key = (vectors(cell, rng, replicates, cell.n_keys) for _ in range(2))
    w = attnsym.attention_weights(query, key, is_causal=True)
    return np.asarray(attnsym.entropy(w[:, cell.row]))


def entropy_of_visible(cell: Cell) -> float:
    """Return the exact entropy over row + 1 keys."""
    return float(expected_entropy(cell.row + 1, d_k=cell.d_k))


def entropy_of_all(cell: Cell) -> float:
    """Return the exact entropy over all keys, as if the mask only zeroed the future after softmax."""
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k))


CAUSAL_ENTROPY = Claim(
    key="causal-row-entropy",
    statement="Under a causal mask row i (counted from 0) has the entropy of i + 1 keys; row 0 has none",
    meaning="Entropy of causal attention must be compared with log(i + 1) row by row; an average over rows against "
    "log n mistakes the mask for sharpness. The first token attends to itself with weight 1 whatever is trained.",
    assumptions=GAUSSIAN,
    source="derived here",
    derivation=None,
    predict=entropy_of_visible,
    sample=causal_row_entropy,
    estimator="mean",
    relation=Exactly(),
    grid={"d_k": (16,), "n_keys": (12,), "row": (0, 1, 5, 11)},
    rival=entropy_of_all,
    mistake="the entropy over all keys, as if the mask zeroed the future after softmax",
    replicates=34_000,
)


def entropy_fraction(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return H/log n."""
    return row_entropy(cell, rng, replicates) / math.log(cell.n_keys)


def whole(cell: Cell) -> float:
    """Return 1."""
    return 1.0


def constant_entropy_fraction(cell: Cell) -> float:
    """Return what an entropy that does not grow with n, fixed at its value for two keys, would leave of log n."""
    return float(expected_entropy(2, d_k=cell.d_k)) / math.log(cell.n_keys)


def log_length(cell: Cell) -> float:
    """Return log n."""
    return math.log(cell.n_keys)


def length_replicates(cell: Cell) -> int:
    """Return fewer where a row is long: its entropy varies little."""
    return 14_000 if cell.n_keys > 100 else 30_000


FIXED_SCALE_LENGTH = Claim(
    key="fixed-scale-length",
    statement="At scale 1/√d_k, E H/log n = 1 - O(1/log n)",
    meaning="A fixed scale lets attention dissolve as the context grows: every weight tends to 0. A model that is to "
    "look sharply at long contexts must learn larger scores, or scale them with the length.",
    assumptions=GAUSSIAN,
    source="Chiang and Cholak 2022, Overcoming a Theoretical Limitation of Self-Attention; rate derived here",
    derivation=None,
    predict=whole,
    sample=entropy_fraction,
    estimator="mean",
    relation=ToLeadingOrder(log_length, order=1, constant=0.55),
    grid={"scale": ("sqrt",), "d_k": (16,), "n_keys": (8, 64, 256)},
    rival=constant_entropy_fraction,
    mistake="an entropy that does not grow with the row",
    replicates=length_replicates,
)


def largest_weight(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the largest weight."""
    return np.asarray(weights(cell, rng, replicates).max(axis=1))


def exact_largest_weight(cell: Cell) -> float:
    """Return the exact expectation at the cell's scale."""
    return float(expected_max_weight(cell.n_keys, d_k=cell.d_k, scale=scale_of(cell)))


def exact_largest_weight_fixed(cell: Cell) -> float:
    """Return the exact expectation at scale 1/√d_k."""
    return float(expected_max_weight(cell.n_keys, d_k=cell.d_k))


def log_length_replicates(cell: Cell) -> int:
    """Return fewer where a row is long."""
    return 3_000 if cell.n_keys > 100 else 8_000


LOG_LENGTH_SCALE = Claim(
    key="log-length-scale",
    statement="At scale log(n)/√d_k the expected largest weight equals its quadrature: it falls with n to a least "
    "value, near n = 12 at d_k = 16, and then rises toward 1",
    meaning="Multiplying unit-variance scores by log n undoes the dissolution in long rows, and in the end overdoes "
    "it. Already a factor of √(2 log n) is the border between weights that spread and weights that concentrate.",
    assumptions=GAUSSIAN,
    source="Chiang and Cholak 2022, Overcoming a Theoretical Limitation of Self-Attention; number derived here",
    derivation=None,
    predict=exact_largest_weight,
    sample=largest_weight,
    estimator="mean",
    relation=Exactly(),
    grid={"scale": ("log(n_keys)/sqrt(d_k)",), "d_k": (16,), "n_keys": (2, 8, 12, 64, 512)},
    rival=exact_largest_weight_fixed,
    mistake="the value at scale 1/√d_k",
    replicates=log_length_replicates,
)

LENGTH_CLAIMS = (CAUSAL_ENTROPY, FIXED_SCALE_LENGTH, LOG_LENGTH_SCALE)
