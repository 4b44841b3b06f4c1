"""Patterns of visible keys, with their names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.audit.functions.layouts import Array

Pattern = Callable[[int, int], Array]
REACH = 9


def triangle(offset: int, bottom_right: bool = False, left: int | None = None, first: int = 0) -> Pattern:
    """
    Return the pattern j ≤ i + offset, from the bottom-right corner where asked.

    With `left`, only that many keys back, or among the `first`.
    """

    def pattern(n_queries: int, n_keys: int) -> Array:
        last = np.arange(n_queries)[:, None] + offset + (n_keys - n_queries if bottom_right else 0)
        keys = np.arange(n_keys)[None, :]
        near = (keys >= last - left) | (keys < first) if left is not None else True
        return np.asarray((keys <= last) & near)

    return pattern


def band(left: int, right: int) -> Pattern:
    """Return the pattern i − left ≤ j ≤ i + right."""
    return lambda n, m: (np.arange(m) >= np.arange(n)[:, None] - left) & (np.arange(m) <= np.arange(n)[:, None] + right)


def blocks(size: int, causal: bool) -> Pattern:
    """Return the pattern of pairs in the same block, of the past where causal."""

    def pattern(n: int, m: int) -> Array:
        same = np.arange(n)[:, None] // size == np.arange(m)[None, :] // size
        return np.asarray(same & triangle(0)(n, m) if causal else same)

    return pattern


def prefix(first: int) -> Pattern:
    """Return the causal pattern with the first keys visible to all."""
    return lambda n, m: triangle(0)(n, m) | (np.arange(m)[None, :] < first)


def candidates(equal: bool) -> list[tuple[str, Pattern]]:
    """Return every named pattern, the simplest first; alignments cannot be told at equal lengths."""
    named: list[tuple[str, Pattern]] = []
    for bottom in [False] if equal else [False, True]:
        corner = "bottom-right" if bottom else "top-left"
        for offset in (0, -1, 1):
            named.append((f"causal {corner}" + (f" {offset:+d}" if offset else ""), triangle(offset, bottom)))
        named += [(f"causal {corner}, window {left + 1}", triangle(0, bottom, left)) for left in range(REACH)]
        named += [
            (f"causal {corner}, window {left + 1} and the first {first} keys", triangle(0, bottom, left, first))
            for left in range(REACH - 2) for first in range(1, REACH - left - 1)
        ]  # fmt: skip
    named.append(("future only", lambda n, m: ~triangle(-1)(n, m)))
    named.append(("future only, itself hidden", lambda n, m: ~triangle(0)(n, m)))
    for size in range(2, REACH):
        named += [(f"blocks of {size}, causal", blocks(size, True)), (f"blocks of {size}", blocks(size, False))]
        named.append((f"causal with a prefix of {size} keys", prefix(size)))
    return named + [(f"window ({left}, {right})", band(left, right)) for left in range(REACH) for right in range(REACH)]


def matches(shown: Array, wanted: Array) -> bool:
    """Compare what is visible; a row that should see nothing may also be uniform (hidden by a finite fill)."""
    empty = ~wanted.any(axis=1)
    free = empty & shown.all(axis=1)
    return bool((~empty).any()) and np.array_equal(shown[~free], wanted[~free])


def last_visible(pattern: Array) -> list[int | None]:
    """Return the last visible key of each row."""
    return [int(np.flatnonzero(row)[-1]) if row.any() else None for row in pattern]
