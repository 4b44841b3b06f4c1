"""Probes of range: large scores, and products that overflow half precision before they are scaled."""

from __future__ import annotations

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.visibility import seen_by_default
from analysis.audit.functions.session import Session

LAMBDAS = (20.0, 100.0, 1e4, 3e4)
FLOAT16_T = 300.0


def probe_range(s: Session) -> None:
    """Give one key a large score: its weight must be 1 and nothing else may break."""
    by_row = s.facts.get("by_row")
    if (
        s.axis != "keys"
        or s.found("softmax-axis", "large-scores", "row-sums", "distance", "unexplained")
        or s.facts.get("normalised")
    ):
        return
    if by_row is None:
        s.skipped["range"] = "the scale was not read"
        return
    scale = float(np.nanmin(np.abs(by_row)))
    if np.nanmean(by_row) < 0 or not scale > 0:
        return
    cap = s.facts.get("softcap", np.inf)
    for target in LAMBDAS:
        length = (target / scale) ** 0.5
        if s.caller.dtype == "float16" and length > 150.0:
            return  # q·k itself would leave the type's range
        weights = _peaked(s, length)
        expected = np.exp(-cap * np.tanh(target / cap)) if np.isfinite(cap) else np.exp(-target)
        if np.isfinite(weights).all() and weights.max(axis=-1).min() == 0:
            s.report("overflow", f"At a score of {target:g} all weights of a row vanish.")
            return
        if not np.isfinite(weights).all():
            s.report("overflow", f"At a score of {target:g} the weights are {weights[~np.isfinite(weights)].flat[0]}.")
            return
        rest = float(1 - weights.max(axis=-1).min())
        bound = s.sizes.n_keys * expected + s.slack(4) + (1.0 if "sink" in s.facts and target <= 20 else 0.0)
        if rest > bound and not s.facts.get("position") and "rotary" not in s.facts:
            s.report(
                "large-scores", f"At a score of {target:g} the other keys keep {rest:.3g}, not {expected:.3g} each."
            )
            return
    _probe_float16(s, scale)


def _peaked(s: Session, t: float) -> Array:
    """Return the weights of rows that see the last common position, q = k there = t·e₁, other keys 0."""
    z = s.sizes
    place = min(z.n_queries, z.n_keys) - 1
    q, k = s.aligned(z, t, 0.0)
    k[:, :, place, 0] = t
    weights = s.own(s.caller.rounded(q), s.caller.rounded(k))
    rows = seen_by_default(s, z.n_queries, z.n_keys)[:, place]
    if "rotary" in s.facts:
        rows = rows & (np.arange(z.n_queries) == place)
    return weights[:, :, rows]


def _probe_float16(s: Session, scale: float) -> None:
    """Feed float16 whose raw products exceed 65504 while the scaled scores do not."""
    if FLOAT16_T**2 * scale > 6e4 or scale > 0.6 or "rotary" in s.facts or s.caller.framework == "jax":
        return
    half, original = s.caller.using(dtype="float16"), s.caller
    try:
        s.caller = half
        weights = _peaked(s, FLOAT16_T)
    except CallFailed as error:
        s.skipped["float16"] = str(error)
        return
    finally:
        s.caller = original
    place = min(s.sizes.n_queries, s.sizes.n_keys) - 1
    kept = weights[..., place]
    if kept.size and not (np.isfinite(weights).all() and kept.min() > 0.99):
        raw = FLOAT16_T**2
        s.report("float16-overflow", f"q·k = {raw:.0f} (scaled {raw * scale:.0f}) gives {kept.flat[0]:.3g}.")
