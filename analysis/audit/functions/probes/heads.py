"""Probes of heads and batch: how many heads there are, and whether each value stays with its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.layouts import Array, tokens_as_heads
from analysis.audit.functions.session import Session, distance

MOVED = 1e-12
_MERGED = {"hsd": "bsm", "bsd": "bsm", "shd": "sbm", "sbd": "sbm", "sd": "sm"}


def probe_heads(s: Session, layout_given: bool) -> None:
    """
    Count the heads of a function whose last axis may hold several, by channels that share weights.

    Every value vector is constant over its channels; output channels then differ as their weights do.
    """
    if s.repeats > 1 or ("h" in s.caller.layout and layout_given) or len(s.caller.layout) == 4:
        return
    q, k, _ = s.draw()
    value = s.caller.rounded(np.broadcast_to(s.rng.standard_normal((k.shape[0], 1, k.shape[2], 1)), k.shape))
    if distance(s.caller(q, k, value), s.caller(q, k, value)) > 0:
        return
    out = s.caller(q, k, value).transpose(0, 2, 1, 3).reshape(s.sizes.batch, s.sizes.n_queries, -1)
    out = out if "m" in s.caller.layout or s.sizes.heads == 1 else out[..., : s.sizes.d_k]
    blocks = 1 + int((np.abs(np.diff(out, axis=-1)).max(axis=(0, 1)) > s.tolerance).sum())
    width = s.sizes.heads * s.sizes.d_k
    if blocks == 1 and out.shape[1] == k.shape[2] and distance(out[..., 0], value[:, 0, :, 0]) < s.tolerance:
        return  # every token keeps its own value: it is its heads that are mixed, as `probe_locality` will find
    if "m" in s.caller.layout and blocks == 1 and s.sizes.heads > 1:
        s.caller = s.caller.using(layout=s.caller.layout.replace("m", "d"))
        s.sizes = replace(s.sizes, heads=1, d_k=width)
        if layout_given or s.caller.arguments.heads:
            s.report("heads-not-split", f"All {width} channels share one row of weights.")
    elif "m" in s.caller.layout and blocks not in (s.sizes.heads, out.shape[-1]) and width % blocks == 0:
        s.sizes = replace(s.sizes, heads=blocks, d_k=width // blocks)
    elif "m" not in s.caller.layout and 1 < blocks < out.shape[-1]:
        merged = _MERGED[s.caller.layout]
        s.caller = s.caller.using(layout=merged)
        s.sizes = replace(s.sizes, batch=2 if "b" in merged else 1, heads=blocks)


def probe_locality(s: Session) -> bool:
    """Set one value vector to 1 at a time and see which outputs move. False stops the audit."""
    q, k, _ = s.draw()
    last = s.sizes.batch - 1
    for head, key in itertools.product(_some(s.sizes.heads), (1, 0, s.sizes.n_keys - 1)):
        moved, channels = _moved(s, q, k, (last, head, key))
        if np.delete(moved, last, axis=0).any():
            other = int(np.argwhere(moved)[0, 0])
            s.report("batch-mix", f"A value of batch item {last} moves outputs of item {other}.")
            return False
        if channels[1:].any():
            s.report("channels-mix", f"Channel 0 of a value moves {int(channels.sum())} channels of the output.")
            return False
        if np.delete(moved[last], head, axis=0).any():
            return _explain_movement(s, q, k, (last, head, key), moved)
    return True


def _some(count: int) -> list[int]:
    """Return a few of `count` places: all of up to four, else both ends and the middle."""
    return list(range(count)) if count <= 4 else [0, count // 2, count - 2, count - 1]


def _moved(s: Session, q: Array, k: Array, place: tuple[int, int, int]) -> tuple[Array, Array]:
    """Return which (batch, head, row) outputs a value at a place moves, and which of its channels for channel 0."""
    b0, h0, j0 = place
    moved = []
    for channel in (slice(None), 0):
        value = np.zeros_like(k)
        value[b0, h0, j0, channel] = 1.0
        moved.append(np.max([np.abs(s.caller(q, k, value)) for _ in range(s.repeats)], axis=0) > MOVED)
    return moved[0].any(axis=-1), moved[1].any(axis=(0, 1, 2))


def _explain_movement(s: Session, q: Array, k: Array, place: tuple[int, int, int], moved: Array) -> bool:
    """Find the reshape that explains which outputs moved, and go on reading through it."""
    wanted = f"head {place[1]}, every query"
    evidence = f"The value of head {place[1]} at key {place[2]} moves {_describe(moved)}; expected: {wanted}."
    original = s.caller
    over_heads = tokens_as_heads(original.layout)
    same_lengths = s.sizes.n_queries == s.sizes.n_keys
    if over_heads is not None and same_lengths and not np.delete(moved, place[2], axis=2).any():
        if "w" in over_heads:  # heads that are read as tokens are as many as the function makes them
            n = s.sizes.n_keys
            s.sizes = replace(s.sizes, heads=n, n_queries=s.sizes.heads, n_keys=s.sizes.heads)
        s.caller = original.using(layout=over_heads)
        s.report("attends-over-heads", evidence)
        return True
    for code, split, merge in (("head-split", True, True), ("head-merge", False, True), ("head-split", True, False)):
        s.caller = original.using(raw_split=split, raw_merge=merge)
        try:
            explained = _is_local(s, q, k)
        except CallFailed:
            explained = False
        if explained:
            both = " Outputs are put together the same wrong way." if split and merge else ""
            s.report(code, evidence + both)
            return True
    s.caller = original
    s.report("head-mix", evidence)
    return False


def _is_local(s: Session, q: Array, k: Array) -> bool:
    places: Iterable[tuple[int, int, int]] = itertools.product((0,), _some(s.sizes.heads), range(s.sizes.n_keys))
    for place in places:
        moved, _ = _moved(s, q, k, place)
        if not moved[place[:2]].any() or moved.sum() != moved[place[:2]].sum():
            return False
    return True


def _describe(moved: Array) -> str:
    places = np.argwhere(moved.any(axis=0))
    heads, rows = sorted({int(h) for h, _ in places}), sorted({int(i) for _, i in places})
    return f"heads {heads}, queries {rows}" if len(places) else "nothing"
