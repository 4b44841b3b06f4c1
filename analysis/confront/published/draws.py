"""Rows drawn through the core's softmax, as measurements beside the exact numbers of a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import FloatArray

Draws = Callable[[Cell, np.random.Generator, int], FloatArray]


def normal_rows(statistic: str, sigma: Callable[[Cell], float], *, softcap: float | None = None) -> Draws:
    """
    Return draws of a statistic of rows of iid normal scores.

    Parameters
    ----------
    statistic : {"entropy", "fraction", "largest", "squares", "sink"}
        H, H/log n, max p, Σp², or the weight that a sink of logit 0 takes.
    sigma : callable ``(cell) -> float``
        The standard deviation of the scores.
    softcap : float, optional
    """

    def draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
        scores = sigma(cell) * rng.standard_normal((replicates, 1, cell.n_keys))
        if statistic == "sink" or softcap is not None:
            identity = np.eye(cell.n_keys)  # unit keys: kᵀq is the row as drawn
            sink = 0.0 if statistic == "sink" else None
            weights = attnsym.attention_weights(scores, identity, scale=1.0, softcap=softcap, sink=sink)[:, 0]
        else:
            weights = attnsym.softmax(scores)[:, 0]
        return np.asarray(_statistic(statistic, weights))

    return draws


def _statistic(name: str, weights: FloatArray) -> FloatArray:
    if name == "sink":
        return np.asarray(1.0 - weights.sum(axis=1))
    if name == "largest":
        return np.asarray(weights.max(axis=1))
    if name == "squares":
        return np.asarray(np.sum(weights**2, axis=1))
    entropy = np.asarray(attnsym.entropy(weights))
    return np.asarray(entropy / math.log(weights.shape[1])) if name == "fraction" else entropy


def retrieved(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the weight on itself of a pattern that is asked for among n, at scale d_k^(-power)."""
    patterns = rng.standard_normal((replicates, cell.n_keys, cell.d_k))
    scale = float(cell.d_k) ** -cell.power
    return np.asarray(attnsym.attention_weights(patterns[:, :1], patterns, scale=scale)[:, 0, 0])
