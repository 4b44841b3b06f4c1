"""Grouped heads: which key head does each query head read, for its weights and for its values?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.session import Session

RIGHT = [0, 0, 1, 1]


def probe_grouped(s: Session) -> None:
    """Give two key heads to four query heads; change one key head, and one value head, at a time."""
    if "h" not in s.caller.layout or s.axis not in ("keys", "each", "kernel"):
        return
    if s.found("softmax-axis", "attends-over-heads") or s.facts.get("ignored") or s.repeats > 1:
        return
    sizes = replace(s.sizes, heads=4)
    q, k, _ = s.draw(sizes=sizes, key_heads=2)
    _, k2, _ = s.draw(sizes=sizes, key_heads=2)
    k2[:, 0] = k[:, 0]
    try:
        weights, changed = s.read(q, k), s.read(q, k2)
    except CallFailed as error:
        s.skipped["grouped heads"] = str(error)
        return
    by_value = np.abs(np.nan_to_num(weights)).sum(axis=(0, 2, 4)).argmax(axis=1).tolist()
    moved = np.abs(np.nan_to_num(changed - weights)).max(axis=(0, 2, 3, 4)) > s.tolerance
    by_key = moved.astype(int).tolist()
    s.facts["grouped"] = tuple(by_value)
    evidence = f"Query heads 0-3 mix the values of key heads {by_value} with weights from {by_key}; usual are {RIGHT}."
    if by_value != by_key:
        s.report("grouped-order", evidence)
    elif by_value != RIGHT:
        s.report("grouped-tiled" if by_value == [0, 1, 0, 1] else "grouped-other", evidence)
