"""The mean of the largest score of a row, of Gaussian scores or cosines, soft-capped or not."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from analysis.predict.mechanism.query import query_lengths

STEP = 0.01  # of a trapezoid over the largest of n normals, in deviations
REACH = 9.0
COSINES = 20_001


@np.errstate(all="ignore")  # the caller's may raise; a cap far from the scores leaves them, or takes all
def largest_score(n_keys: int, d_k: int, scale: float, *, is_cosine: bool, softcap: float | None = None) -> float:
    """
    Return E max over n_keys scores.

    Parameters
    ----------
    n_keys, d_k : int
    scale : float
        At least 0: of the dot product of standard Gaussian vectors, or the temperature of cosines.
    is_cosine : bool
    softcap : float, optional

    Returns
    -------
    float
        Relative error below 1e-6.

    Notes
    -----
    E g(max) = ∫ g(σx) d(Φ(x)ⁿ), averaged over σ = scale·‖q‖; of cosines g(τ) - ∫ F(c)ⁿ dg(τc), F their distribution
    function, a regularised incomplete beta function. g caps.

    Source: the distribution of a maximum of independent variables.
    """
    cap = math.inf if softcap is None else softcap

    def capped(s: np.ndarray) -> np.ndarray:
        return s if math.isinf(cap) else np.asarray(cap * np.tanh(s / cap))

    if is_cosine:
        if d_k == 1:
            return float(capped(np.array(scale))) * (1 - 2.0 ** (1 - n_keys))
        c = -np.cos(np.linspace(0.0, math.pi, COSINES))  # dense where the last cosines lie
        below = special.betainc((d_k - 1) / 2, (d_k - 1) / 2, (1 + c) / 2) ** n_keys
        value = capped(scale * c)
        return float(value[-1] - np.sum(np.diff(value) * (below[1:] + below[:-1]) / 2))
    x = np.arange(-REACH, REACH + STEP, STEP)
    mass = np.diff(special.ndtr(x) ** n_keys)
    middle = (x[1:] + x[:-1]) / 2
    r, weight = query_lengths(d_k, scale, n_keys, is_odd=True) if scale else (np.zeros(1), np.ones(1))
    return float(weight @ (capped(scale * r[:, None] * middle) @ mass))
