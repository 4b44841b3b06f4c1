"""Probes of structure: randomness, ignored arguments, heads and batch kept apart."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from analysis.audit.functions.session import REPEATS_UNDER_DROPOUT, Array, Session, distance

DROPOUT_CALLS = 400


def probe_determinism(s: Session) -> bool:
    """Call twice; tell NaN, dropout and other randomness apart. False stops the audit."""
    q, k, v = s.draw()
    first, second = s.caller(q, k, v), s.caller(q, k, v)
    broken = ~(np.isfinite(first) & np.isfinite(second))
    if broken.any():
        rows = np.flatnonzero(broken.any(axis=(0, 1, 3))).tolist()
        s.report("not-finite", f"{broken.sum()} of {broken.size} outputs are NaN or infinite, of queries {rows}.")
        return False
    if distance(first, second) == 0:
        return True
    ones = np.ones_like(v)
    sums = np.stack([s.caller(q, k, ones) for _ in range(DROPOUT_CALLS)])
    mean = float(sums.mean())
    error = float(sums.mean(axis=(1, 2, 3, 4)).std(ddof=1) / np.sqrt(DROPOUT_CALLS))
    zeros = float(np.mean([s.read(q, k)[:, 0, :, 0] == 0 for _ in range(20)]))
    if not zeros > 0:
        s.report("random-output", f"Row sums {mean:.3f} ± {error:.3f} over {DROPOUT_CALLS} calls, no weight is ever 0.")
        return False
    inverted = abs(mean - 1) < 4 * error
    kind = "kept weights are divided by 1 - p" if inverted else "kept weights are not rescaled"
    s.report(
        "dropout-on",
        f"{zeros:.0%} of the weights are 0 in a call; rows sum to {mean:.3f} ± {error:.3f} on average over "
        f"{DROPOUT_CALLS} calls: {kind}.",
    )
    s.repeats = REPEATS_UNDER_DROPOUT
    s.facts["dropout"] = zeros
    return True


def probe_dependence(s: Session) -> bool:
    """Replace each argument in turn. False stops: without values the weights cannot be read."""
    if s.repeats > 1:
        s.skipped["dependence"] = "dropout is on"
        return True
    q, k, v = s.draw()
    q2, k2, v2 = s.draw()
    base = s.caller(q, k, v)
    ignored = [
        name
        for name, changed in (("query", (q2, k, v)), ("key", (q, k2, v)), ("value", (q, k, v2)))
        if distance(base, s.caller(*changed)) == 0
    ]
    for name in ignored:
        s.report(f"ignores-{name}", f"Replacing {name} changes the output by 0; {_tied(s, name)}")
    s.facts["ignored"] = tuple(ignored)
    return "value" not in ignored


def _tied(s: Session, name: str) -> str:
    """Say which other argument stands in the place of an ignored one."""
    q, k, v = s.draw()
    if name == "value":
        constant = np.broadcast_to(np.arange(1.0, s.sizes.d_k + 1), k.shape)
        tied = (
            distance(s.caller(q, constant, v), np.broadcast_to(constant[:, :, :1], q.shape)) < s.tolerance * s.sizes.d_k
        )
        return "the keys are mixed in its place." if tied else "nothing of it is used."
    if s.sizes.n_queries != s.sizes.n_keys or s.sizes.n_queries > s.sizes.d_k:
        return "nothing of it is used."
    pattern = 8.0 * np.broadcast_to(np.eye(s.sizes.n_keys, s.sizes.d_k), q.shape)
    weights = s.own(pattern, k) if name == "key" else s.own(q, pattern)
    tied = bool((weights.argmax(axis=-1) == np.arange(s.sizes.n_keys)).all())
    return f"the {'queries' if name == 'key' else 'keys'} are used twice." if tied else "nothing of it is used."


def probe_heads(s: Session, layout_given: bool) -> None:
    """
    Count the heads of a function whose last axis may hold several, by channels that share weights.

    Every value vector is constant over its channels; output channels then differ as their weights do.
    """
    if s.repeats > 1 or ("h" in s.caller.layout and layout_given) or len(s.caller.layout) == 4:
        return
    q, k, _ = s.draw()
    value = np.broadcast_to(s.rng.standard_normal((k.shape[0], 1, k.shape[2], 1)), k.shape)
    out = s.caller(q, k, value).transpose(0, 2, 1, 3).reshape(s.sizes.batch, s.sizes.n_queries, -1)
    out = out if "m" in s.caller.layout or s.sizes.heads == 1 else out[..., : s.sizes.d_k]
    blocks = 1 + int((np.abs(np.diff(out, axis=-1)).max(axis=(0, 1)) > s.tolerance).sum())
    width = s.sizes.heads * s.sizes.d_k
    if "m" in s.caller.layout and blocks == 1 and s.sizes.heads > 1:
        s.caller = s.caller.using(layout=s.caller.layout.replace("m", "d"))
        s.sizes = replace(s.sizes, heads=1, d_k=width)
        if layout_given or s.caller.arguments.heads:
            s.report("heads-not-split", f"All {width} channels share one row of weights.")
    elif "m" in s.caller.layout and blocks not in (s.sizes.heads, out.shape[-1]) and width % blocks == 0:
        s.sizes = replace(s.sizes, heads=blocks, d_k=width // blocks)
    elif "m" not in s.caller.layout and 1 < blocks < out.shape[-1]:
        merged = {"hsd": "bsm", "bsd": "bsm", "shd": "sbm", "sbd": "sbm", "sd": "sm"}[s.caller.layout]
        s.caller = s.caller.using(layout=merged)
        s.sizes = replace(s.sizes, batch=2 if "b" in merged else 1, heads=blocks)


def probe_locality(s: Session) -> bool:
    """Set one value vector to 1 at a time and see which outputs move. False stops the audit."""
    q, k, _ = s.draw()
    last = s.sizes.batch - 1
    for head, key in itertools.product(range(s.sizes.heads), (1, 0, s.sizes.n_keys - 1)):
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


def probe_crosstalk(s: Session) -> bool:
    """Change queries and keys of one batch item, then of one head: no other may move. False stops the audit."""
    if s.repeats > 1 or s.axis != "keys" or s.found("softmax-axis"):
        return True
    q, k, v = s.draw()
    new_q, new_k, _ = s.draw()
    base = s.caller(q, k, v)
    for code, axis, word in (("batch-mix", 0, "batch item"), ("head-mix", 1, "head")):
        last = q.shape[axis] - 1
        place = (slice(None),) * axis + (last,)
        other_q, other_k = q.copy(), k.copy()
        other_q[place], other_k[place] = new_q[place], new_k[place]
        change = np.abs(s.caller(other_q, other_k, v) - base)
        moved = change.max(axis=tuple({0, 1, 2, 3} - {axis})) > s.tolerance
        if moved[:last].any():
            s.report(
                code,
                f"Changing queries and keys of {word} {last} moves {word}s {np.flatnonzero(moved).tolist()}, by up to "
                f"{np.delete(change, last, axis=axis).max():.3g}.",
                f"The scores of one {word} depend on queries or keys of another.",
            )
            return False
    return True


def _moved(s: Session, q: Array, k: Array, place: tuple[int, int, int]) -> tuple[Array, Array]:
    """Return which (batch, head, row) outputs a value at a place moves, and which of its channels for channel 0."""
    b0, h0, j0 = place
    moved = []
    for channel in (slice(None), 0):
        value = np.zeros_like(k)
        value[b0, h0, j0, channel] = 1.0
        moved.append(np.max([np.abs(s.caller(q, k, value)) for _ in range(s.repeats)], axis=0) > 1e-12)
    return moved[0].any(axis=-1), moved[1].any(axis=(0, 1, 2))


def _explain_movement(s: Session, q: Array, k: Array, place: tuple[int, int, int], moved: Array) -> bool:
    """Find the reshape that explains which outputs moved, and go on reading through it."""
    wanted = f"head {place[1]}, every query"
    evidence = f"The value of head {place[1]} at key {place[2]} moves {_describe(moved)}; expected: {wanted}."
    original = s.caller
    over_heads = _swapped_layout(original.layout)
    if over_heads is not None and not np.delete(moved, place[2], axis=2).any():
        s.caller = original.using(layout=over_heads)
        s.report("attends-over-heads", evidence)
        return True
    for code, split, merge in (("head-split", True, True), ("head-merge", False, True), ("head-split", True, False)):
        s.caller = original.using(raw_split=split, raw_merge=merge)
        if _is_local(s, q, k):
            both = " Outputs are put together the same wrong way." if split and merge else ""
            s.report(code, evidence + both)
            return True
    s.caller = original
    s.report("head-mix", evidence)
    return False


def _is_local(s: Session, q: Array, k: Array) -> bool:
    for place in itertools.product((0,), range(s.sizes.heads), range(s.sizes.n_keys)):
        moved, _ = _moved(s, q, k, place)
        if not moved[place[:2]].any() or moved.sum() != moved[place[:2]].sum():
            return False
    return True


def _swapped_layout(layout: str) -> str | None:
    """Return the layout under which attention over heads reads as attention over tokens."""
    if "h" not in layout or "s" not in layout:
        return None
    return layout.translate(str.maketrans("hs", "sh"))


def _describe(moved: Array) -> str:
    places = np.argwhere(moved.any(axis=0))
    heads, rows = sorted({int(h) for h, _ in places}), sorted({int(i) for _, i in places})
    return f"heads {heads}, queries {rows}" if len(places) else "nothing"
