"""How the score answers to larger and larger q·k: straight, soft-capped, clipped, or not like a score at all."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from analysis.audit.functions.probes.kernels import is_other
from analysis.audit.functions.probes.scanning import scan
from analysis.audit.functions.probes.scores import relative_error
from analysis.audit.functions.session import COARSE, HIDDEN, Session

LINEAR = 1e-4
STRAIGHT = 0.01


def probe_response(s: Session, norm: float) -> None:
    """
    Follow the score g(x) from x = q·k = norm² on, until it bends or is large; explain a bend.

    c·tanh(scale·x/c) is solved for scale and c and checked at two more points.
    """
    curve = _curve(s, norm)
    (first_x, first), (last_x, last) = curve[0], curve[-1]
    slack = max(LINEAR, s.times(2) * relative_error(s, first) + s.times(2) * relative_error(s, last))
    if abs(last / (first * last_x / first_x) - 1) < slack:
        return
    cap = _softcap(curve, slack)
    if cap is not None:
        s.facts["softcap"] = cap
        s.report(
            "softcap",
            f"A score of {abs(first) * last_x / first_x:.4g} is {abs(last):.4g}: cap {cap:.6g} by c·tanh(score/c).",
        )
        return
    power = math.log2(abs(curve[2][1] / curve[1][1])) / 2 if len(curve) > 2 else math.nan
    evidence = f"q·k of {first_x:g} to {last_x:g} gives log ratios of weights from {first:.4g} to {last:.4g}"
    if s.axis == "keys" and is_other(s, first / first_x):
        return
    if _applied_twice(s, norm):
        s.report(
            "nonlinear",
            f"{evidence}; the softmax of a softmax fits.",
            "The weights are not exponential in the score: softmax is applied twice.",
        )
    elif abs(power - 1) <= STRAIGHT and len(curve) > 3 and abs(last / curve[-2][1] - 1) < LINEAR:
        s.report(
            "large-scores",
            f"A score of {abs(first) * last_x / first_x:.4g} acts as {abs(last):.4g}, which no soft-cap explains.",
        )
        s.facts["clipped"] = abs(last)
    else:
        s.report("nonlinear", f"{evidence}, not in proportion.", severity="warning")


def _curve(s: Session, norm: float) -> list[tuple[float, float]]:
    """Return (q·k, score) for q·k growing by fours: far enough for a cap, not so far that other weights vanish."""
    limit = {"float64": 300.0, "float32": 80.0, "bfloat16": 80.0, "float16": 8.0}[s.caller.dtype]
    limit = min(limit, 80.0) if "noise" in s.facts else limit
    side = norm / 4 if s.tolerance < COARSE else norm
    curve: list[tuple[float, float]] = []
    first = scan(s, norm, norm, s.sizes)
    size = np.where(np.isfinite(first), np.abs(first), 0.0)
    head, row, place = (int(x) for x in np.unravel_index(int(size.argmax()), size.shape))
    while True:
        score = float(scan(s, side, side, s.sizes, places=[place])[head, row, place])
        if not math.isfinite(score):
            return curve or [(1.0, math.nan)]
        curve.append((side * side, score))
        straight = curve[0][1] * side * side / curve[0][0]
        if abs(score) > limit / 4 or abs(score) < 0.25 * abs(straight) or len(curve) > 20:
            return curve
        side *= 2


def _softcap(curve: list[tuple[float, float]], slack: float) -> float | None:
    """Return the cap that explains the curve, from its first and last points, if the others agree."""
    (x0, small), (x1, large) = curve[0], curve[-1]
    if not (math.isfinite(large) and abs(large) > abs(small)) or len(curve) < (4 if slack < COARSE else 3):
        return None

    def excess(cap: float) -> float:
        return cap * math.tanh(x1 / x0 * math.atanh(min(abs(small) / cap, 1 - 1e-16))) - abs(large)

    cap = _root(excess, abs(large) * (1 + 1e-12), abs(large) * 1e6)
    if cap is None:
        return None
    for x, y in curve[1:-1]:
        wanted = cap * math.tanh(x / x0 * math.atanh(abs(small) / cap))
        if abs(wanted / abs(y) - 1) > 10 * slack + 1e-3:
            return None
    return cap


def _root(function: Callable[[float], float], low: float, high: float) -> float | None:
    if not function(low) * function(high) <= 0:
        return None
    return float(brentq(function, low, high, xtol=1e-14, rtol=1e-14))


def _applied_twice(s: Session, norm: float) -> bool:
    """Take the logarithm of the logarithm: under softmax(softmax(x)) that is in proportion to q·k again."""
    q, k, _ = s.draw(spread=norm / s.sizes.d_k**0.5)
    weights = s.own(q, k)
    with np.errstate(all="ignore"):
        inner = np.log(weights) - np.log(weights).mean(axis=-1, keepdims=True) + 1 / s.sizes.n_keys
        score = np.log(inner)
    products = np.einsum("bhid,bhjd->bhij", q, k)
    products -= products.mean(axis=-1, keepdims=True)
    score -= score.mean(axis=-1, keepdims=True)
    if not np.isfinite(score).all() or (weights < HIDDEN).any():
        return False
    slope = float((score * products).sum() / (products**2).sum())
    return bool(abs(slope) > 0 and np.abs(score - slope * products).max() < 1e-3 * np.abs(slope * products).max())
