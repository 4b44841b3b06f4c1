"""What a function shows: without being asked, and under its causal flag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.session import HIDDEN, Array, Session, Sizes, distance

Pattern = Callable[[int, int], Array]


def visible(weights: Array) -> Array:
    """Return (n_queries, n_keys) of what some batch item and head gives weight to; NaN counts as hidden."""
    return np.asarray((np.nan_to_num(weights) > HIDDEN).any(axis=(0, 1)))


def triangle(offset: int, bottom_right: bool = False, left: int | None = None) -> Pattern:
    """Return the pattern j ≤ i + offset (bottom-right: i + n_keys − n_queries + offset), at most `left` keys back."""

    def pattern(n_queries: int, n_keys: int) -> Array:
        last = np.arange(n_queries)[:, None] + offset + (n_keys - n_queries if bottom_right else 0)
        keys = np.arange(n_keys)[None, :]
        return (keys <= last) & (keys >= last - left if left is not None else True)

    return pattern


def band(left: int, right: int) -> Pattern:
    """Return the pattern i − left ≤ j ≤ i + right."""
    return lambda n, m: (np.arange(m) >= np.arange(n)[:, None] - left) & (np.arange(m) <= np.arange(n)[:, None] + right)


def probe_default_visibility(s: Session) -> None:
    """Name what is hidden without a mask: nothing, the future (with its offset), or a window."""
    if s.axis == "none" or s.found("softmax-axis"):
        return
    patterns = []
    for n, m in _shapes(s):
        sizes = replace(s.sizes, n_queries=n, n_keys=m)
        try:
            q, k, _ = s.draw(sizes=sizes)
            patterns.append((n, m, visible(s.own(q, k))))
        except CallFailed:
            continue
    if all(p.all() for _, _, p in patterns):
        s.facts["visibility"] = "all keys"
        return
    for name, pattern in _candidates(s.sizes):
        if all(_matches(p, pattern(n, m)) for n, m, p in patterns):
            s.facts["visibility"], s.facts["visible_function"] = name, pattern
            _judge_triangle(s, name, "hidden-by-default", patterns)
            return
    hidden = sum(int((~p).sum()) for _, _, p in patterns)
    s.facts["visibility"] = "other"
    fixed = patterns[-1][2]
    s.facts["visible_function"] = lambda n, m: _cropped(fixed, n, m)
    s.report("hidden-by-default", f"{hidden} pairs are hidden, in no known pattern.")


def _matches(shown: Array, wanted: Array) -> bool:
    """Compare what is visible; a row that should see nothing may also be uniform (hidden by a finite fill)."""
    empty = ~wanted.any(axis=1)
    free = empty & shown.all(axis=1)
    return bool((~empty).any()) and np.array_equal(shown[~free], wanted[~free])


def _cropped(pattern: Array, n: int, m: int) -> Array:
    whole = np.zeros((n, m), bool)
    rows, columns = min(n, pattern.shape[0]), min(m, pattern.shape[1])
    whole[:rows, :columns] = pattern[:rows, :columns]
    return whole


def _shapes(s: Session) -> list[tuple[int, int]]:
    n, m = s.sizes.n_queries, s.sizes.n_keys
    return [(9, 9), (n, m)] if n == m else [(2, 5), (5, 2), (9, 9), (n, m)]


def _candidates(sizes: Sizes) -> list[tuple[str, Pattern]]:
    corners = [False] if sizes.n_queries == sizes.n_keys else [False, True]
    named: list[tuple[str, Pattern]] = []
    for bottom in corners:
        corner = "bottom-right" if bottom else "top-left"
        for offset in (0, -1, 1):
            named.append((f"causal {corner}" + (f" {offset:+d}" if offset else ""), triangle(offset, bottom)))
        named += [(f"causal {corner}, window {left + 1}", triangle(0, bottom, left)) for left in range(9)]
    named.append(("future only", lambda n, m: ~triangle(-1)(n, m)))
    named.append(("future only, itself hidden", lambda n, m: ~triangle(0)(n, m)))
    return named + [(f"window ({left}, {right})", band(left, right)) for left in range(9) for right in range(9)]


def _judge_triangle(s: Session, name: str, plain_code: str, patterns: list[tuple[int, int, Array]]) -> None:
    shown = _last_visible(patterns[0][2])
    evidence = f"At {patterns[0][0]} queries, {patterns[0][1]} keys, the last visible key per row is {shown}: {name}."
    if name.endswith(("+1", "-1")):
        s.report("causal-off-by-one", evidence)
    elif name.startswith("future"):
        s.report("causal-inverted", evidence)
    elif plain_code == "causal-alignment" and "bottom-right" not in name:
        s.facts["causal"] = name
    else:
        s.report(plain_code, evidence)


def _last_visible(pattern: Array) -> list[int | None]:
    return [int(np.flatnonzero(row)[-1]) if row.any() else None for row in pattern]


def probe_causal(s: Session) -> None:
    """Turn the causal flag on, with unequal lengths where they are accepted."""
    if s.caller.arguments.causal is None:
        s.skipped["causal"] = "no causal argument"
        return
    if s.found("no-softmax", "nonlinear"):
        s.skipped["causal"] = "the weights are no softmax"
        return
    patterns = []
    for n, m in _shapes(s):
        try:
            q, k, _ = s.draw(sizes=replace(s.sizes, n_queries=n, n_keys=m))
            patterns.append((n, m, visible(s.own(q, k, causal=True))))
        except CallFailed as error:
            s.skipped["causal"] = str(error)
    if not patterns:
        return
    s.skipped.pop("causal", None)
    if all(p.all() for _, _, p in patterns):
        q, k, _ = s.draw()
        change = distance(s.own(q, k, causal=True), s.own(q, k))
        evidence = f"All {patterns[-1][0] * patterns[-1][1]} pairs keep weight; the flag moves weights by {change:.3g}."
        s.report("causal-leaks" if change > s.tolerance else "causal-ignored", evidence)
        return
    for name, pattern in _candidates(s.sizes):
        if not name.startswith("window") and all(_matches(p, pattern(n, m)) for n, m, p in patterns):
            s.facts["causal"], s.facts["causal_function"] = name, pattern
            _judge_triangle(s, name, "causal-alignment", patterns)
            return
    shown = _last_visible(patterns[0][2])
    s.report("causal-pattern", f"At {patterns[0][0]} queries, {patterns[0][1]} keys, last visible keys are {shown}.")
