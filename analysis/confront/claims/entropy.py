"""Claims about the entropy of attention and its largest weight, by temperature and by the width of the head."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims.draws import (
    DENSITY,
    FOURTH_MOMENTS,
    GAUSSIAN,
    ROW_LAWS,
    SHOWN,
    WITH_DENSITY,
    FloatArray,
    by_kurtosis,
    query_and_keys,
    weights,
)
from analysis.confront.relation import Exactly, ToLeadingOrder
from analysis.predict.asymptotics import normal_maximum
from analysis.predict.exact import expected_entropy, expected_max_weight
from analysis.vocabulary.scale import resolve_scale


def row_entropy(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the entropy of one query's weights."""
    return np.asarray(attnsym.entropy(weights(cell, rng, replicates)))


def deficit_at_temperature(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return log n - H at scale 1/(T√d_k)."""
    query, key = query_and_keys(cell, rng, replicates)
    scale = 1.0 / (cell.temperature * math.sqrt(cell.d_k))
    w = attnsym.attention_weights(query, key, scale=scale)
    return np.asarray(math.log(cell.n_keys) - attnsym.entropy(w)[:, 0])


def half_row_variance(cell: Cell) -> float:
    """Return σ²(n-1)/(2n), half the expected variance within a row, with σ = 1/T."""
    return float((cell.n_keys - 1) / (2 * cell.n_keys * cell.temperature**2))


def half_variance(cell: Cell) -> float:
    """Return σ²/2, with the row's own mean not removed."""
    return float(1 / (2 * cell.temperature**2))


def high_temperature_constant(cell: Cell) -> float:
    """Return 2.5/n: the next term is -(3/2)(E‖q‖⁴/d_k²)/n for Gaussian keys, and a little more for heavier tails."""
    return 2.5 / float(cell.n_keys)


def high_temperature_replicates(cell: Cell) -> int:
    """Return what the tail asks for; Laplace rows at high temperature are only shown."""
    if cell.temperature == 1:
        return 50_000
    return {"laplace": SHOWN, "normal": 58_000}.get(cell.law, 42_000)


ENTROPY_HIGH_TEMPERATURE = Claim(
    key="entropy-high-temperature",
    statement="For symmetric components E H = log n - E[v]/2 + O(T⁻⁴), v the variance of a row's scores, "
    "E v = (n-1)/(n T²); in a single row the next term is -μ₃/3, of order T⁻³",
    meaning="For scores below 1 the entropy tells nothing but their variance within the row. At initialisation "
    "attention is therefore close to uniform, and log n - H is a cheap gauge of the scale that softmax sees.",
    assumptions=(
        *FOURTH_MOMENTS,
        "scores divided by T√d_k",
        "symmetric laws: the third central moment of a row is 0 on average",
    ),
    source="derived here",
    derivation="entropy-high-temperature",
    predict=half_row_variance,
    sample=deficit_at_temperature,
    estimator="mean",
    relation=ToLeadingOrder("temperature", order=2, constant=high_temperature_constant),
    grid={"law": ROW_LAWS, "d_k": (16,), "n_keys": (4, 10), "temperature": (1, 4)},
    rival=half_variance,
    mistake="the variance of a score in the place of the variance within a row, which is less by 1/n",
    replicates=high_temperature_replicates,
)


def exact_entropy(cell: Cell) -> float:
    """Return the exact expectation for Gaussian vectors."""
    return float(expected_entropy(cell.n_keys, d_k=cell.d_k, scale=cell.scale))


def entropy_of_equal_lengths(cell: Cell) -> float:
    """Return the expectation with the query's length replaced by √d_k."""
    sigma = resolve_scale(cell.scale)(cell.d_k, cell.n_keys) * math.sqrt(cell.d_k)
    return float(expected_entropy(cell.n_keys, sigma=sigma))


ENTROPY_EXACT = Claim(
    key="entropy-exact",
    statement="E H equals its quadrature over ‖q‖ ~ χ(d_k), scaled and unscaled",
    meaning="This is the entropy that an untrained head should show at its d_k and number of keys; a measured head "
    "can be held against it. The spread of the query's length matters in narrow heads and is part of the number.",
    assumptions=GAUSSIAN,
    source="derived here",
    derivation=None,
    predict=exact_entropy,
    sample=row_entropy,
    estimator="mean",
    relation=Exactly(),
    grid=[
        {"scale": ("sqrt", "unscaled"), "d_k": (4, 64), "n_keys": (2, 10)},
        {"scale": ("sqrt",), "d_k": (16,), "n_keys": (100,)},
    ],
    rival=entropy_of_equal_lengths,
    mistake="every query taken to have length √d_k",
    replicates=34_000,
)


def entropy_fall(cell: Cell) -> float:
    """Return (π²/6) C_n/√d_k."""
    return math.pi**2 / 6 * normal_maximum(cell.n_keys).mean / math.sqrt(cell.d_k)


def entropy_fall_by_variance(cell: Cell) -> float:
    """Return the same with d_k for √d_k, a fall with the variance of the scores instead of their size."""
    return float(math.pi**2 / 6 * normal_maximum(cell.n_keys).mean / cell.d_k)


def unscaled_replicates(cell: Cell) -> int:
    """Return more for a wider head: the rows that still count become rare."""
    return {16: 8_000, 64: 34_000, 100: 46_000}[cell.d_k]


ENTROPY_FALL = Claim(
    key="entropy-fall-unscaled",
    statement="Unscaled, E H = (π²/6) C_n d_k^(-1/2) (1 + O(d_k^(-1/2))), C_n the expected maximum of n normals",
    meaning="Without the division a wide head starts as a nearly hard choice of one key. The fall is a power law, not "
    "an exponential: some rows keep a tie, and they carry the mean.",
    assumptions=DENSITY,
    source="derived here",
    derivation=None,
    predict=entropy_fall,
    sample=row_entropy,
    estimator="mean",
    relation=ToLeadingOrder("d_k", order=0.5, constant=partial(by_kurtosis, 0.45, 0.1)),
    grid=[
        {"law": ("normal",), "scale": ("unscaled",), "d_k": (16, 64, 100), "n_keys": (4,)},
        {"law": WITH_DENSITY[1:], "scale": ("unscaled",), "d_k": (16, 64), "n_keys": (4,)},
    ],
    rival=entropy_fall_by_variance,
    mistake="a fall with the variance of the scores, 1/d_k, in the place of their size",
    replicates=unscaled_replicates,
)


def slowly_approached_entropy(cell: Cell) -> float:
    """Return the Gaussian value less 5 %/√d_k: at d_k = 4 a difference as large as the claim allows there."""
    return exact_entropy(cell) * (1 - 0.05 / math.sqrt(cell.d_k))


ENTROPY_OTHER_LAWS = Claim(
    key="entropy-other-laws",
    statement="For components of other laws E H differs from the Gaussian value by O(1/d_k)",
    meaning="The Gaussian prediction serves for any initialisation with the same variance, from d_k of about 16 on. "
    "Only narrow heads remember the law of their components.",
    assumptions=FOURTH_MOMENTS,
    source="derived here",
    derivation=None,
    predict=exact_entropy,
    sample=row_entropy,
    estimator="mean",
    relation=ToLeadingOrder("d_k", order=1, constant=0.1),
    grid=[
        {"law": ROW_LAWS[1:], "scale": ("sqrt",), "d_k": (4, 16), "n_keys": (10,)},
        {"law": ("rademacher", "laplace"), "scale": ("sqrt",), "d_k": (64,), "n_keys": (10,)},
    ],
    rival=slowly_approached_entropy,
    mistake="a difference that fades as d_k^(-1/2), as in a central limit theorem for skewed terms",
    replicates=60_000,
)


def rest_of_weight(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return 1 - the largest weight."""
    return np.asarray(1.0 - weights(cell, rng, replicates).max(axis=1))


def rest_unscaled(cell: Cell) -> float:
    """Return log(2) C_n/√d_k."""
    return math.log(2) * normal_maximum(cell.n_keys).mean / math.sqrt(cell.d_k)


def rest_scaled(cell: Cell) -> float:
    """Return the value with the scale, which does not fall with d_k."""
    return 1.0 - float(expected_max_weight(cell.n_keys, d_k=cell.d_k))


LARGEST_WEIGHT = Claim(
    key="largest-weight-unscaled",
    statement="Unscaled, 1 - E max p = log(2) C_n d_k^(-1/2) (1 + O(d_k^(-1/2))): the largest weight tends to 1",
    meaning="Unscaled softmax turns into a choice of the best key as d_k grows, and stays there at initialisation, "
    "before anything is learned. With 1/√d_k the largest weight is the same at every width.",
    assumptions=DENSITY,
    source="derived here",
    derivation=None,
    predict=rest_unscaled,
    sample=rest_of_weight,
    estimator="mean",
    relation=ToLeadingOrder("d_k", order=0.5, constant=partial(by_kurtosis, 0.08, 0.15)),
    grid=[
        {"law": ("normal",), "scale": ("unscaled",), "d_k": (16, 64, 100), "n_keys": (4,)},
        {"law": WITH_DENSITY[1:], "scale": ("unscaled",), "d_k": (16, 64), "n_keys": (4,)},
    ],
    rival=rest_scaled,
    mistake="the value with the scale, which does not fall with d_k",
    replicates=unscaled_replicates,
)


ENTROPY_CLAIMS = (
    ENTROPY_HIGH_TEMPERATURE,
    ENTROPY_EXACT,
    ENTROPY_FALL,
    ENTROPY_OTHER_LAWS,
    LARGEST_WEIGHT,
)
