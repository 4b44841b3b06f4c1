"""The soft-cap and the sink that are meant, against those found."""

from __future__ import annotations

import math

import numpy as np

from analysis.audit.functions.session import Session

CLOSE = 1e-3


def probe_intended(s: Session, softcap: float | None, sink: float | None) -> None:
    """Compare; infinity means no cap, minus infinity no sink."""
    slack = max(CLOSE, 8 * s.caller.precision)
    if softcap is not None:
        if s.facts.get("by_row") is None:
            s.skipped["intended soft-cap"] = "the scores were not read"
        else:
            found = s.facts.get("softcap", math.inf)
            if not (found == softcap or abs(found - softcap) <= slack * abs(softcap)):
                s.report("softcap-unintended", f"Found {_cap(found)}, intended {_cap(softcap)}.")
    if sink is not None:
        if s.axis != "keys" or s.found("softmax-axis", "row-sums"):
            s.skipped["intended sink"] = "rows were not read"
            return
        logits = np.atleast_1d(s.facts.get("sink", -math.inf))
        same = logits == sink
        near = np.abs(np.where(np.isfinite(logits), logits, 0.0) - (sink if math.isfinite(sink) else 0.0)) <= slack
        if not (same | (near & np.isfinite(logits) & math.isfinite(sink))).all():
            words = ", ".join("none" if x == -math.inf else f"{x:.6g}" for x in logits[:8])
            s.report("sink-unintended", f"Found {words}, intended {'none' if sink == -math.inf else f'{sink:g}'}.")


def _cap(value: float) -> str:
    return "none" if math.isinf(value) else f"{value:.6g}"
