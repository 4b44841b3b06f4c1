"""How a mask is read: the hypothesis that explains the weights under it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.audit.functions.layouts import Array
from analysis.audit.functions.session import COARSE, HIDDEN, Session, centred, distance

SURE = 1e-3


@dataclass(frozen=True)
class Reading:
    """What became of a mask: a code of the catalogue, "" where it acts as documented, and the numbers."""

    code: str
    evidence: str = ""


def masked_weights(s: Session, plain: Array, visible: Array) -> Array:
    """Return the weights that the same scores give over the visible keys; rows that see nothing are 0."""
    return renormalised(s, plain, np.broadcast_to(visible, plain.shape).astype(float))


def renormalised(s: Session, plain: Array, factor: Array) -> Array:
    """Return the weights once the exponentials behind them are multiplied by a factor; a sink keeps its own."""
    whole = np.nan_to_num(plain)
    kept = whole * factor
    if s.axis == "each":
        return np.asarray(kept)
    sink = 1 - whole.sum(axis=-1, keepdims=True)
    total = kept.sum(axis=-1, keepdims=True) + np.where(np.abs(sink) < SURE, 0.0, sink)
    return np.asarray(np.divide(kept, total, out=np.zeros_like(kept), where=total > 0))


def read_mask(s: Session, plain: Array, masked: Array, visible: Array) -> Reading:
    """
    Explain the weights under a mask.

    Parameters
    ----------
    plain, masked : ndarray, (batch, heads, n_queries, n_keys)
    visible : ndarray of bool, (batch, 1, n_queries, n_keys)
        What the mask was documented to show.
    """
    bound, shown = s.slack(16) * _size(s, plain), np.nan_to_num(masked)
    pairs = np.broadcast_to(visible, plain.shape)
    wanted = masked_weights(s, plain, pairs)
    open_pairs = np.abs(np.nan_to_num(plain)) > HIDDEN
    leaked = (np.abs(shown) > HIDDEN) & ~pairs & open_pairs & (wanted.sum(axis=-1, keepdims=True) > HIDDEN)
    hidden = ~pairs & open_pairs
    gap = distance(shown[pairs & (np.abs(wanted) > HIDDEN)], wanted[pairs & (np.abs(wanted) > HIDDEN)])
    evidence = (
        f"Of {int(hidden.sum())} hidden pairs, {int(leaked.sum())} keep weight, up to "
        f"{np.abs(shown[leaked]).max(initial=0.0):.3g}; visible ones differ from renormalised weights "
        f"by up to {gap:.3g}."
    )
    if _fits(shown, wanted, bound) and not leaked.any():
        return Reading("")
    if distance(shown, np.nan_to_num(plain)) < min(bound, 0.01):
        return Reading("mask-ignored", evidence)
    if s.axis != "each" and not leaked.any() and distance(shown, np.nan_to_num(plain) * pairs) < bound:
        return Reading("mask-after-softmax", evidence)
    for code, factor in _others(visible, plain.shape):
        if _fits(shown, renormalised(s, plain, factor), bound):
            return Reading(code, evidence)
    return _by_change(s, plain, masked, pairs & open_pairs, hidden, evidence)


def _size(s: Session, plain: Array) -> float:
    """In half precision the error of a weight grows with its score's size."""
    if s.tolerance < COARSE:
        return 1.0
    scores = s.score(plain)
    return 1 + float(np.ptp(scores[np.isfinite(scores)])) / 4 if np.isfinite(scores).any() else 1.0


def _fits(shown: Array, wanted: Array, bound: float) -> bool:
    """Compare the rows in which something stays visible: the others are 0, NaN or uniform as a function pleases."""
    rows = np.abs(wanted).sum(axis=-1) > HIDDEN
    return bool(rows.any()) and distance(shown[rows], wanted[rows]) < bound


def _others(visible: Array, shape: tuple[int, ...]) -> list[tuple[str, Array]]:
    """Return the factors of wrong readings: inverted, transposed (also added as 0 and 1), for other batch items."""
    whole = np.broadcast_to(visible, shape)
    found = [("mask-inverted", (~whole).astype(float))]
    if shape[2] == shape[3]:
        turned = whole.swapaxes(-1, -2)
        found += [("mask-transposed", turned.astype(float)), ("mask-transposed", np.exp(turned.astype(float)))]
    batch, heads = shape[:2]
    if batch > 1 and (visible[0] != visible[-1]).any():
        orders = [np.arange(batch * heads) % batch, np.arange(batch * heads)[::-1] // heads]
        for order in orders:
            found.append(("mask-batch-order", visible[order, 0].reshape(shape).astype(float)))
        found += [("mask-batch-order", np.broadcast_to(visible[:1], shape).astype(float))]
    return found


def _by_change(s: Session, plain: Array, masked: Array, on: Array, off: Array, evidence: str) -> Reading:
    """Follow the scores of hidden and visible pairs: lowered by a number, set to a number, or neither."""
    before, after = s.score(plain), s.score(masked)
    change = after - before
    if s.axis != "each":  # the visible keys of a row all keep their scores
        middle = np.where(on, change, np.nan)
        level = np.nan_to_num(middle).sum(-1, keepdims=True) / np.maximum(
            (on & np.isfinite(change)).sum(-1, keepdims=True), 1
        )
        change = change - level
        after = after - level
    slack = max(SURE, s.slack(4))
    rows = (on & np.isfinite(change)).any(-1, keepdims=True)
    visible_move, lowered = change[on & rows], change[off & rows]
    if (
        not lowered.size
        or not np.isfinite(lowered).all()
        or np.abs(np.nan_to_num(visible_move)).max(initial=0.0) > slack
    ):
        return Reading("mask-position", evidence)
    if np.ptp(lowered) < slack:
        step = float(lowered.mean())
        if abs(step + 1) < slack:
            return Reading("mask-added", f"{evidence} Hidden scores are 1 lower.")
        return Reading(
            "mask-leaks" if step < 0 else "mask-inverted", f"{evidence} Hidden scores are lowered by {-step:.4g} only."
        )
    fill = _fill(s, before, after, off & rows, on & rows)
    if fill is None:
        return Reading("mask-position", evidence)
    if "softcap" in s.facts and abs(fill + s.facts["softcap"]) < 0.05 * s.facts["softcap"]:
        return Reading("softcap-after-mask", f"{evidence} Hidden scores are {fill:.4g}.")
    code = "mask-multiplied" if abs(fill) < slack else "mask-leaks"
    return Reading(code, f"{evidence} Hidden scores are set to {fill:.4g}.")


def _fill(s: Session, before: Array, after: Array, off: Array, on: Array) -> float | None:
    """Return the number to which hidden scores are set, from the known scores of the row; None if it varies."""
    absolute = s.facts.get("scores")
    if absolute is None or s.axis == "each":
        return None
    shift = np.where(on, absolute - after, np.nan)
    counts = np.isfinite(shift).sum(-1, keepdims=True)
    level = np.nan_to_num(shift).sum(-1, keepdims=True) / np.maximum(counts, 1)
    values = (after + level)[off & (counts > 0)]
    if not values.size or not np.isfinite(values).all() or np.ptp(values) > max(0.01, s.slack(1e3)):
        return None
    return float(values.mean())


def changes_like(s: Session, plain: Array, shifted: Array, bias: Array) -> float:
    """Return how far the scores moved from ``bias``, pair by pair, less what a row has in common."""
    change = s.score(shifted) - s.score(plain)
    seen = np.isfinite(change)
    if s.axis == "each":
        gap = change - bias
    else:
        gap = centred(change, seen) - centred(np.broadcast_to(bias, change.shape), seen)
    return float(np.abs(gap[seen]).max(initial=0.0)) if seen.any() else float("inf")
