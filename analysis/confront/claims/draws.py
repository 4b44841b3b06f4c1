"""How the claims draw queries and keys and pass them through the attention functions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import attnsym
from analysis.confront.cell import Cell
from analysis.vocabulary.laws import resolve_law
from analysis.vocabulary.scale import resolve_scale

FloatArray = NDArray[np.float64]

# Replicates are what the tail of each cell's estimator needs to be calibrated, and some more; separation needs fewer.
# Where the tail is out of reach a cell is shown and not judged, and this many are enough.
SHOWN = 20_000

LAWS = ("normal", "rademacher", "uniform", "laplace", "student_t10")
# Where a replicate is a whole row: Student's law lies between the normal one and Laplace's, and is slow to draw.
ROW_LAWS = ("normal", "rademacher", "uniform", "laplace")
WITH_DENSITY = ("normal", "uniform", "laplace")
STANDARD = ("zero_mean(q)", "zero_mean(k)", "unit_variance(q)", "unit_variance(k)")
WITHIN = ("independent_components(q)", "independent_components(k)")
INDEPENDENT = ("independent(q, k)", *WITHIN, *STANDARD)
ROW = ("independent(q, k, k2)", *WITHIN, *STANDARD)  # k2 stands for any other key of the row
FOURTH_MOMENTS = (*ROW, "fourth_moment(q)", "fourth_moment(k)")
GAUSSIAN = (*ROW, "gaussian(q)", "gaussian(k)")
NO_TIES = "components with a density: scores of sign vectors tie"
DENSITY = (*FOURTH_MOMENTS, NO_TIES)
VASWANI = "Vaswani et al. 2017, Attention Is All You Need, section 3.2.1, footnote 4"


def vectors(cell: Cell, rng: np.random.Generator, replicates: int, count: int) -> FloatArray:
    """Return (replicates, count, d_k) independent components of the cell's law (normal if it names none)."""
    drawn: FloatArray = resolve_law(cell.get("law", "normal")).sample(rng, (replicates, count, cell.d_k))
    return drawn


def query_and_keys(cell: Cell, rng: np.random.Generator, replicates: int) -> tuple[FloatArray, FloatArray]:
    """Return one query, (replicates, 1, d_k), and n_keys keys, (replicates, n_keys, d_k), for each replicate."""
    return vectors(cell, rng, replicates, 1), vectors(cell, rng, replicates, cell.get("n_keys", 1))


def scale_of(cell: Cell) -> float | None:
    """Return the cell's scale for the core: None, the core's own default, where the cell names none or "sqrt"."""
    named = cell.get("scale", "sqrt")
    return None if named == "sqrt" else resolve_scale(named)(cell.d_k, cell.get("n_keys", 1))


def weights(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the attention weights of one query over its keys, (replicates, n_keys)."""
    query, key = query_and_keys(cell, rng, replicates)
    drawn: FloatArray = attnsym.attention_weights(query, key, scale=scale_of(cell))[:, 0]
    return drawn


def by_kurtosis(base: float, slope: float, cell: Cell) -> float:
    """Return base + slope·|m₄ - 3|: the constant of a rate, larger for laws that are farther from the normal."""
    return base + slope * abs(moment(cell, 4) - 3.0)


def moment(cell: Cell, order: int) -> float:
    """Return the central moment of the cell's law."""
    return resolve_law(cell.get("law", "normal")).central_moment(order)
