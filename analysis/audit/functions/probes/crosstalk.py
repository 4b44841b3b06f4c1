"""Probes of queries and keys: no batch item, head or row may depend on those of another."""

from __future__ import annotations

import numpy as np

from analysis.audit.functions.session import Session


def probe_crosstalk(s: Session) -> bool:
    """Change queries and keys of one batch item, then of one head: no other may move. False stops the audit."""
    if s.repeats > 1 or s.axis in ("none", "queries", "heads", "batch") or s.found("softmax-axis"):
        return True
    q, k, v = s.draw()
    new_q, new_k, _ = s.draw()
    base = s.caller(q, k, v)
    for code, axis, word in (("batch-mix", 0, "batch item"), ("head-mix", 1, "head")):
        moved, by_own_key, most = np.zeros((2, q.shape[axis]), bool), False, 0.0
        for turn, changed in enumerate((0, q.shape[axis] - 1)):
            place = (slice(None),) * axis + (changed,)
            other_q, other_k = q.copy(), k.copy()
            other_q[place], other_k[place] = new_q[place], new_k[place]
            change = np.delete(np.abs(s.caller(other_q, other_k, v) - base), changed, axis=axis)
            by_own_key |= bool(np.abs(s.caller(q, other_k, v) - base)[place].max() > s.tolerance)
            each = change.max(axis=tuple({0, 1, 2, 3} - {axis})) > s.tolerance
            moved[turn, np.delete(np.arange(q.shape[axis]), changed)] = each
            most = max(most, float(change.max(initial=0.0)))
        if not moved.any():
            continue
        # talking heads depend on their own keys too; a reshape that lost its way does not
        meant = axis == 1 and by_own_key
        s.report(
            code,
            f"Changing queries and keys of {word} 0 or {q.shape[axis] - 1} moves {word}s "
            f"{np.flatnonzero(moved.any(axis=0)).tolist()} beside it, by up to {most:.3g}.",
            f"The scores of one {word} depend on queries or keys of another"
            + (" (talking heads, where that is meant)." if meant else "."),
            severity="warning" if meant else None,
        )
        s.skipped["rest"] = f"the scores of a {word} are not its own"
        return False
    return True


def probe_rows(s: Session) -> bool:
    """Change one query: only its own row may move. False when rows mix in a way that hides the scale."""
    if s.axis in ("none", "queries", "heads", "batch") or s.found("softmax-axis") or s.facts.get("ignored"):
        return True
    if s.sizes.n_queries < 2:
        return True
    q, k, _ = s.draw()
    base = s.own(q, k)
    other_q, other_k = q.copy(), k.copy()
    other_q[:, :, 1] = s.draw()[0][:, :, 1]
    moved = np.abs(np.nan_to_num(s.own(other_q, k) - base)).max(axis=(0, 1, 3)) > s.tolerance
    if not moved[np.arange(len(moved)) != 1].any():
        return True
    other_k[:, :, 1] = s.draw()[1][:, :, 1]
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
    inner, names = s.caller.function, s.caller.arguments.inputs

    def exchanged(query: object, key: object, value: object, **options: object) -> object:
        if names is None:
            return inner(key, query, value, **options)
        return inner(**dict(zip(names, (key, query, value), strict=True)), **options)

    s.caller = s.caller.using(function=exchanged, arguments=s.caller.arguments.taking(inputs=None))
