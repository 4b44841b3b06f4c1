"""How the gradient through softmax decays with d_k, for each quantity, statistic and scale: exponents and constants."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.predict.arguments import whole_numbers
from analysis.predict.asymptotics import normal_maximum
from analysis.predict.quadrature import gaussian_softmax

# E|g| and the median of log 2|g| against which a rare event is weighed, g standard normal: √(2/π), and
# E log 2|g| = (log 2 - γ)/2, which shifts the median of -√d_k·gap + log 2|g| to leading order.
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
LOG_ABSOLUTE = (math.log(2) - np.euler_gamma) / 2


@dataclass(frozen=True)
class GradientDecay:
    """
    A leading law in d_k: constant · d_k^exponent · exp(-rate·√d_k), as d_k → ∞ at fixed n_keys.

    Attributes
    ----------
    quantity : str
        "jacobian_trace", "jacobian_norm" (Frobenius), "score_gradient_norm" (‖J g‖), "query_gradient_norm"
        (‖scale·Kᵀ J g‖), with g ~ N(0, I).
    statistic : {"mean", "rms", "median"}
    scale : {"unscaled", "sqrt"}
    exponent, rate : float
    constant : float or None
        None where it has no closed form or exact integral (then only the exponent is stated).
    """

    quantity: str
    statistic: str
    scale: str
    exponent: float
    rate: float
    constant: float | None

    def leading(self, d_k: int) -> float | None:
        """Return the leading value at d_k, None where the constant is not known."""
        if self.constant is None:
            return None
        return self.constant * math.pow(d_k, self.exponent) * math.exp(-self.rate * math.sqrt(d_k))


def gradient_decay(n_keys: int) -> tuple[GradientDecay, ...]:
    """
    List the decay laws of the gradient through softmax for Gaussian query and keys.

    Parameters
    ----------
    n_keys : int
        At least 2, fixed while d_k → ∞.

    Returns
    -------
    tuple of GradientDecay
        Four quantities, three statistics, two scales.

    Raises
    ------
    ValueError
        For n_keys < 2.

    Notes
    -----
    Unscaled scores have σ = ‖q‖ ≈ √d_k. With probability of order d_k^(-1/2) the two largest scores are within O(1) of
    one another; otherwise J is of order exp(-√d_k·gap). Rare rows carry the mean and the root mean square, typical rows
    the median. With C the expected maximum of n_keys standard normals and g the median gap between the largest two:
    mean tr J ~ C d_k^(-1/2), rms ~ √(C/3) d_k^(-1/4), median ~ 2 exp(-g√d_k). The gradient with respect to q multiplies
    by ‖k₁ - k₂‖ ~ √(2 d_k), so that its mean tends to √(2/π) C, its rms grows like d_k^(1/4) and only its median
    vanishes. Scaled by 1/√d_k the scores tend to N(0, 1) and every one of these tends to a constant (exponent 0).

    Source: low-temperature expansion of the softmax of Gaussian scores; two-key approximation for the medians.
    """
    n = int(whole_numbers(n_keys, "n_keys")[()])
    c, _, _, gap = normal_maximum(n)
    with np.errstate(under="ignore"):  # the caller's may raise
        return (*_unscaled(c, gap), *_scaled(n))


def _unscaled(c: float, gap: float) -> list[GradientDecay]:
    rms = math.sqrt(c / 3)
    typical = math.exp(LOG_ABSOLUTE)
    laws = {  # (exponent, constant) of mean and rms, and of the median beside its exponential
        "jacobian_trace": ((-0.5, c), (-0.25, rms), (0.0, 2.0)),
        "jacobian_norm": ((-0.5, c), (-0.25, rms), (0.0, 2.0)),
        "score_gradient_norm": ((-0.5, MEAN_ABSOLUTE * c), (-0.25, rms), (0.0, typical)),
        "query_gradient_norm": ((0.0, MEAN_ABSOLUTE * c), (0.25, rms), (0.5, typical)),
    }
    return [
        GradientDecay(quantity, statistic, "unscaled", exponent, gap if statistic == "median" else 0.0, constant)
        for quantity, row in laws.items()
        for statistic, (exponent, constant) in zip(("mean", "rms", "median"), row, strict=True)
    ]


def _scaled(n_keys: int) -> list[GradientDecay]:
    limit = gaussian_softmax(1.0, np.array([float(n_keys)]))
    rms = math.sqrt(float(limit.jacobian_frobenius_squared[0]))
    constants: dict[tuple[str, str], float] = {
        ("jacobian_trace", "mean"): float(limit.jacobian_trace[0]),
        ("jacobian_norm", "rms"): rms,
        ("score_gradient_norm", "rms"): rms,
        ("query_gradient_norm", "rms"): rms,
    }
    return [
        GradientDecay(quantity, statistic, "sqrt", 0.0, 0.0, constants.get((quantity, statistic)))
        for quantity in ("jacobian_trace", "jacobian_norm", "score_gradient_norm", "query_gradient_norm")
        for statistic in ("mean", "rms", "median")
    ]
