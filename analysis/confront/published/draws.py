"""Rows drawn through the core, as measurements beside the exact numbers of a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import FloatArray
from analysis.confront.published.numbers import Sampler


def normal_rows(
    statistic: str,
    sigma: Callable[[Cell], float],
    *,
    softcap: float | None = None,
    sink: Callable[[Cell], float] = lambda cell: 0.0,
) -> Sampler:
    """
    Return draws of a statistic of rows of iid normal scores.

    Parameters
    ----------
    statistic : str
        One of those of `statistic_of`, or "sink", the weight that a sink takes.
    sigma : callable ``(cell) -> float``
        The standard deviation of the scores.
    softcap : float, optional
    sink : callable ``(cell) -> float``
        The sink's logit.
    """

    def draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
        scores = sigma(cell) * rng.standard_normal((replicates, 1, cell.n_keys))
        if statistic != "sink" and softcap is None:
            return statistic_of(statistic, attnsym.softmax(scores)[:, 0])
        identity = np.eye(cell.n_keys)  # unit keys: kᵀq is the row as drawn
        logit = sink(cell) if statistic == "sink" else None
        weights = attnsym.attention_weights(scores, identity, scale=1.0, softcap=softcap, sink=logit)[:, 0]
        return np.asarray(1.0 - weights.sum(axis=1)) if statistic == "sink" else statistic_of(statistic, weights)

    return draws


def vector_rows(statistic: str, scale: Callable[[Cell], float | None], *, n_keys: int = 0) -> Sampler:
    """Return draws of a statistic of rows of Gaussian queries and keys, over the cell's n_keys or over `n_keys`."""

    def draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
        query = rng.standard_normal((replicates, 1, cell.d_k))
        key = rng.standard_normal((replicates, n_keys or cell.n_keys, cell.d_k))
        return statistic_of(statistic, attnsym.attention_weights(query, key, scale=scale(cell))[:, 0])

    return draws


def statistic_of(name: str, weights: FloatArray) -> FloatArray:
    """
    Return a statistic of each row of weights (replicates, n_keys).

    "entropy" is H, "fraction" H/log n, "dispersion" log n - H, "largest" max p, "squares" Σp², "spread" n Σp², "trace"
    1 - Σp², "frobenius" ‖J‖_F², "logarithm" the mean of log(n p).
    """
    length = weights.shape[1]
    squares = np.sum(weights**2, axis=1)
    if name in {"entropy", "fraction", "dispersion"}:
        entropy = np.asarray(attnsym.entropy(weights))
        return {"entropy": entropy, "fraction": entropy / math.log(length), "dispersion": math.log(length) - entropy}[
            name
        ]
    if name == "logarithm":
        return np.asarray(np.log(length * weights).mean(axis=1))
    if name == "frobenius":
        return np.asarray(squares - 2 * np.sum(weights**3, axis=1) + squares**2)
    return np.asarray(
        {"largest": weights.max(axis=1), "squares": squares, "spread": length * squares, "trace": 1.0 - squares}[name]
    )


def scores_squared(scale: Callable[[Cell], float | None]) -> Sampler:
    """Return squared scores of independent Gaussian vectors."""

    def draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
        query, key = rng.standard_normal((2, replicates, 1, cell.d_k))
        return np.asarray(attnsym.attention_scores(query, key, scale=scale(cell))[:, 0, 0] ** 2)

    return draws
