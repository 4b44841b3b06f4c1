"""
Claims about the gradient that reaches the query.

The usual telling is that without 1/√d_k "the gradient vanishes". That is too simple: it depends on which gradient and
on which statistic of it. With respect to the scores the mean falls as d_k^(-1/2) and the median exponentially in √d_k.
With respect to the query, which is what trains, the mean does not vanish and the root mean square even grows, while
the median vanishes: rare rows carry huge gradients and most rows none.
"""

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
    WITH_DENSITY,
    FloatArray,
    by_kurtosis,
    query_and_keys,
    scale_of,
)
from analysis.confront.relation import Exactly, ToLeadingOrder
from analysis.confront.relation_draws import Identity
from analysis.predict.asymptotics import normal_maximum
from analysis.predict.exact import expected_jacobian_frobenius_squared, expected_query_gradient_squared

_G = "upstream gradient g ~ N(0, I) independent of them"
# E log|Z| for standard normal Z: what the size of the upstream gradient adds to the median of a logarithm.
_MEAN_LOG_NORMAL = -(np.euler_gamma + math.log(2)) / 2


def gradient_against_covariance(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the length of the core's ∂(g·p)/∂q along scale·Cov_p(g, K), plus what of it lies across, per length."""
    query, key = query_and_keys(cell, rng, replicates)
    upstream = rng.standard_normal((replicates, cell.n_keys, 1))
    found, _, _ = attnsym.scaled_dot_product_attention_vjp(query, key, upstream, np.ones((replicates, 1, 1)))
    w = attnsym.attention_weights(query, key)[:, 0, :, None]
    centred = upstream - np.sum(w * upstream, axis=1, keepdims=True)
    covariance = np.sum(w * centred * key, axis=1) / math.sqrt(cell.d_k)
    square = np.sum(covariance**2, axis=1)
    along = np.sum(found[:, 0] * covariance, axis=1) / square
    across = np.linalg.norm(found[:, 0] - along[:, None] * covariance, axis=1) / np.sqrt(square)
    return np.asarray(along + across)


def whole(cell: Cell) -> float:
    """Return 1."""
    return 1.0


def forgotten_scale(cell: Cell) -> float:
    """Return √d_k, what a backward pass without the scale gives."""
    return math.sqrt(cell.d_k)


ATTENTION_GRADIENT = Claim(
    key="attention-gradient",
    statement="∂(g·p)/∂q = scale·Cov_p(g, K)",
    meaning="A query is moved toward the keys whose values help, as far as they stand out from the row's own mean. The "
    "scale enters twice: in the weights and as a factor of the gradient, and a custom backward pass must have both.",
    assumptions=("any query, keys and values",),
    source="derived here",
    derivation="attention-gradient",
    subject="D(Sum(p[i]*V[i, a], i), q[r]) / (scale*WeightedCov(V[i, a], K[i, r], i))",
    predict=whole,
    sample=gradient_against_covariance,
    estimator=None,
    relation=Identity(multiple=512.0),
    grid={"d_k": (4, 64), "n_keys": (10,)},
    rival=forgotten_scale,
    mistake="a backward pass that forgets the scale",
    replicates=5_000,
)


def query_gradient_norm(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return ‖∂(g·p)/∂q‖, the core's backward pass with g as one-dimensional values."""
    query, key = query_and_keys(cell, rng, replicates)
    upstream = rng.standard_normal((replicates, cell.n_keys, 1))
    gradient, _, _ = attnsym.scaled_dot_product_attention_vjp(
        query, key, upstream, np.ones((replicates, 1, 1)), scale=scale_of(cell)
    )
    return np.asarray(np.linalg.norm(gradient[:, 0], axis=1))


def mean_query_gradient(cell: Cell) -> float:
    """Return √(2/π) C_n, which does not depend on d_k."""
    return math.sqrt(2 / math.pi) * normal_maximum(cell.n_keys).mean


def vanishing_query_gradient(cell: Cell) -> float:
    """Return √(2/π) C_n/√d_k, the usual telling: the gradient falls as the Jacobian does."""
    return mean_query_gradient(cell) / math.sqrt(cell.d_k)


def mean_gradient_replicates(cell: Cell) -> int:
    """Return more for the wider head, whose rows that still learn are rarer."""
    return 100_000 if cell.d_k == 64 else 50_000


QUERY_GRADIENT_MEAN = Claim(
    key="query-gradient-mean",
    statement="Unscaled, E‖∂(g·p)/∂q‖ = √(2/π) C_n (1 + O(d_k^(-1/2))): the mean does not vanish",
    meaning="The usual telling, that without 1/√d_k the gradient vanishes, is too simple: with respect to the query "
    "its mean stays of order one, its root mean square grows and only its median vanishes, so a few rows carry huge "
    "gradients and most carry none. Training then sees rare, large updates rather than none, and a log of mean "
    "gradient norms will not warn you.",
    assumptions=(*DENSITY, _G),
    source="derived here",
    derivation=None,
    predict=mean_query_gradient,
    sample=query_gradient_norm,
    estimator="mean",
    relation=ToLeadingOrder("d_k", order=0.5, constant=0.85),
    grid=[
        {"law": ("normal",), "scale": ("unscaled",), "d_k": (16, 64), "n_keys": (4,)},
        {"law": WITH_DENSITY[1:], "scale": ("unscaled",), "d_k": (16,), "n_keys": (4,)},
    ],
    rival=vanishing_query_gradient,
    mistake="the gradient by the query falls as the Jacobian does",
    replicates=mean_gradient_replicates,
)


def exact_query_gradient_rms(cell: Cell) -> float:
    """Return the exact root mean square."""
    return math.sqrt(float(expected_query_gradient_squared(cell.n_keys, d_k=cell.d_k, scale=cell.scale)))


def growing_query_gradient(cell: Cell) -> float:
    """Return √(C_n/3) d_k^(1/4)."""
    return float(math.sqrt(normal_maximum(cell.n_keys).mean / 3) * cell.d_k**0.25)


def rms_replicates(cell: Cell) -> int:
    """Return what the tail of a mean square asks for: a few rows carry it."""
    return {8: 300_000, 24: 400_000}[cell.d_k]


QUERY_GRADIENT_RMS = Claim(
    key="query-gradient-rms",
    statement="Unscaled, the root mean square of ‖∂(g·p)/∂q‖ = √(C_n/3) d_k^(1/4) (1 + O(d_k^(-1/2))): it grows",
    meaning="Optimisers that divide by a root mean square, such as Adam, see an unscaled head as one with large "
    "gradients. Gradient clipping then acts on the rare rows that still learn.",
    assumptions=(*GAUSSIAN, _G),
    source="derived here",
    derivation=None,
    predict=growing_query_gradient,
    sample=query_gradient_norm,
    estimator="rms",
    relation=ToLeadingOrder("d_k", order=0.5, constant=0.42),
    grid={"scale": ("unscaled",), "d_k": (8, 24), "n_keys": (4,)},
    rival=vanishing_query_gradient,
    mistake="the root mean square falls as the Jacobian does",
    replicates=rms_replicates,
)


def exact_replicates(cell: Cell) -> int:
    """Return what the tail of a mean square asks for."""
    return {4: 270_000, 8: 370_000, 32: 110_000}[cell.d_k]


QUERY_GRADIENT_EXACT = Claim(
    key="query-gradient-exact",
    statement="E‖∂(g·p)/∂q‖² equals its quadrature over ‖q‖ ~ χ(d_k), scaled and unscaled",
    meaning="The gradient that reaches a query at initialisation is a computable number for every d_k, number of keys "
    "and scale. A backward pass that is off by a factor cannot hide behind noise.",
    assumptions=(*GAUSSIAN, _G),
    source="derived here",
    derivation=None,
    predict=exact_query_gradient_rms,
    sample=query_gradient_norm,
    estimator="rms",
    relation=Exactly(),
    grid=[
        {"scale": ("sqrt",), "d_k": (4,), "n_keys": (10,)},
        {"scale": ("sqrt",), "d_k": (32,), "n_keys": (4,)},
        {"scale": ("unscaled",), "d_k": (8,), "n_keys": (4,)},
    ],
    rival=growing_query_gradient,
    mistake="the leading order √(C_n/3) d_k^(1/4) in the place of the quadrature",
    replicates=exact_replicates,
)


def median_query_gradient(cell: Cell) -> float:
    """Return 2√d_k exp(E log|Z| - g_n √d_k)."""
    return 2 * math.sqrt(cell.d_k) * math.exp(_MEAN_LOG_NORMAL - normal_maximum(cell.n_keys).gap * math.sqrt(cell.d_k))


QUERY_GRADIENT_MEDIAN = Claim(
    key="query-gradient-median",
    statement="Unscaled, the median of ‖∂(g·p)/∂q‖ is 2√d_k exp(E log|Z| - g_n √d_k) (1 + O(d_k^(-1/2))): it vanishes",
    meaning="Most queries receive no gradient at all from an unscaled wide head, although the mean over queries looks "
    "healthy. Report a median or the share of dead rows beside the mean.",
    assumptions=(*DENSITY, _G),
    source="derived here",
    derivation=None,
    predict=median_query_gradient,
    sample=query_gradient_norm,
    estimator="median",
    relation=ToLeadingOrder("d_k", order=0.5, constant=2.5),
    grid=[
        {"law": ("normal",), "scale": ("unscaled",), "d_k": (64, 256), "n_keys": (4, 10)},
        {"law": WITH_DENSITY[1:], "scale": ("unscaled",), "d_k": (64,), "n_keys": (4,)},
    ],
    rival=mean_query_gradient,
    mistake="the mean in the place of the median",
    replicates=3_000,
)


def flat_query_gradient(cell: Cell) -> float:
    """Return √E‖J‖_F² for iid standard normal scores."""
    return math.sqrt(float(expected_jacobian_frobenius_squared(cell.n_keys, sigma=1.0)))


def scaled_replicates(cell: Cell) -> int:
    """Return what the tail of a mean square asks for."""
    return 140_000 if cell.d_k == 12 or cell.law == "laplace" else 95_000


QUERY_GRADIENT_SCALED = Claim(
    key="query-gradient-scaled",
    statement="Scaled by 1/√d_k, the root mean square of ‖∂(g·p)/∂q‖ tends to √E‖J‖_F² at unit variance, "
    "up to O(1/d_k)",
    meaning="With the default scale a query's gradient has the same size at every width, and no row is special. This "
    "is what one learning rate for heads of every width relies on.",
    assumptions=(*FOURTH_MOMENTS, _G),
    source="derived here",
    derivation=None,
    predict=flat_query_gradient,
    sample=query_gradient_norm,
    estimator="rms",
    relation=ToLeadingOrder("d_k", order=1, constant=partial(by_kurtosis, 0.25, 0.05)),
    grid=[
        {"law": ("normal",), "scale": ("sqrt",), "d_k": (12, 96), "n_keys": (4,)},
        {"law": ("rademacher", "laplace"), "scale": ("sqrt",), "d_k": (32,), "n_keys": (4,)},
    ],
    rival=growing_query_gradient,
    mistake="the unscaled value, which grows",
    replicates=scaled_replicates,
)

QUERY_GRADIENT_CLAIMS = (
    ATTENTION_GRADIENT,
    QUERY_GRADIENT_MEAN,
    QUERY_GRADIENT_RMS,
    QUERY_GRADIENT_MEDIAN,
    QUERY_GRADIENT_EXACT,
    QUERY_GRADIENT_SCALED,
)
