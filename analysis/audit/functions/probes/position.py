"""Scores that depend on positions: a bias that is added, and rotary embedding."""

from __future__ import annotations

import numpy as np

from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.scores import Readings, lengths, relative_error
from analysis.audit.functions.probes.visibility import seen_by_default
from analysis.audit.functions.session import Session, centred

CELLS = 4096


def probe_bias(s: Session) -> None:
    """With all keys alike, weights differ by position only: ALiBi, another relative bias, or any."""
    if s.axis not in ("keys", "each"):
        return
    z = s.sizes
    q, k = s.aligned(z, 1.0, 1.0)
    bias = position_bias(s, q, k)
    spread = np.abs(bias[np.isfinite(bias)]).max(initial=0.0)
    if spread < s.slack(16):
        return
    s.facts["biased"] = True
    slopes = _slopes(bias, s.tolerance)
    if slopes is not None:
        s.facts["position"] = "ALiBi"
        words = ", ".join(f"{x:.4g}" for x in slopes[:8])
        s.report(
            "position", f"Slopes {words} per step of distance.", "Scores have a bias in proportion to distance (ALiBi)."
        )
    elif _by_difference(bias, s.slack(64)):
        s.facts["position"] = "relative bias"
        s.report("position", f"Up to {spread:.4g} from a row's mean.", "Scores have a bias by relative position.")
    else:
        s.facts["position"] = "bias"
        s.report("position", f"Up to {spread:.4g} from a row's mean.", "Scores have a bias by position.")


def position_bias(s: Session, q: Array, k: Array) -> Array:
    """Return what is added to the scores, (heads, n_queries, n_keys), less each row's mean; NaN where hidden."""
    seen = seen_by_default(s, q.shape[2], k.shape[2])
    score = s.score(s.own(q, k)[0])
    if s.axis == "each":
        return np.asarray(np.where(seen, score - s.facts.get("normalizer_bias", 0.0), np.nan))
    return centred(score, seen)


def _slopes(bias: Array, tolerance: float) -> Array | None:
    """Return, per head, the slope of a bias that is linear in the distance from some diagonal, or None."""
    _, n, m = bias.shape
    for offset in {0, m - n}:
        away = np.abs(np.arange(n)[:, None] + offset - np.arange(m)[None, :]).astype(float)
        shown = np.isfinite(bias)
        gaps = centred(np.broadcast_to(away, bias.shape), shown)
        size = np.where(shown, gaps, 0.0)
        slopes = (np.where(shown, bias, 0.0) * size).sum(axis=(1, 2)) / np.maximum((size**2).sum(axis=(1, 2)), 1e-300)
        if np.abs(np.where(shown, bias - slopes[:, None, None] * gaps, 0.0)).max() < 64 * tolerance:
            return np.asarray(slopes)
    return None


def _by_difference(table: Array, tolerance: float) -> bool:
    """Tell whether neighbours along a row differ by what their distance from the diagonal says, in every row."""
    return all(_steady(line, tolerance) for line in _diagonals(np.diff(table, axis=-1)))


def _diagonals(table: Array) -> list[Array]:
    """Return the diagonals of (heads, n, m) tables, (heads, length) each, from the lowest."""
    return [np.diagonal(table, o, axis1=1, axis2=2) for o in range(-table.shape[1] + 1, table.shape[2])]


def probe_rotary(s: Session, readings: Readings) -> bool:
    """
    Name rotary embedding where scores change with the key's place; keep its scale per row. False where it is not that.

    R turns by a difference of positions: the lengths of its rows are all one, and scores depend on the difference.
    """
    norm, z = readings.product**0.5, s.sizes
    places = None if z.d_k * z.n_keys <= CELLS else [min(z.n_queries, z.n_keys) - 1]
    size = lengths(s, z, norm, places)
    slack = s.times(64) * relative_error(s)
    by_row = np.nanmean(size, axis=-1)
    flat = np.nanmax(np.abs(size / by_row[..., None] - 1)) < slack
    size = np.broadcast_to(by_row[..., None], readings.matrix.shape) if flat else size
    turned = readings.matrix / size
    lines = _diagonals(turned)
    steady = all(_steady(line, slack) for line in lines)
    if not (steady and (flat or all(_steady(line, slack * np.nanmax(size)) for line in _diagonals(size)))):
        s.report(
            "unexplained",
            f"One q·k gives scores from {np.nanmin(readings.matrix) * readings.product:.4g} to "
            f"{np.nanmax(readings.matrix) * readings.product:.4g}, not by the difference of positions.",
            "Scores depend on positions, but not on their difference.",
        )
        return False
    means = np.array([np.nanmean(line) if np.isfinite(line).any() else -np.inf for line in lines])
    offsets = np.arange(len(lines)) - z.n_queries + 1
    nearest = int(min(offsets[means > means.max() - slack], key=abs))
    if not flat:
        by_row = np.full(by_row.shape, np.nanmean(_diagonals(size)[nearest + z.n_queries - 1]))
    s.facts["rotary"] = by_row
    s.facts["decays"] = not flat
    where = f"angle 0 at key i{nearest:+d} of query i" if means.max() > 1 - slack else "angle 0 out of reach"
    if not flat and np.nanmin(turned) > 1 - slack:
        s.facts["position"] = "decay"
        s.report("position", f"{where}.", "Scores are multiplied by a decay with distance.")
        return True
    words = "" if flat else " with a decay by distance (xPos)"
    reach = f"{np.nanmin(turned):.3g} to {np.nanmax(turned):.3g}"
    s.report(
        "position",
        f"One q·k gives scores of {reach} of the largest; {where}.",
        f"Queries and keys are turned by their positions (rotary embedding){words}.",
    )
    return True


def _steady(line: Array, slack: float) -> bool:
    shown = np.where(np.isfinite(line), line, np.nan)
    some = np.isfinite(shown).any(axis=-1)
    if not some.any():
        return True
    return bool((np.nanmax(shown[some], axis=-1) - np.nanmin(shown[some], axis=-1)).max() < slack)
