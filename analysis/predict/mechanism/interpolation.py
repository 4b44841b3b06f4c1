"""The columns of many keys that differ by a shift of the score: read off one fine table."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from analysis.predict.mechanism.columns import columns
from analysis.predict.mechanism.grid import Grid
from analysis.predict.mechanism.key_law import Array, KeyLaw

# Four nodes of the table to a step, and a polynomial through 16 of them: at rounding for functions that the step
# integrates to rounding.
FINER = 4
STENCIL = 16


def shifted_columns(law: KeyLaw, where: Grid, shifts: Array, names: frozenset[str], log_n: float) -> dict[str, Array]:
    """
    Tabulate a law at u + shift for many shifts.

    Parameters
    ----------
    law : KeyLaw
    where : Grid
        Uniform.
    shifts : ndarray, shape (k,)
    names, log_n
        As for `columns`.

    Returns
    -------
    dict
        Name to array of shape (k, n).
    """
    fine = where.step / FINER
    start = float(where.u[0] + shifts.min()) - STENCIL / 2 * fine
    count = math.ceil((float(where.u[-1] + shifts.max()) - start) / fine) + STENCIL
    table = columns(law, start + fine * np.arange(float(count)), names, log_n)
    stacked = np.stack([table[name] for name in table])
    windows = sliding_window_view(stacked, STENCIL, axis=1)
    places = (where.u[0] + shifts - start) / fine
    first = np.floor(places).astype(int) - STENCIL // 2 + 1
    weights = lagrange(places - first, STENCIL)
    reach = FINER * (where.u.size - 1) + 1
    result = np.empty((len(table), shifts.size, where.u.size))
    for j, (begin, weight) in enumerate(zip(first.tolist(), weights, strict=True)):
        result[:, j] = windows[:, begin : begin + reach : FINER] @ weight
    return dict(zip(table, result, strict=True))


def lagrange(at: Array, count: int) -> Array:
    """Return the weights of the nodes 0 ... count - 1 in the value at each point, by the barycentric formula."""
    nodes = np.arange(count)
    signs = np.array([(-1.0) ** k * math.comb(count - 1, k) for k in nodes])
    distance = at[:, None] - nodes
    hit = np.abs(distance) < 1e-13
    ratio = signs / np.where(hit, 1.0, distance)
    weights = ratio / ratio.sum(axis=1, keepdims=True)
    return np.where(hit.any(axis=1, keepdims=True), hit.astype(np.float64), weights)
