"""Weights that are functions of their own score alone: sigmoid, ReLU, the scores themselves."""

from __future__ import annotations

import numpy as np

from analysis.audit.functions.layouts import Array
from analysis.audit.functions.session import Session

CLOSE = 1e-3
_STEPS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])


def name_elementwise(s: Session) -> None:
    """Follow the weight of one key through q·k = -2x … 2x and say which function it is."""
    x = 4.0
    while x > 1e-3 and not _bent(s, x):
        x /= 4
    w = _response(s, x)
    size, close = float(np.abs(w).max()), max(CLOSE, 4 * s.caller.precision)
    evidence = f"At q·k = {', '.join(f'{x * step:g}' for step in _STEPS)} a weight is " + ", ".join(
        f"{value:.4g}" for value in w
    )
    with np.errstate(all="ignore"):
        logarithm = np.log(w)
        odds = logarithm - np.log1p(-w)
    if _straight(w - w[2], close) and abs(w[2]) < close * size:
        s.link = "identity"
        s.report(
            "no-softmax", evidence + ", in proportion.", "The weights are the scores themselves.", severity="warning"
        )
    elif _straight(logarithm - logarithm[2], close):
        s.link = "log"
        s.report("row-sums", evidence + ": exponentials that nothing divides.")
    elif _straight(odds - odds[2], close):
        s.link = "logit"
        s.facts["normalizer_bias"] = float(odds[2])
        s.report("sigmoid", f"{evidence}: a sigmoid with bias {odds[2]:.6g} at {s.sizes.n_keys} keys.")
    elif _one_sided(w, size, 2.0, close):
        s.link = "identity"
        s.report("relu", f"{evidence}: in proportion above 0, and 0 below.", "The weights are the ReLU of the scores.")
    elif _one_sided(w, size, 4.0, close):
        s.link = "root"
        s.report(
            "relu", f"{evidence}: squares above 0, and 0 below.", "The weights are the squared ReLU of the scores."
        )
    else:
        s.axis = "none"
        s.report("elementwise", evidence + ".")


def _response(s: Session, x: float) -> Array:
    """Return the weight of key 0 in the last row, at its own position, for q·k = x times the steps."""
    weights = []
    row = min(s.sizes.n_queries, s.sizes.n_keys) - 1
    for step in _STEPS:
        q, k = s.aligned(s.sizes, 1.0, x)
        k[:, :, row] = 0.0
        k[:, :, row, 0] = step * x
        weights.append(s.own(q, k)[0, 0, row, row])
    return np.array(weights)


def _bent(s: Session, x: float) -> bool:
    """Tell whether the weights are still away from a sigmoid's ends."""
    w = _response(s, x)
    top = float(np.abs(w).max())
    return bool(np.isfinite(w).all() and (top > 1 or (top < 0.999 and (w[0] <= 0 or w[0] > 1e-3))))


def _straight(w: Array, close: float) -> bool:
    if not np.isfinite(w).all() or abs(w[4]) < 1e-12:
        return False
    return bool(np.abs(w - w[4] * _STEPS / 2).max() < close * np.abs(w[4]))


def _one_sided(w: Array, size: float, growth: float, close: float) -> bool:
    """Tell whether weights are 0 on one side and grow by a factor on the other."""
    up = w if abs(w[4]) > abs(w[0]) else w[::-1]
    return bool(np.abs(up[:3]).max() < close * size and abs(up[4] - growth * up[3]) < close * size)
