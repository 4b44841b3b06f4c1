"""What scores are made of: the scale of every head and row, normalised vectors, rotary embedding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.scanning import scan
from analysis.audit.functions.session import COARSE, Session, Sizes

TARGET = 3.0
FLAT = 0.02
LONG = 64.0


@dataclass(frozen=True)
class Readings:
    """
    The scale of each head and row at some sizes.

    Attributes
    ----------
    by_row : ndarray, (heads, n_queries)
        Score per unit of q·k at the key that is nearest in angle; NaN where a row sees one key only.
    spread : float
        By how much it changes with the place of the key, relative to its size: under rotary embedding
        by more than rounding.
    product : float
        The q·k with which it was read.
    """

    by_row: Array
    spread: float
    product: float
    matrix: Array

    @property
    def value(self) -> float:
        """The mean over heads and rows."""
        return float(np.nanmean(self.by_row))


def relative_error(s: Session, score: float = TARGET) -> float:
    """Bound the relative error of a score read from a ratio of weights: its own rounding, and that of two weights."""
    noise = max(s.caller.precision, s.facts.get("noise", 0.0) / 16)
    return s.times(4) / 2 * noise * (1 + 4 / abs(score)) if score else math.inf


def read_scores(s: Session, sizes: Sizes, guess: float) -> Readings | None:
    """Read the scale at some sizes with vectors so long that scores are near `TARGET`; None where none is finite."""
    norm = 2.0 ** round(math.log2(math.sqrt(TARGET / guess))) if guess > 0 else 1.0
    return _as_readings(uncapped(s, scan(s, norm, norm, sizes)), norm * norm)


def uncapped(s: Session, scores: Array) -> Array:
    """Return scores as they were before a soft-cap, if there is one."""
    cap = s.facts.get("softcap")
    return scores if cap is None else np.asarray(cap * np.arctanh(scores / cap))


def _as_readings(matrix: Array, product: float) -> Readings | None:
    if not np.isfinite(matrix).any():
        return None
    shown = np.where(np.isfinite(matrix), matrix, 0.0) / product
    nearest = np.abs(np.where(np.isfinite(matrix), shown, 0.0)).argmax(axis=-1)
    by_row = np.take_along_axis(shown, nearest[..., None], -1)[..., 0]
    by_row = np.where(np.isfinite(matrix).any(axis=-1), by_row, np.nan)
    gap = np.abs(shown - by_row[..., None])[np.isfinite(matrix)].max(initial=0.0)
    return Readings(by_row, float(gap / max(np.nanmax(np.abs(by_row)), 1e-300)), product, matrix / product)


def first_guess(s: Session) -> tuple[float, float] | None:
    """
    Return a first reading of the scale, and the norm of queries and keys that gave it; None where scores stay flat.

    Vectors grow until the score does not drown in rounding.
    """
    best: tuple[float, float] | None = None
    for norm in (0.25, 1.0, 4.0, 16.0, 64.0, 256.0):
        top = _largest(scan(s, norm, norm, s.sizes))
        if top > s.tolerance:
            best = top / norm**2, norm
        if top > clear(s):
            return best
    return best


def clear(s: Session) -> float:
    """Return a score that stands clear of rounding."""
    return 0.5 if s.tolerance >= COARSE else min(0.5, 1e4 * s.tolerance)


def growth(s: Session, product: float) -> tuple[float, float]:
    """
    Return by what power the score grows with the queries' and with the keys' length, each where it is long.

    The other side is short, so that q·k stays small: a clipped score still grows there, a normalised vector's does not.
    """
    powers = []
    for long_query in (True, False):
        short, base = product / LONG / 256, 0.0
        while base < clear(s) and short <= LONG:
            base = _largest(scan(s, *((LONG, short) if long_query else (short, LONG)), s.sizes))
            short *= 4
        short /= 4
        twice = _largest(scan(s, *((2 * LONG, short) if long_query else (short, 2 * LONG)), s.sizes))
        powers.append(math.log2(twice / base) if twice and base else math.nan)
    return powers[0], powers[1]


def _largest(matrix: Array) -> float:
    return float(np.abs(matrix[np.isfinite(matrix)]).max(initial=0.0))


def lengths(s: Session, sizes: Sizes, norm: float, places: list[int] | None = None) -> Array:
    """
    Return the scale under rotary embedding, whatever the angle: (heads, n_queries, n_keys), NaN where not read.

    score = scale·qᵀRk with R orthogonal, so that Σ_b score(e₁, e_b)² = scale²·‖q‖²‖k‖².
    """
    total = sum(scan(s, norm, norm, sizes, channel=channel, places=places) ** 2 for channel in range(sizes.d_k))
    return np.asarray(np.sqrt(total) / norm**2)
