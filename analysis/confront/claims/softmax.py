"""Claims about softmax itself: its Jacobian, and how little entropy scores of a given spread can leave."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims.draws import FloatArray, query_and_keys, weights
from analysis.confront.relation_draws import AtMost, Identity

_ONE_ROW = ("weights of one row, positive, summing to 1",)


def worst(values: FloatArray, target: float) -> FloatArray:
    """Return, for each replicate, the value farthest from `target` over all other axes."""
    flat = values.reshape(len(values), -1)
    farthest = np.argmax(np.abs(flat - target), axis=1)
    return np.asarray(np.take_along_axis(flat, farthest[:, None], axis=1)[:, 0])


def jacobian_entries(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the named property of the Jacobian, from products with unit or random vectors at the core's weights."""
    w = weights(cell, rng, replicates)
    n = cell.n_keys
    columns = attnsym.softmax_vjp(w[:, None, :], np.eye(n))
    if cell.of == "off-diagonal":
        ratio = columns / -(w[:, :, None] * w[:, None, :])
        ratio[:, np.arange(n), np.arange(n)] = 1.0
        return worst(ratio, 1.0)
    if cell.of == "row sum":
        return worst(columns.sum(axis=2) / (w * (1 - w)), 0.0)
    upstream = rng.standard_normal((replicates, n))
    upstream -= np.sum(w * upstream, axis=1, keepdims=True)  # or x with nearly equal entries would lose its variance
    product = attnsym.softmax_vjp(w, upstream)
    if cell.of == "matrix":
        return worst((attnsym.softmax_jacobian(w) @ upstream[:, :, None])[:, :, 0] - product, 0.0)
    centred = upstream - np.sum(w * upstream, axis=1, keepdims=True)
    return np.asarray(np.sum(upstream * product, axis=1) / np.sum(w * centred**2, axis=1))


def jacobian_property(cell: Cell) -> float:
    """Return 1 for the ratios that must be 1, 0 for what must vanish."""
    return 1.0 if cell.of in ("off-diagonal", "quadratic form") else 0.0


def jacobian_subject(cell: Cell) -> str:
    """Return the named property, as derivations write it; "matrix" needs the symmetry of J, since vjp is Jᵀx."""
    return {
        "off-diagonal": "D(p[i], s[j]) / (p[i]*(delta(i, j) - p[j]))",
        "row sum": "Sum(D(p[i], s[j]), j)",
        "quadratic form": "Sum(x[i]*D(p[i], s[j])*x[j], i, j) / WeightedVar(x[i], i)",
        "matrix": "D(p[i], s[j]) - D(p[j], s[i])",
    }[cell.of]


def elementwise_property(cell: Cell) -> float:
    """Return what J = diag(p(1 - p)) gives, which treats softmax as a function of each score by itself."""
    return {"off-diagonal": 0.0, "row sum": 1.0}.get(cell.of, jacobian_property(cell))


SOFTMAX_JACOBIAN = Claim(
    key="softmax-jacobian",
    statement="∂pᵢ/∂sⱼ = pᵢ(δᵢⱼ - pⱼ): off the diagonal -pᵢpⱼ, row sums 0, xᵀJx = Var_p(x)",
    meaning="Raising one score lowers all other weights, so the gradient of a row sums to 0 and a shift of all scores "
    "changes nothing. A backward pass that keeps only p(1 - p), as for a sigmoid, is wrong wherever more than one key "
    "matters.",
    assumptions=_ONE_ROW,
    source="Bridle 1990; derived here",
    derivation="softmax-jacobian",
    subject=jacobian_subject,
    predict=jacobian_property,
    sample=jacobian_entries,
    estimator=None,
    relation=Identity(multiple=64.0),
    grid={"of": ("off-diagonal", "row sum", "quadratic form", "matrix"), "d_k": (16,), "n_keys": (2, 8)},
    rival=elementwise_property,
    mistake="softmax taken for a function of each score by itself, J = diag(p(1 - p))",
    replicates=10_000,
)


def frobenius_ratio(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the sum of the squared entries of J over the formula in power sums of the weights."""
    query, key = query_and_keys(cell, rng, replicates)
    w = attnsym.attention_weights(query, key, score="cosine")[:, 0]  # scores in [-1, 1]: the formula does not cancel
    second, third = np.sum(w**2, axis=1), np.sum(w**3, axis=1)
    entries = np.sum(attnsym.softmax_jacobian(w) ** 2, axis=(1, 2))
    return np.asarray(entries / (second - 2 * third + second**2))


def always_one(cell: Cell) -> float:
    """Return 1."""
    return 1.0


def diagonal_share(cell: Cell) -> float:
    """Return what the diagonal alone holds: for two keys half, for more no constant share."""
    return 0.5 if cell.n_keys == 2 else 1.0


SOFTMAX_JACOBIAN_NORM = Claim(
    key="softmax-jacobian-norm",
    statement="‖J‖_F² = Σp² - 2Σp³ + (Σp²)²",
    meaning="The size of the gradient that a row passes is known from two power sums of its weights, without building "
    "a matrix. It vanishes for one-hot weights, is about 1/√n for uniform ones and largest at a tie of two keys.",
    assumptions=_ONE_ROW,
    source="derived here",
    derivation="softmax-jacobian-norm",
    subject="Sum(D(p[i], s[j])**2, i, j) / (Sum(p[i]**2, i) - 2*Sum(p[i]**3, i) + Sum(p[i]**2, i)**2)",
    predict=always_one,
    sample=frobenius_ratio,
    estimator=None,
    relation=Identity(multiple=64.0),
    grid={"d_k": (16,), "n_keys": (2, 8)},
    rival=diagonal_share,
    mistake="the diagonal of J alone, half of the whole for two keys",
    replicates=10_000,
)


def saturation_ratio(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return (1 - max p)/((n - 1) exp(-gap)) of rows with a strict gap; in every fourth all other keys tie."""
    query, key = query_and_keys(cell, rng, replicates)
    key[::4, 1:] = key[::4, 1:2]
    key *= cell.stretch
    scores = attnsym.attention_scores(query, key)[:, 0]
    ordered = np.sort(scores, axis=1)
    gap = ordered[:, -1] - ordered[:, -2]
    w = np.sort(attnsym.attention_weights(query, key)[:, 0], axis=1)
    ratio = np.sum(w[:, :-1], axis=1) / ((cell.n_keys - 1) * np.exp(-gap))  # 1 - max p, summed without cancelling
    return np.asarray(np.where(gap < 500.0, ratio, 0.0))  # beyond, both sides underflow


def one_competitor(cell: Cell) -> float:
    """Return 1/(n - 1), the bound if only the second best key counted."""
    return 1.0 / float(cell.n_keys - 1)


SOFTMAX_SATURATION = Claim(
    key="softmax-saturation",
    statement="1 - max p ≤ (n - 1) exp(-gap), gap the lead of the largest score",
    meaning="It is the gap that saturates a row, not the size of its scores: a lead of log n + 5 leaves less than 1 % "
    "to all other keys together. A scale that grows without bound makes every row without a tie one-hot, "
    "with gradient 0.",
    assumptions=("a strict gap between the largest and the second largest score",),
    source="derived here",
    derivation="softmax-saturation",
    subject="(1 - p[i]) / ((n_keys - 1)*epsilon)",
    predict=always_one,
    sample=saturation_ratio,
    estimator=None,
    relation=AtMost(multiple=64.0),
    grid={"d_k": (16,), "n_keys": (4, 8), "stretch": (1, 4)},
    rival=one_competitor,
    mistake="only the second best key counted",
    replicates=10_000,
)


def spectral_norm(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the largest eigenvalue of J; in every fourth replicate two long equal keys share all the weight."""
    query, key = query_and_keys(cell, rng, replicates)
    key[::4, :2] = 400.0 * np.sign(np.sum(query[::4] * key[::4, :1], axis=2, keepdims=True)) * key[::4, :1]
    w = attnsym.attention_weights(query, key)[:, 0]
    return np.asarray(np.linalg.eigvalsh(attnsym.softmax_jacobian(w))[:, -1])


def half(cell: Cell) -> float:
    """Return 1/2."""
    return 0.5


def quarter(cell: Cell) -> float:
    """Return 1/4, the largest slope of the logistic function."""
    return 0.25


JACOBIAN_SPECTRAL_NORM = Claim(
    key="jacobian-spectral-norm",
    statement="‖J‖₂ ≤ 1/2, reached where two keys share all the weight",
    meaning="No scale makes softmax amplify: a change of the scores changes the weights by at most half its length. "
    "The worst case is a tie between two keys, not the uniform row, where the norm is only 1/n.",
    assumptions=_ONE_ROW,
    source="Nair 2025; Gao and Pavel 2017 for a Lipschitz constant of 1",
    derivation="softmax-jacobian-spectral-norm",
    subject="Sum(x[i]*D(p[i], s[j])*x[j], i, j)/Sum(x[i]**2, i)",
    predict=half,
    sample=spectral_norm,
    estimator=None,
    relation=AtMost(attained=True),
    grid={"d_k": (16,), "n_keys": (2, 4, 8)},
    rival=quarter,
    mistake="1/4, the largest slope of the logistic function",
    replicates=8_000,
)


def deficit_at_spread(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return log n - H of rows of a given norm of their centred scores; in every fourth one key stands apart."""
    scores = rng.standard_normal((replicates, 1, cell.n_keys))
    scores[::4] = np.eye(cell.n_keys)[0]
    scores -= scores.mean(axis=2, keepdims=True)
    scores *= cell.spread / np.linalg.norm(scores, axis=2, keepdims=True)
    w = attnsym.attention_weights(scores, np.eye(cell.n_keys), scale=1.0)  # keys are unit vectors: kᵀq is as drawn
    return np.asarray(math.log(cell.n_keys) - attnsym.entropy(w)[:, 0])


def largest_deficit(n_keys: int, spread: float) -> float:
    """Return log n minus the lower bound on the entropy at this norm of the scores."""
    beta = math.exp(-spread * math.sqrt(n_keys / (n_keys - 1)))
    others = (n_keys - 1) * beta
    bound = math.log1p(others) + spread * math.sqrt(n_keys * (n_keys - 1)) * beta / (1 + others)
    return math.log(n_keys) - bound


def deficit_by_norm(cell: Cell) -> float:
    """Return the largest deficit at the cell's norm."""
    return largest_deficit(cell.n_keys, cell.spread)


def deficit_by_standard_deviation(cell: Cell) -> float:
    """Return the largest deficit with the standard deviation in the norm's place."""
    return largest_deficit(cell.n_keys, cell.spread / math.sqrt(cell.n_keys))


ENTROPY_LOWER_BOUND = Claim(
    key="entropy-lower-bound",
    statement="H ≥ log(1 + (n-1)β) + σ√(n(n-1)) β/(1 + (n-1)β), β = exp(-σ√(n/(n-1))), σ the norm of a row's centred "
    "scores; reached where one key stands apart",
    meaning="Attention cannot collapse while the scores are bounded: this is the lowest entropy that scores of norm σ "
    "allow. A cap on the spectral norm of W_Q W_Kᵀ is therefore a cap on collapse.",
    assumptions=("any row of scores",),
    source="Zhai et al. 2023, Stabilizing Transformer Training by Preventing Attention Entropy Collapse, theorem 3.1",
    derivation=None,
    predict=deficit_by_norm,
    sample=deficit_at_spread,
    estimator=None,
    relation=AtMost(attained=True),
    grid={"n_keys": (2, 4, 16), "spread": (0.5, 2.0, 6.0)},
    rival=deficit_by_standard_deviation,
    mistake="the standard deviation of a row's scores in the place of their norm",
    replicates=10_000,
)

SOFTMAX_CLAIMS = (
    SOFTMAX_JACOBIAN,
    SOFTMAX_JACOBIAN_NORM,
    JACOBIAN_SPECTRAL_NORM,
    SOFTMAX_SATURATION,
    ENTROPY_LOWER_BOUND,
)
