"""Probes of what turns scores into weights: the axis of softmax, what rows sum to, and other normalisers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.elementwise import name_elementwise
from analysis.audit.functions.probes.kernels import is_kernel
from analysis.audit.functions.session import COARSE, Session, distance

_AXES: dict[str, int | tuple[int, ...]] = {"keys": 3, "queries": 2, "heads": 1, "batch": 0, "matrix": (2, 3)}
_AXIS_WORDS = {"queries": "queries", "heads": "heads", "batch": "batch items", "matrix": "whole score matrix"}
EVEN = 0.05
_TYPES = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def probe_normalisation(s: Session) -> None:
    """Compare sums of weights over keys, queries, heads and batch; name what normalises otherwise."""
    q, k, _ = s.draw()
    weights = s.own(q, k)
    _note_precision(s, weights)
    whole = np.nan_to_num(weights)
    rows = whole.sum(axis=3)
    filled = rows[np.abs(rows) > 0]
    negative = bool((whole < -s.tolerance).any())
    if not negative and filled.size and _all_one(s, filled):
        return
    for name in ("queries", "heads", "batch", "matrix"):
        if not negative and np.abs(whole.sum(axis=_AXES[name]) - 1).max() < s.slack(4):
            _wrong_axis(s, name, rows)
            return
    if _each_by_itself(s, q, k, weights):
        s.axis = "each"
        name_elementwise(s)
    elif _constant(s, rows) and (not negative or differential(s, float(rows.mean()))):
        _constant_sums(s, rows)
    elif negative:
        if np.abs(rows - 1).max() < s.slack(64) * np.abs(whole).max() and is_kernel(s):
            return
        s.axis = "none"
        s.report(
            "no-softmax",
            f"The smallest weight is {weights.min():.3g}; rows sum to {rows.min():.4g} … {rows.max():.4g}.",
        )
    else:
        _explain_sums(s, q, k, weights, rows)


def _all_one(s: Session, sums: Array) -> bool:
    """Tell whether sums are 1 but for rounding, which has no sign: their mean must be nearer than each of them."""
    off = sums - 1
    return bool(np.abs(off).max() < s.sum_error and abs(off.mean()) < s.sum_error / 4)


def _note_precision(s: Session, weights: Array) -> None:
    """Weights that are all whole multiples of a coarser type's step were computed in that type."""
    shown = weights[np.isfinite(weights) & (np.abs(weights) > 1e-4)]
    for name, step in _TYPES.items():
        if step <= s.caller.precision or shown.size < 16 or len(set(shown.tolist())) < 8:
            continue
        unit = 2.0 ** np.floor(np.log2(np.abs(shown))) * step
        if (shown / unit == np.round(shown / unit)).all():
            coarse = name
        else:
            break
        s.facts["noise"] = 64 * step if coarse == "float32" else 8 * step
        s.facts["inner"] = coarse
    if "inner" in s.facts:
        s.report("low-precision", f"The weights are numbers of {s.facts['inner']}, the inputs of {s.caller.dtype}.")


def _wrong_axis(s: Session, name: str, rows: Array) -> None:
    sums = f"over the keys to {rows.min():.3f} … {rows.max():.3f}"
    if name == "queries" and s.sizes.n_queries == s.sizes.n_keys and _one_column_moves(s):
        s.axis = "none"
        s.report("weights-transposed", f"Weights sum to 1 over the queries; {sums}. Query 1 changes column 1 only.")
        return
    if name != "matrix" and np.ptp(rows) < EVEN * rows.mean():
        s.axis = "none"
        s.report("doubly-normalised", f"Weights sum to 1 over the {_AXIS_WORDS[name]}; {sums}.")
        return
    s.axis = "keys" if name == "matrix" else name
    s.report("softmax-axis", f"Weights sum to 1 over the {_AXIS_WORDS[name]}; {sums}.")


def _one_column_moves(s: Session) -> bool:
    q, k, _ = s.draw()
    other = q.copy()
    other[:, :, 1] = s.draw()[0][:, :, 1]
    moved = np.abs(s.own(other, k) - s.own(q, k)).max(axis=(0, 1, 2)) > s.tolerance
    return bool(moved[1]) and int(moved.sum()) == 1


def _each_by_itself(s: Session, q: Array, k: Array, weights: Array) -> bool:
    """Tell whether another key leaves the weights of all others as they are."""
    other = k.copy()
    other[:, :, 1] = s.draw()[1][:, :, 1]
    changed = np.abs(s.own(q, other) - weights)
    bound = min(s.tolerance, max(s.caller.precision, s.facts.get("noise", 0.0))) * float(np.abs(weights).max())
    return bool(np.delete(changed, 1, axis=3).max() <= bound) and bool(changed[..., 1].max() > bound)


def _constant(s: Session, rows: Array) -> bool:
    return bool(np.ptp(rows, axis=(0, 2)).max() < 2 * s.sum_error * max(1.0, float(np.abs(rows).max())))


def _constant_sums(s: Session, rows: Array) -> None:
    """Rows of a head sum to one number whatever the scores are."""
    by_head = rows.mean(axis=(0, 2))
    if "dropout" in s.facts:
        s.facts["row_sum"] = float(rows.mean())  # kept weights divided by 1 - p
    elif differential(s, float(rows.mean())):
        s.axis = "none"
        s.report(
            "differential",
            f"Rows sum to {rows.mean():.6g}: the second softmax is taken off {1 - rows.mean():.6g} times.",
        )
    elif np.ptp(by_head) > s.slack(8):
        s.facts["row_sum"] = by_head[:, None, None]
        s.report("head-scale", f"Rows sum to {', '.join(f'{x:.6g}' for x in by_head[:8])} in the heads.")
    else:
        s.facts["row_sum"] = float(rows.mean())
        s.report("row-sums", f"Every row sums to {rows.mean():.6g}.")


def differential(s: Session, total: float) -> bool:
    """
    Tell whether weights are one softmax less (1 - total) times another over the other half of the channels.

    With one half of all vectors at 0 the second softmax is uniform; what remains is then a softmax: linear in the
    logarithm in q·k.
    """
    half, found = s.sizes.d_k // 2, []
    for kept in (slice(None, half), slice(half, None), slice(None, None, 2), slice(1, None, 2)):
        q, k, _ = s.draw()
        some_q, some_k = np.zeros_like(q), np.zeros_like(k)
        some_q[..., kept], some_k[..., kept] = q[..., kept], k[..., kept]
        readings = [s.own(times * some_q, some_k) for times in (1.0, 2.0)]
        straight = [_proportion([w + share / s.sizes.n_keys for w in readings]) for share in (1 - total, 0.0)]
        found.append(straight[0] < s.slack(1e3) and straight[1] > 8 * straight[0] + s.slack(8))
    return any(found)


def _proportion(pair: list[Array]) -> float:
    """Return how far the logarithms of the second weights are from twice those of the first, within rows."""
    with np.errstate(all="ignore"):
        one, two = (np.log(w) - np.log(w[..., :1]) for w in pair)
    return distance(2 * one, two)


def _explain_sums(s: Session, q: Array, k: Array, weights: Array, rows: Array) -> None:
    """Rows sum to different numbers: a sink takes the rest, or something unknown does."""
    other = k.copy()
    other[:, :, 1] = s.draw()[1][:, :, 1]
    with np.errstate(all="ignore"):
        ratios = np.delete(s.own(q, other), 1, axis=3) / np.delete(weights, 1, axis=3)
    steady = np.nanmax(ratios, axis=3) - np.nanmin(ratios, axis=3) <= max(s.slack(64), 8 * s.caller.precision) * np.abs(
        np.nanmax(ratios, axis=3)
    )
    some = np.isfinite(ratios).any(axis=3)
    logits = [_flat_sinks(s, n) for n in (s.sizes.n_keys, 2 * s.sizes.n_keys)]
    short, long = logits
    agree = short is not None and (long is None or distance(short, long) < _logit_error(s))
    if steady[some].all() and (rows < 1).all() and agree and short is not None:
        s.facts["sink"] = short
        words = ", ".join(f"{x + 0.0:.6g}" for x in short[:8]) + (", …" if len(short) > 8 else "")
        alike = np.ptp(short) < max(s.slack(64), 16 * s.caller.precision)
        s.report(
            "sink",
            f"Where all scores are 0, rows sum to less than 1 by exp(sink) to {s.sizes.n_keys} keys: "
            + (f"sink logit {short.mean() + 0.0:.6g}." if alike else f"sink logits per head {words}."),
        )
    else:
        s.report("row-sums", f"Rows sum to {rows.min():.4g} … {rows.max():.4g}.", severity="warning")
        s.axis = "none"


def _flat_sinks(s: Session, n_keys: int) -> Array | None:
    """Return, per head, the sink's logit over the largest key's, all q·k being 0; None where rows differ."""
    equal = s.sizes.n_queries == s.sizes.n_keys
    sizes = replace(s.sizes, n_keys=n_keys, n_queries=n_keys if equal else s.sizes.n_queries)
    try:
        weights = s.own(*s.aligned(sizes, 1.0, 1.0))
    except CallFailed:
        return None
    with np.errstate(all="ignore"):
        logits = np.log((1 - weights.sum(axis=3)) / weights.max(axis=3))
    if not np.isfinite(logits).all() or np.ptp(logits, axis=(0, 2)).max() > _logit_error(s):
        return None
    return np.asarray(logits.mean(axis=(0, 2)))


def _logit_error(s: Session) -> float:
    """What the logarithm of a sink's share may be off by."""
    return max(s.slack(1e3), 32 * s.caller.precision if s.tolerance >= COARSE else 0.0)
