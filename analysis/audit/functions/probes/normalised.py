"""Normalised queries and keys: which norm, and the scale that acts on unit vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.position import position_bias
from analysis.audit.functions.probes.scores import LONG
from analysis.audit.functions.probes.visibility import seen_by_default
from analysis.audit.functions.session import Session, Sizes, centred

SHORT_OF_EPS = 1e-6


def _unit(x: Array) -> Array:
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


def _centred_unit(x: Array) -> Array:
    return _unit(x - x.mean(axis=-1, keepdims=True))


KINDS: dict[str, Callable[[Array], Array]] = {"length": _unit, "layer": _centred_unit}
WORDS = {
    "length": "their length (l2 or RMS norm)",
    "layer": "mean and length (layer norm)",
    "gains": "length, then gains",
}


@dataclass(frozen=True)
class UnitScale:
    """
    The scale on normalised vectors.

    Attributes
    ----------
    kind : str
        "length", "layer" or "gains".
    by_row : ndarray, (heads, n_queries)
    """

    kind: str
    by_row: Array


def fit(
    s: Session, sizes: Sizes, sides: tuple[str, ...], kinds: tuple[str, ...] = ("length", "layer")
) -> UnitScale | None:
    """
    Fit scores of random long vectors by scale·q̂·k̂, with the vectors of the given sides normalised.

    The vectors are so long that an eps in the norm drowns. None where no kind of norm explains them.
    """
    seen = seen_by_default(s, sizes.n_queries, sizes.n_keys)
    spread = [LONG if side in sides else 1.0 for side in ("queries", "keys")]
    q, k, _ = s.draw(sizes=sizes, spread=1.0)
    q, k = s.caller.rounded(q * spread[0]), s.caller.rounded(k * spread[1])
    score = s.score(s.own(q, k))
    bias = position_bias(s, *s.aligned(sizes, *spread)) if s.facts.get("biased") else 0.0
    target = centred(score - bias, seen)
    shown = np.isfinite(target)
    bound = (s.slack(64) + 64 * SHORT_OF_EPS) * (1 + np.abs(target[shown]).max(initial=0.0))
    for kind in kinds:
        norm = KINDS["length" if kind == "gains" else kind]
        left, right = norm(q) if "queries" in sides else q, norm(k) if "keys" in sides else k
        if kind == "gains":
            return _with_gains(left, right, target, seen, bound)
        x = centred(np.einsum("bhid,bhjd->bhij", left, right), seen)
        x, y = np.where(shown, x, 0.0), np.where(shown, target, 0.0)
        slope = (x * y).sum(axis=(0, 3)) / np.maximum((x * x).sum(axis=(0, 3)), 1e-300)
        if np.abs(y - slope[None, :, :, None] * x).max() < bound:
            enough = (shown.sum(axis=-1) > 1).any(axis=0)
            return UnitScale(kind, np.where(enough, slope, np.nan))
    return None


def _with_gains(q: Array, k: Array, target: Array, seen: Array, bound: float) -> UnitScale | None:
    """Fit a factor per channel, head by head."""
    terms = q[:, :, :, None, :] * k[:, :, None, :, :]
    terms = np.moveaxis(centred(np.moveaxis(terms, -1, 2), seen), 2, -1)
    factors = []
    for head in range(q.shape[1]):
        shown = np.isfinite(target[:, head])
        if shown.sum() < 2 * q.shape[3]:
            return None
        rows, wanted = terms[:, head][shown], target[:, head][shown]
        gains, *_ = np.linalg.lstsq(rows, wanted, rcond=None)
        if np.abs(rows @ gains - wanted).max() > bound:
            return None
        factors.append(gains.mean())
    return UnitScale("gains", np.repeat(np.array(factors)[:, None], q.shape[2], axis=1))
