"""The entropy that Gaussian scores of a head's variance would have, from tables that a run fills once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from analysis.predict.exact import expected_entropy

SIGMAS = np.geomspace(1e-2, 1e3, 65)


def key_nodes(n_keys: int) -> tuple[int, ...]:
    """Return the numbers of keys between which entropy is interpolated: 2, 3, 4, 6, 8, 12, … below n_keys, and it."""
    octaves = range(1, max(2, n_keys.bit_length() + 1))
    between = {2**i for i in octaves} | {3 * 2 ** (i - 1) for i in octaves}
    return (*sorted(node for node in between if node < max(n_keys, 3)), max(n_keys, 3))


def predicted_ratio(counts: Sequence[float], nodes: Sequence[int], variance: float) -> float:
    """
    Return the mean over rows of E[entropy]/log m for m iid N(0, variance) scores.

    Parameters
    ----------
    counts : rows at each node; a row between two nodes counts for both in parts.
    nodes : as of `key_nodes`.
    variance : mean over rows of the unbiased variance within the row.

    Notes
    -----
    E[entropy]/log m is taken linear in log m between nodes, and from a cubic spline in log σ with 65 exact knots:
    within 0.001 of quadrature. Below σ = 0.01 it is 1 (to 3e-5), beyond σ = 1000 it is 0 (to 2e-3). NaN without rows.
    """
    rows = sum(counts)
    if not rows or not math.isfinite(variance) or variance < 0:
        return math.nan
    x = 0.5 * math.log(variance) if variance > 0 else -math.inf
    if x <= math.log(SIGMAS[0]) or x >= math.log(SIGMAS[-1]):
        return 1.0 if x < 0 else 0.0
    used = [(count, node) for count, node in zip(counts, nodes, strict=True) if count]
    return sum(count * float(_curve(node)(x)) for count, node in used) / rows


@cache
def _curve(node: int) -> Any:
    from scipy.interpolate import CubicSpline

    return CubicSpline(np.log(SIGMAS), np.asarray(expected_entropy(node, sigma=SIGMAS)) / math.log(node))
