"""Weights that are no exponentials: products of features (linear attention), and sparsemax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.layouts import Array
from analysis.audit.functions.session import COARSE, Session, centred

LENGTH = 160
FULL = 0.9
HARD = 0.9


def is_kernel(s: Session) -> bool:
    """
    Tell whether rows of weights, many more than there are features, span a space of few dimensions, and name it.

    w_ij = φ(q_i)·φ(k_j) / Σ_j has the rank of φ at most. The exponentials of random scores have full rank.
    """
    if s.tolerance >= COARSE:
        return False  # rounding alone makes every rank what it likes
    sizes = replace(s.sizes, n_queries=LENGTH, n_keys=LENGTH, batch=1, heads=s.sizes.heads)
    try:
        q, k, _ = s.draw(sizes=sizes, spread=1.0)
        weights = s.own(q, k)[0, 0]
    except CallFailed:
        return False
    if not np.isfinite(weights).all():
        return False
    if weights.min() >= 0 and weights.max(axis=1).mean() > HARD:
        return False  # rows with one weight have a low rank whatever made them
    values = np.linalg.svd(weights, compute_uv=False)
    noise = max(1e-10, 64 * s.caller.precision, s.facts.get("noise", 0.0))
    rank = int((values > noise * values[0]).sum())
    if rank > FULL * LENGTH:
        return False
    s.axis = "kernel"
    s.facts["features"] = rank
    s.report("kernel", f"{LENGTH} rows of weights over {LENGTH} keys have rank {rank} at d_k = {s.sizes.d_k}.")
    return True


def is_sparsemax(s: Session, q: Array, k: Array) -> bool:
    """Tell whether weights, where positive, differ as scores do, in proportion."""
    weights = s.own(q, k)
    shown = weights > 1e-6
    x = centred(np.einsum("bhid,bhjd->bhij", q, k), shown)
    y = centred(weights, shown)
    a, b = np.where(shown, x, 0.0), np.where(shown, y, 0.0)
    slope = float((a * b).sum() / max((a * a).sum(), 1e-300))
    if slope <= 0 or shown.all() or np.abs(b - slope * a).max() > s.slack(8):
        return False
    s.axis = "none"
    s.report("sparsemax", f"Positive weights differ by {slope:.6g}·(q·k - q·k'); {(~shown).mean():.0%} are 0.")
    return True


def is_other(s: Session, scale: float) -> bool:
    """Tell whether the weights are no exponentials but of a kind with a name; ``scale`` is a guess."""
    q, k, _ = s.draw(spread=float(np.clip((abs(scale) * s.sizes.d_k**0.5) ** -0.5, 1e-2, 1e2)))
    return is_sparsemax(s, q, k) or is_kernel(s)
