"""Rows that no softmax normalises: the sum of sigmoid or ReLU weights, its mean and its variance."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from analysis.predict import arguments
from analysis.predict.average import chi_rule
from analysis.predict.mechanism.key_law import Array
from analysis.predict.mechanism.second_route import panels
from analysis.predict.routes import ROUTES, Values
from analysis.predict.second_route import tanh_sinh_lengths
from analysis.vocabulary.numbers import number, shown
from analysis.vocabulary.scale import ScaleLike

Normalizer = Literal["sigmoid", "relu"]

# A trapezoid in the score: the sigmoid's poles lie at ±iπ, so that this step leaves e^(-2π²/0.4) < 1e-21.
STEP = 0.4
NORMAL_STEP = 0.45
REACH = 9.5
# A wider score is seen by the sigmoid as a step whose width does not matter: moments of the logistic law.
WIDE = 3e4


def expected_row_sum(
    n_keys: ArrayLike,
    *,
    normalizer: Normalizer = "sigmoid",
    normalizer_bias: float | None = None,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ScaleLike | ArrayLike = None,
    method: str = "quadrature",
) -> Values:
    """
    Return the mean sum of a row of sigmoid or ReLU weights, whose softmax sum would be 1.

    Parameters
    ----------
    n_keys, sigma, d_k, scale, method
        As for `expected_logsumexp`.
    normalizer : {"sigmoid", "relu"}
        Weights sigmoid(s + normalizer_bias), or max(s + normalizer_bias, 0)/n_keys.
    normalizer_bias : float, optional
        None is -log n_keys for the sigmoid and 0 for ReLU.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        For another normalizer, a bias that is not finite, and as `expected_logsumexp`.

    Notes
    -----
    n E sigmoid(s + b) by one trapezoid, near e^(σ²/2) at b = -log n until the weights saturate; for ReLU by the
    closed form σ (φ(a) + a Φ(a)) with a = b/σ: σ/√(2π) at b = 0. Relative error about 1e-14. Gaussian scores.

    Source: linearity of the expectation.
    """
    return _row_sum("mean", n_keys, normalizer, normalizer_bias, (sigma, d_k, scale), method)


def row_sum_variance(
    n_keys: ArrayLike,
    *,
    normalizer: Normalizer = "sigmoid",
    normalizer_bias: float | None = None,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ScaleLike | ArrayLike = None,
    method: str = "quadrature",
) -> Values:
    """
    Return the variance of the sum of a row of sigmoid or ReLU weights; softmax has 0.

    Parameters
    ----------
    n_keys, normalizer, normalizer_bias, sigma, d_k, scale, method
        As for `expected_row_sum`.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        As `expected_row_sum`.

    Notes
    -----
    n Var sigmoid(s + b), or Var max(s + b, 0)/n, given the query; over queries of random length the variance of the
    mean is added to the mean of the variance. Gaussian scores.

    Source: independence of the keys given the query.
    """
    return _row_sum("variance", n_keys, normalizer, normalizer_bias, (sigma, d_k, scale), method)


def _row_sum(moment: str, n_keys: Any, normalizer: Any, bias: Any, scores: tuple[Any, Any, Any], method: str) -> Values:
    if normalizer not in ("sigmoid", "relu"):
        raise ValueError(f"normalizer must be sigmoid or relu (a row of softmax has the sum 1): got {normalizer!r}")
    if bias is not None and abs(number("normalizer_bias", bias)) >= 1e12:
        raise ValueError(f"normalizer_bias must be a number of size below 1e12: got {shown(bias)}")
    if method not in ROUTES:
        raise ValueError(f"method must be one of {', '.join(ROUTES)}: got {method!r}")
    moments = _panels if method == "direct" else _moments

    def each(sigma: float, n: int) -> tuple[float, float]:
        usual = -math.log(n) if normalizer == "sigmoid" else 0.0
        mean, variance = moments(normalizer, usual if bias is None else float(bias), sigma)
        return (mean, variance / n) if normalizer == "relu" else (n * mean, n * variance)

    def by_sigma(sigma: float, keys: tuple[int, ...]) -> list[float]:
        return [each(sigma, n)[moment == "variance"] for n in keys]

    def by_dimension(d_k: int, scale: float, keys: tuple[int, ...]) -> list[float]:
        r, weight = tanh_sinh_lengths(d_k, 1) if method == "direct" else chi_rule(d_k, scale)
        found = np.array([[each(scale * x, n) for x in r.tolist()] for n in keys])
        means = found[:, :, 0] @ weight
        if moment == "mean":
            return [float(x) for x in means]
        spread = (found[:, :, 0] - means[:, None]) ** 2 @ weight
        return [float(x) for x in found[:, :, 1] @ weight + spread]

    sigma, d_k, scale = scores
    with np.errstate(all="ignore"):
        return arguments.evaluate(n_keys, sigma, d_k, scale, by_sigma, by_dimension)


def _moments(normalizer: str, bias: float, sigma: float) -> tuple[float, float]:
    """Return mean and variance of one weight (times n_keys for ReLU), s ~ N(0, sigma²)."""
    if normalizer == "relu":
        if sigma == 0:
            return max(bias, 0.0), 0.0
        a = bias / sigma
        density, below = math.exp(-(a**2) / 2) / math.sqrt(2 * math.pi), float(special.ndtr(a))
        mean = density + a * below
        return sigma * mean, sigma**2 * max(0.0, (1 + a**2) * below + a * density - mean**2)
    if sigma == 0:
        return float(special.expit(bias)), 0.0
    if sigma > WIDE:  # E f over a logistic law of the edge: ∫ Φ'(x) ... to second order in 1/σ
        edge = bias / sigma
        density = math.exp(-(edge**2) / 2) / (sigma * math.sqrt(2 * math.pi))
        mean = float(special.ndtr(edge)) - edge / sigma * density * math.pi**2 / 6
        return mean, mean * (1 - mean) - density
    step = min(STEP / sigma, NORMAL_STEP)
    # The weight e^s of low scores moves the integrand by up to σ, twice for its square.
    z = step * np.arange(-math.ceil(REACH / step), math.ceil((REACH + min(2 * sigma, 60 / sigma)) / step) + 1.0)
    return _about(normalizer, bias, sigma, z, np.full(z.size, step))


def _panels(normalizer: str, bias: float, sigma: float) -> tuple[float, float]:
    """Return what `_moments` does from Gauss-Legendre panels, cut where ReLU has its edge."""
    if sigma == 0:
        return _moments(normalizer, bias, sigma)
    high = REACH + min(2 * sigma, 60 / sigma)
    edge = min(max(-bias / sigma, -REACH), high)
    parts = [panels(a, b, min(1.0, 1.5 / sigma)) for a, b in ((-REACH, edge), (edge, high)) if b > a]
    z, width = np.concatenate(parts, axis=1)
    return _about(normalizer, bias, sigma, z, width)


def _about(normalizer: str, bias: float, sigma: float, z: Array, width: Array) -> tuple[float, float]:
    weight = width * np.exp(-(z**2) / 2)
    weight /= weight.sum()
    s = sigma * z + bias
    value = special.expit(s) if normalizer == "sigmoid" else np.maximum(s, 0.0)
    mean = float(weight @ value)
    return mean, float(weight @ (value - mean) ** 2)
