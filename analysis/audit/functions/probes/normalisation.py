"""Probes of what turns scores into weights: the axis of softmax, what rows sum to, and other normalisers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.elementwise import name_elementwise
from analysis.audit.functions.session import Session, distance

_AXES: dict[str, int | tuple[int, ...]] = {"keys": 3, "queries": 2, "heads": 1, "batch": 0, "matrix": (2, 3)}
_AXIS_WORDS = {"queries": "queries", "heads": "heads", "batch": "batch items", "matrix": "whole score matrix"}
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
    if not negative and filled.size and np.abs(filled - 1).max() < 4 * s.tolerance:
        return
    for name in ("queries", "heads", "batch", "matrix"):
        if not negative and np.abs(whole.sum(axis=_AXES[name]) - 1).max() < 4 * s.tolerance:
            _wrong_axis(s, name, rows)
            return
    if _each_by_itself(s, q, k, weights):
        s.axis = "each"
        name_elementwise(s)
    elif _constant(s, rows):
        _constant_sums(s, rows)
    elif negative:
        s.axis = "none"
        s.report(
            "no-softmax",
            f"The smallest weight is {weights.min():.3g}; rows sum to {rows.min():.4g} … {rows.max():.4g}.",
        )
    else:
        _explain_sums(s, q, k, weights, rows)


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
    size = float(np.abs(weights).max())
    return bool(np.delete(changed, 1, axis=3).max() <= s.tolerance * size) and bool(
        changed[..., 1].max() > s.tolerance * size
    )


def _constant(s: Session, rows: Array) -> bool:
    return bool(np.ptp(rows, axis=(0, 2)).max() < 8 * s.tolerance * max(1.0, float(np.abs(rows).max())))


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
    elif np.ptp(by_head) > 8 * s.tolerance:
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
        first = s.own(some_q, some_k) + (1 - total) / s.sizes.n_keys
        second = s.own(2 * some_q, some_k) + (1 - total) / s.sizes.n_keys
        with np.errstate(all="ignore"):
            one, two = np.log(first), np.log(second)
        one, two = one - one[..., :1], two - two[..., :1]
        found.append(np.abs(one).max() > 1e-3 and distance(2 * one, two) < 1e3 * s.tolerance)
    return any(found)


def _explain_sums(s: Session, q: Array, k: Array, weights: Array, rows: Array) -> None:
    """Rows sum to different numbers: a sink takes the rest, or something unknown does."""
    other = k.copy()
    other[:, :, 1] = s.draw()[1][:, :, 1]
    with np.errstate(all="ignore"):
        ratios = np.delete(s.own(q, other), 1, axis=3) / np.delete(weights, 1, axis=3)
    steady = np.nanmax(ratios, axis=3) - np.nanmin(ratios, axis=3) <= 64 * s.tolerance * np.abs(
        np.nanmax(ratios, axis=3)
    )
    some = np.isfinite(ratios).any(axis=3)
    logits = [_flat_sinks(s, n) for n in (s.sizes.n_keys, 2 * s.sizes.n_keys)]
    short, long = logits
    agree = short is not None and (long is None or distance(short, long) < 1e3 * s.tolerance)
    if steady[some].all() and (rows < 1).all() and agree and short is not None:
        s.facts["sink"] = short
        words = ", ".join(f"{x + 0.0:.6g}" for x in short[:8]) + (", …" if len(short) > 8 else "")
        alike = np.ptp(short) < 64 * s.tolerance
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
    if not np.isfinite(logits).all() or np.ptp(logits, axis=(0, 2)).max() > 1e3 * s.tolerance:
        return None
    return np.asarray(logits.mean(axis=(0, 2)))
