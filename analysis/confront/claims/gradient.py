"""Claims about what softmax lets through backwards to the scores: the trace of its Jacobian."""

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
    ROW_LAWS,
    SHOWN,
    WITH_DENSITY,
    FloatArray,
    by_kurtosis,
    query_and_keys,
    weights,
)
from analysis.confront.claims.entropy import unscaled_replicates
from analysis.confront.relation import ToLeadingOrder
from analysis.predict.asymptotics import normal_maximum
from analysis.predict.exact import (
    expected_jacobian_trace,
)


def jacobian_trace(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return tr J of one row's softmax."""
    jacobian = attnsym.softmax_jacobian(weights(cell, rng, replicates))
    return np.asarray(np.trace(jacobian, axis1=1, axis2=2))


def trace_unscaled(cell: Cell) -> float:
    """Return C_n/√d_k."""
    return normal_maximum(cell.n_keys).mean / math.sqrt(cell.d_k)


def trace_by_variance(cell: Cell) -> float:
    """Return C_n/d_k."""
    return float(normal_maximum(cell.n_keys).mean / cell.d_k)


JACOBIAN_TRACE_UNSCALED = Claim(
    key="jacobian-trace-unscaled",
    statement="Unscaled, E tr J = C_n d_k^(-1/2) (1 + O(1/d_k)), C_n the expected maximum of n normals",
    meaning="In the mean, the gradient with respect to the scores falls with the square root of the head's width and "
    "no faster: a power law, since some rows keep a tie. A plot of means alone shows a mild effect where most rows "
    "are dead.",
    assumptions=DENSITY,
    source="derived here",
    derivation=None,
    predict=trace_unscaled,
    sample=jacobian_trace,
    estimator="mean",
    relation=ToLeadingOrder("d_k", order=1, constant=partial(by_kurtosis, 0.3, 0.6)),
    grid=[
        {"law": ("normal",), "scale": ("unscaled",), "d_k": (16, 64, 100), "n_keys": (4,)},
        {"law": WITH_DENSITY[1:], "scale": ("unscaled",), "d_k": (16, 64), "n_keys": (4,)},
    ],
    rival=trace_by_variance,
    mistake="a fall with the variance of the scores, 1/d_k, in the place of their size",
    replicates=unscaled_replicates,
)


def trace_at_unit_variance(cell: Cell) -> float:
    """Return the exact E tr J for iid standard normal scores."""
    return float(expected_jacobian_trace(cell.n_keys, sigma=1.0))


JACOBIAN_TRACE_SCALED = Claim(
    key="jacobian-trace-scaled",
    statement="Scaled by 1/√d_k, E tr J tends to its value for iid standard normal scores, up to O(1/d_k)",
    meaning="With the default scale softmax passes the same gradient at every width. What is left of d_k is the spread "
    "of the query's length, which fades as 1/d_k.",
    assumptions=FOURTH_MOMENTS,
    source="derived here",
    derivation=None,
    predict=trace_at_unit_variance,
    sample=jacobian_trace,
    estimator="mean",
    relation=ToLeadingOrder("d_k", order=1, constant=partial(by_kurtosis, 0.11, 0.08)),
    grid=[
        {"law": ("normal",), "scale": ("sqrt",), "d_k": (4, 16, 64), "n_keys": (4,)},
        {"law": ROW_LAWS[1:], "scale": ("sqrt",), "d_k": (16, 64), "n_keys": (4,)},
    ],
    rival=trace_unscaled,
    mistake="the unscaled value",
    replicates=42_000,
)


def median_trace_unscaled(cell: Cell) -> float:
    """Return 2 exp(-g_n √d_k), g_n the median gap between the two largest of n normals."""
    return 2 * math.exp(-normal_maximum(cell.n_keys).gap * math.sqrt(cell.d_k))


JACOBIAN_MEDIAN_UNSCALED = Claim(
    key="jacobian-median-unscaled",
    statement="Unscaled, the median of tr J is 2 exp(-g_n √d_k) (1 + O(d_k^(-1/2))), g_n the median gap between the "
    "two largest of n normals",
    meaning="The typical row is dead: at d_k = 512 half of all rows over ten keys pass less than 1/4000 of what they "
    "pass scaled. This is the vanishing gradient that people mean, and a mean over rows does not show it.",
    assumptions=DENSITY,
    source="derived here",
    derivation=None,
    predict=median_trace_unscaled,
    sample=jacobian_trace,
    estimator="median",
    relation=ToLeadingOrder("d_k", order=0.5, constant=2.5),
    grid=[
        {"law": ("normal",), "scale": ("unscaled",), "d_k": (64, 256), "n_keys": (2, 10)},
        {"law": ("normal",), "scale": ("unscaled",), "d_k": (1024,), "n_keys": (4,)},
        {"law": WITH_DENSITY[1:], "scale": ("unscaled",), "d_k": (64,), "n_keys": (4,)},
    ],
    rival=trace_unscaled,
    mistake="the mean in the place of the median",
    replicates=3_000,
)


def two_key_deficit(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return 1/4 - p(1 - p) for two keys at scale 1/(T√d_k)."""
    query, key = query_and_keys(cell, rng, replicates)
    scale = 1.0 / (cell.temperature * math.sqrt(cell.d_k))
    w = attnsym.attention_weights(query, key, scale=scale)[:, 0]
    return np.asarray(0.25 - w[:, 0] * w[:, 1])


def difference_variance(cell: Cell) -> float:
    """Return s²/16 with s² = 2/T², the variance of the difference of two scores."""
    return float(2.0 / cell.temperature**2 / 16.0)


def score_variance(cell: Cell) -> float:
    """Return the same with the variance of one score."""
    return float(1.0 / cell.temperature**2 / 16.0)


def two_key_replicates(cell: Cell) -> int:
    """Return what the tail asks for: a deficit is a square, skewed, and more so at high temperature."""
    return (
        60_000
        if cell.temperature == 2
        else {"normal": 125_000, "rademacher": 95_000, "uniform": 95_000}.get(cell.law, SHOWN)
    )


TWO_KEY_GRADIENT = Claim(
    key="two-key-gradient",
    statement="Two keys: E p(1 - p) = 1/4 - s²/16 + O(s⁴), s² the variance of the difference of the scores",
    meaning="A choice between two keys learns fastest at a tie, and loses gradient with the square of the difference. "
    "It is the difference that counts: at unit-variance scores it has variance 2, already past this expansion.",
    assumptions=FOURTH_MOMENTS,
    source="derived here",
    derivation="two-key-gradient",
    predict=difference_variance,
    sample=two_key_deficit,
    estimator="mean",
    relation=ToLeadingOrder("temperature", order=2, constant=partial(by_kurtosis, 1.2, 0.2)),
    grid={"law": ROW_LAWS, "d_k": (16,), "n_keys": (2,), "temperature": (2, 8)},
    rival=score_variance,
    mistake="the variance of one score in the place of that of a difference, half as large",
    replicates=two_key_replicates,
)

GRADIENT_CLAIMS = (JACOBIAN_TRACE_UNSCALED, JACOBIAN_TRACE_SCALED, JACOBIAN_MEDIAN_UNSCALED, TWO_KEY_GRADIENT)
