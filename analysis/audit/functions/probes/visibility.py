"""What a function shows: without being asked, and under its causal flag."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.patterns import candidates, last_visible, matches
from analysis.audit.functions.session import HIDDEN, Session, Sizes, distance

Shown = list[tuple[int, int, Array]]


def visible(weights: Array, least: float = HIDDEN) -> Array:
    """Return (n_queries, n_keys) of what some batch item and head gives weight to; NaN counts as hidden."""
    return np.asarray((np.abs(np.nan_to_num(weights)) > least).any(axis=(0, 1)))


def seen_by_default(s: Session, n_queries: int, n_keys: int) -> Array:
    """Return the pairs that the function shows without a mask."""
    pattern = s.facts.get("visible_function")
    return np.ones((n_queries, n_keys), bool) if pattern is None else np.asarray(pattern(n_queries, n_keys))


def probe_default_visibility(s: Session) -> None:
    """Name what is hidden without a mask: nothing, the future (with its offset), or a window."""
    shown = _read_patterns(s, causal=False)
    if not shown or all(p.all() for _, _, p in shown):
        s.facts["visibility"] = "all keys"
        return
    for name, pattern in candidates(s.sizes.n_queries == s.sizes.n_keys):
        if all(matches(p, pattern(n, m)) for n, m, p in shown):
            s.facts["visibility"], s.facts["visible_function"] = name, pattern
            _judge_triangle(s, name, "hidden-by-default", shown)
            return
    hidden = sum(int((~p).sum()) for _, _, p in shown)
    s.facts["visibility"] = "other"
    fixed = {(n, m): p for n, m, p in shown}
    s.facts["visible_function"] = lambda n, m: fixed[n, m] if (n, m) in fixed else _cropped(shown[-1][2], n, m)
    s.report("hidden-by-default", f"{hidden} pairs are hidden, in no known pattern.")


def _read_patterns(s: Session, *, causal: bool) -> Shown:
    """
    Read what is visible at several pairs of lengths.

    All keys are alike and have a small positive score: what hides by score (ReLU, sparsemax) shows them all.
    """
    patterns: Shown = []
    for n, m in _shapes(s.sizes):
        q, k = s.aligned(replace(s.sizes, n_queries=n, n_keys=m), 0.5, 0.5)
        k[..., 0] = 0.5 * np.sign(s.facts.get("sign", 1.0))
        try:
            patterns.append((n, m, visible(s.own(q, k, causal=causal) if causal else s.own(q, k))))
        except CallFailed as error:
            if causal:
                s.skipped["causal"] = str(error)
    return patterns


def _cropped(pattern: Array, n: int, m: int) -> Array:
    whole = np.zeros((n, m), bool)
    rows, columns = min(n, pattern.shape[0]), min(m, pattern.shape[1])
    whole[:rows, :columns] = pattern[:rows, :columns]
    return whole


def _shapes(sizes: Sizes) -> list[tuple[int, int]]:
    n, m = sizes.n_queries, sizes.n_keys
    return [(9, 9), (n, m)] if n == m else [(2, 5), (5, 2), (9, 9), (n, m)]


def _judge_triangle(s: Session, name: str, plain_code: str, patterns: Shown) -> None:
    shown = last_visible(patterns[0][2])
    evidence = f"At {patterns[0][0]} queries, {patterns[0][1]} keys, the last visible key per row is {shown}: {name}."
    if name.endswith(("+1", "-1")):
        s.report("causal-off-by-one", evidence)
    elif name.startswith("future"):
        s.report("causal-inverted", evidence)
    elif plain_code == "causal-alignment" and "bottom-right" not in name:
        s.facts["causal"] = name
    else:
        s.report(plain_code, evidence)


def probe_causal(s: Session) -> None:
    """Turn the causal flag on, with unequal lengths where they are accepted."""
    if s.caller.arguments.causal is None:
        s.skipped["causal"] = "no causal argument"
        return
    if s.axis in ("none", "queries", "heads", "batch") or s.found("softmax-axis", "nonlinear", "no-softmax"):
        s.skipped["causal"] = "the weights are no softmax over keys"
        return
    patterns = _read_patterns(s, causal=True)
    if not patterns:
        return
    s.skipped.pop("causal", None)
    hidden = [~p & seen_by_default(s, n, m) for n, m, p in patterns]
    if not any(h.any() for h in hidden):
        _judge_leak(s, patterns)
        return
    for name, pattern in candidates(s.sizes.n_queries == s.sizes.n_keys):
        if not name.startswith(("window", "blocks")) and all(
            matches(p, pattern(n, m) & seen_by_default(s, n, m)) for n, m, p in patterns
        ):
            s.facts["causal"], s.facts["causal_function"] = name, pattern
            _judge_triangle(s, name, "causal-alignment", patterns)
            return
    shown = last_visible(patterns[0][2])
    s.report("causal-pattern", f"At {patterns[0][0]} queries, {patterns[0][1]} keys, last visible keys are {shown}.")


def _judge_leak(s: Session, patterns: Shown) -> None:
    """The flag hides nothing that was visible: it may be without effect, already so by default, or leak."""
    q, k, _ = s.draw()
    change = distance(s.own(q, k, causal=True), s.own(q, k))
    pairs = patterns[-1][0] * patterns[-1][1]
    if change > s.tolerance:
        s.report("causal-leaks", f"All {pairs} pairs keep weight; the flag moves weights by {change:.3g}.")
    elif str(s.facts.get("visibility", "")).startswith("causal"):
        s.facts["causal"], s.facts["causal_function"] = s.facts["visibility"], s.facts["visible_function"]
    else:
        s.report("causal-ignored", f"All {pairs} pairs keep weight; the flag moves weights by {change:.3g}.")
