"""Two functions that should be one: what differs between their audits and their outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.session import Session, distance

CLOSE = 1e-3
RANGE = ("overflow", "large-scores", "float16-overflow", "masked-row-nan", "masked-row-attends", "nan-leak")


def compare(s: Session, other: Session) -> None:
    """Add to the first session what the second does otherwise: scale, cap, sink, visibility, masks, range, outputs."""
    for code, what, mine, theirs in _facts(s, other):
        if mine != theirs:
            s.report(code, f"{what}: {mine} here, {theirs} there.")
    _compare_outputs(s, other)


def _facts(s: Session, other: Session) -> list[tuple[str, str, Any, Any]]:
    rows: list[tuple[str, str, Any, Any]] = []
    laws = [x.facts.get("law") for x in (s, other)]
    names = [None if law is None else law.name for law in laws]
    values = [None if law is None else law.value for law in laws]
    if names[0] != names[1] or not _near(values[0], values[1]):
        mine, theirs = (
            f"{name} ({value})" if name else "not read" for name, value in zip(names, map(_short, values), strict=True)
        )
        rows.append(("against-scale", "scale", mine, theirs))
    for what in ("softcap", "sink", "per_head", "per_query"):
        if not _near(s.facts.get(what), other.facts.get(what)):
            rows.append(
                ("against-scale", what.replace("_", " "), _short(s.facts.get(what)), _short(other.facts.get(what)))
            )
    for what in ("normalised", "position"):
        rows.append(("against-scale", what, _short(s.facts.get(what)), _short(other.facts.get(what))))
    rows.append(("against-scale", "rotary", "rotary" in s.facts, "rotary" in other.facts))
    for what in ("visibility", "causal", "mask", "padding", "mask_and_causal"):
        rows.append(("against-mask", what.replace("_", " "), _short(s.facts.get(what)), _short(other.facts.get(what))))
    for code in RANGE:
        rows.append(("against-range", code, s.found(code), other.found(code)))
    return rows


def _near(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    one, two = np.atleast_1d(a), np.atleast_1d(b)
    return one.shape == two.shape and bool(np.allclose(one, two, rtol=CLOSE, atol=0.0, equal_nan=True))


def _short(value: Any) -> str:
    if value is None or (isinstance(value, tuple) and not value):
        return "none"
    if isinstance(value, str):
        return value
    return ", ".join(f"{x:.6g}" if isinstance(x, float) else str(x) for x in np.atleast_1d(value).tolist()[:8])


def _compare_outputs(s: Session, other: Session) -> None:
    """Call both with the same inputs: plain, and with the causal flag where both take one."""
    if s.sizes != other.sizes or s.repeats > 1 or other.repeats > 1:
        s.skipped["comparison of outputs"] = "sizes differ, or dropout is on"
        return
    q, k, v = s.draw()
    bound = 16 * max(s.tolerance, other.tolerance) * float(np.abs(v).max())
    flags = [False] + [True] * (s.caller.arguments.causal is not None and other.caller.arguments.causal is not None)
    for causal in flags:
        try:
            gap = distance(s.caller(q, k, v, causal=causal), other.caller(q, k, v, causal=causal))
        except CallFailed as error:
            s.skipped["comparison of outputs"] = str(error)
            return
        if gap > bound:
            s.report("against-output", f"{'Causal' if causal else 'Plain'} outputs differ by up to {gap:.3g}.")
