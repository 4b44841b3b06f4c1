"""Probes of softmax itself: the axis it runs over, what rows sum to, and whether rows keep apart."""

from __future__ import annotations

import numpy as np

from analysis.audit.functions.session import Array, Session

LOW_PRECISION = 0.02
_AXES: dict[str, int | tuple[int, ...]] = {"keys": 3, "queries": 2, "heads": 1, "batch": 0, "matrix": (2, 3)}
_AXIS_WORDS = {"queries": "queries", "heads": "heads", "batch": "batch items", "matrix": "whole score matrix"}


def probe_normalisation(s: Session) -> None:
    """Compare sums of weights over keys, queries, heads and batch."""
    q, k, _ = s.draw()
    weights = s.own(q, k)
    if (weights < -s.tolerance).any():
        s.report("no-softmax", f"The smallest weight is {weights.min():.3g}.")
        s.axis = "none"
        return
    whole = weights if np.isfinite(weights).all() else np.nan_to_num(weights)
    sums = {name: whole.sum(axis=axis) for name, axis in _AXES.items()}
    rows = sums["keys"]
    filled = rows[rows > 0]
    if filled.size and np.abs(filled - 1).max() < s.tolerance:
        return
    for name in ("queries", "heads", "batch", "matrix"):
        if np.abs(sums[name] - 1).max() < s.tolerance:
            s.axis = "keys" if name == "matrix" else name
            s.report(
                "softmax-axis",
                f"Weights sum to 1 over the {_AXIS_WORDS[name]}; over the keys to {rows.min():.3f} … {rows.max():.3f}.",
            )
            return
    _explain_sums(s, rows)


def _explain_sums(s: Session, rows: Array) -> None:
    deviation = float(np.abs(rows - 1).max())
    if deviation < LOW_PRECISION and np.ptp(rows) > 0 and "dropout" not in s.facts:
        s.facts["noise"] = 8 * deviation
        s.report("low-precision", f"Rows sum to 1 within {deviation:.2g}.")
        return
    if "dropout" in s.facts and np.ptp(rows) < s.tolerance:
        s.facts["row_sum"] = float(rows.mean())  # kept weights divided by 1 - p
        return
    zero_q, zero_k = np.zeros((1, 1)), np.zeros((1, 1))
    q, k, _ = s.draw()
    flat = s.own(q * zero_q, k * zero_k).sum(axis=-1)
    if np.ptp(rows) < s.tolerance:
        s.report("row-sums", f"Every row sums to {rows.mean():.6g}.")
        s.facts["row_sum"] = float(rows.mean())
    elif np.isfinite(flat).all() and (rows < 1).all() and (flat < 1).all() and np.ptp(flat) < s.tolerance:
        extra = s.sizes.n_keys * (1 - float(flat.mean())) / float(flat.mean())
        s.report("sink", f"At scores 0 a row sums to {flat.mean():.6g}: exp(sink) = {extra:.6g}.")
        s.facts["sink"] = extra
    else:
        s.report("row-sums", f"Rows sum to {rows.min():.4g} … {rows.max():.4g}.")
        s.axis = "none"


def probe_rows(s: Session) -> bool:
    """Change one query: only its own row may move. False when rows mix in a way that hides the scale."""
    if s.axis != "keys" or s.found("softmax-axis") or s.facts.get("ignored"):
        return True
    q, k, _ = s.draw()
    base = s.own(q, k)
    other_q, other_k = q.copy(), k.copy()
    other_q[:, :, 1] = s.rng.standard_normal(q[:, :, 1].shape)
    moved = np.abs(np.nan_to_num(s.own(other_q, k) - base)).max(axis=(0, 1, 3)) > s.tolerance
    if not moved[np.arange(len(moved)) != 1].any():
        return True
    other_k[:, :, 1] = s.rng.standard_normal(k[:, :, 1].shape)
    by_key = np.abs(np.nan_to_num(s.own(q, other_k) - base)).max(axis=(0, 1, 3)) > s.tolerance
    if by_key.sum() == 1 and by_key[1]:
        s.report(
            "swapped-query-key", f"Changing key 1 moves row 1 only; changing query 1 moves {int(moved.sum())} rows."
        )
        _swap_arguments(s)
        return True
    s.report("rows-mix", f"Changing query 1 moves {int(moved.sum())} of {len(moved)} rows.")
    return False


def _swap_arguments(s: Session) -> None:
    inner = s.caller.function

    def exchanged(query: object, key: object, value: object, **options: object) -> object:
        return inner(key, query, value, **options)

    s.caller = s.caller.using(function=exchanged)
