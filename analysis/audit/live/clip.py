"""Factors on the query and key projections that bring each head's largest score to a target (QK-clip)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.vocabulary.numbers import positive, shown
from attnsym._page import Page

Array = NDArray[Any]


@dataclass(frozen=True, repr=False)
class ClipFactors(Page):
    """
    What to multiply W_Q, W_K and their biases with, head by head; 1 where a head needs nothing.

    Attributes
    ----------
    gamma : (num_heads,)
        The factor by which every score of the head changes.
    query : (num_heads,)
        On the rows of W_Q that make this head's queries: √γ, and γ under grouped heads.
    key : (num_key_value_heads,)
        On those of W_K: √γ, and 1 under grouped heads, where a key head serves several query heads.
    """

    gamma: Array
    query: Array
    key: Array

    def _line(self) -> str:
        clipped = int((self.gamma < 1.0).sum())
        return f"{clipped} of {len(self.gamma)} heads clipped, least factor {self.gamma.min():.4g}"

    def __str__(self) -> str:
        """Return the factors head by head."""
        group = len(self.gamma) // len(self.key)
        rows = (
            f"head {n}: γ {g:.6g}, W_Q × {self.query[n]:.6g}, W_K × {self.key[n // group]:.6g}"
            for n, g in enumerate(self.gamma)
        )
        return "\n".join(rows)


def clip_factors(largest: ArrayLike, target: float, *, num_key_value_heads: int | None = None) -> ClipFactors:
    """
    Return γ = min(1, target/largest) per head, and the factors on queries and keys that make it.

    Parameters
    ----------
    largest : (num_heads,)
        The largest score of each head since the last clip, as `Watcher.take_maxima` gives it: signed, as the published
        QK-clip takes it, or absolute. A head without a number (NaN), or at most the target, keeps its weights.
    target : float
        The largest score that is wanted, positive.
    num_key_value_heads : int, optional
        Fewer than num_heads under grouped heads.

    Raises
    ------
    ValueError
        For an infinite score, a target that is not positive and finite, or numbers of heads that do not divide.

    Notes
    -----
    Scores are scale·q·k, so that the target is met exactly by whatever made `largest`, up to rounding. A bias added to
    scores, a soft-cap, and a norm of q and k after the projections are outside of this formula.

    References
    ----------
    Kimi Team, "Kimi K2: Open Agentic Intelligence", 2025 (QK-Clip).
    """
    scores = _numbers(largest)
    if scores.ndim != 1 or not scores.size or np.isinf(scores).any():
        raise ValueError(f"largest must be one finite score for each head: got {shown(largest)}")
    target = positive("target", target)
    over = scores > target
    with np.errstate(under="ignore"):  # the caller's may raise; a factor that vanishes is refused in words
        gamma = np.where(over, target / np.where(over, scores, 1.0), 1.0)
    return split_factor(gamma, num_key_value_heads)


def split_factor(gamma: ArrayLike, num_key_value_heads: int | None = None) -> ClipFactors:
    """
    Return how a factor γ per head on its scores is shared between queries and keys.

    Raises
    ------
    ValueError
        Unless every γ is positive and finite and num_key_value_heads divides their number.
    """
    factors = _numbers(gamma)
    if factors.ndim != 1 or not factors.size or not (np.isfinite(factors) & (factors > 0)).all():
        raise ValueError(f"gamma must be one positive, finite factor for each head: got {gamma!r}")
    heads = len(factors)
    key_heads = heads if num_key_value_heads is None else num_key_value_heads
    if isinstance(key_heads, bool) or not isinstance(key_heads, int) or key_heads < 1 or heads % key_heads:
        raise ValueError(f"num_key_value_heads must divide the {heads} heads: got {num_key_value_heads!r}")
    if key_heads == heads:
        return ClipFactors(factors, np.sqrt(factors), np.sqrt(factors))
    return ClipFactors(factors, factors, np.ones(key_heads))


def _numbers(values: ArrayLike) -> Array:
    """Return float64 numbers, or an empty array for what holds none."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)
