"""Once beyond 128 keys: what blocks, chunks and tables of a fixed length get wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.patterns import band, blocks, prefix, triangle
from analysis.audit.functions.probes.visibility import seen_by_default, visible
from analysis.audit.functions.session import COARSE, Session, Sizes, centred

BEYOND = 128
MOST = 2**23  # weights in one reading
SPACING, RAISED = 16, 3.0
POSITIONED = {"biased", "rotary", "softcap", "norm"}  # what scores may hold beside q·k


def long_sizes(sizes: Sizes) -> Sizes:
    """Return lengths beyond 128 that are multiples of the audited ones only where those are multiples of 8."""

    def longer(n: int, at_least: int) -> int:
        return n * math.ceil((at_least + 1) / n) if n % 8 == 0 else at_least + n

    equal = sizes.n_queries == sizes.n_keys
    keys = longer(sizes.n_keys, BEYOND + 60)
    return replace(sizes, batch=1, n_keys=keys, n_queries=keys if equal else longer(sizes.n_queries, BEYOND))


def probe_length(s: Session) -> None:
    """
    Read all weights at some 200 keys and hold them against what the function does with few.

    Some keys are then made longer, so that a running maximum moves in every block: the ratios of the other weights
    stay.
    """
    if s.axis not in ("keys", "each") or s.found("softmax-axis", "large-scores", "unexplained", "rows-mix"):
        return
    if s.facts.get("by_row") is None or s.repeats > 1:
        return
    sizes = long_sizes(s.sizes)
    if sizes.heads * sizes.n_queries * sizes.n_keys > MOST:
        s.skipped["length"] = f"{sizes.heads} heads at {sizes.n_keys} keys are too many to read"
        return
    try:
        if sizes.batch != s.sizes.batch and "b" in s.caller.layout:
            s.caller(*s.draw(sizes=sizes))
    except CallFailed:
        sizes = replace(sizes, batch=s.sizes.batch)
    try:
        _probe(s, sizes)
    except CallFailed as error:
        s.skipped["length"] = f"at {sizes.n_queries} queries and {sizes.n_keys} keys: {error}"


def _probe(s: Session, sizes: Sizes) -> None:
    q, k = s.aligned(sizes, 0.5, 0.5)
    k[..., 0] = 0.5 * s.facts.get("sign", 1.0)
    shown = visible(s.own(q, k), 0.0)  # a bias by distance may leave next to nothing
    seen = seen_by_default(s, sizes.n_queries, sizes.n_keys)
    if not np.array_equal(shown, seen):
        if not _judge_visible(s, shown, seen, sizes):
            return
        seen = shown
    q, k, _ = s.draw(sizes=sizes)
    first = s.own(q, k)
    _judge_sums(s, first, sizes)
    if s.facts.get("decays"):
        s.skipped["length"] = "scores grow or shrink without bound with the distance"
        return
    if s.axis == "keys" and not s.found("long-rows"):
        _judge_ratios(s, q, k, first, seen, sizes)
    fine = s.tolerance < COARSE  # in half precision a cap may have gone unseen
    if fine and s.axis == "keys" and not s.found("long-rows", "distance") and not POSITIONED & set(s.facts):
        _judge_scores(s, q, k, first, seen, sizes)


def _judge_visible(s: Session, shown: Array, seen: Array, sizes: Sizes) -> bool:
    """Explain keys that are hidden at this length only. True goes on with what is shown."""
    lost = seen & ~shown
    columns = np.flatnonzero(lost.all(axis=0) | ~seen.any(axis=0))
    where = f"At {sizes.n_queries} queries and {sizes.n_keys} keys"
    ends = lost.any(axis=0)
    if lost.any() and columns.size and np.array_equal(ends, lost[-1] | ends) and _whole_columns(lost, seen):
        hidden = np.flatnonzero(ends)
        s.report("keys-dropped", f"{where}, keys {hidden[0]} to {hidden[-1]} get no weight in any row.")
        return False
    if not s.facts.get("visible_function") or s.facts.get("visibility") == "all keys":
        name = _window(shown)
        if name:
            s.facts["visibility"] = name
            s.report("hidden-by-default", f"{where}, {int(lost.sum())} pairs are hidden: {name}.")
            return True
    s.facts["visibility"] = f"{s.facts.get('visibility', 'all keys')}; other at {sizes.n_keys} keys"
    s.report(
        "hidden-by-default",
        f"{where}, {int(lost.sum())} pairs are hidden and {int((shown & ~seen).sum())} shown otherwise than at few.",
    )
    return True


def _whole_columns(lost: Array, seen: Array) -> bool:
    """Tell whether what is lost are whole columns, of all that would see them."""
    some = lost.any(axis=0)
    return bool((lost[:, some] == seen[:, some]).all())


def _window(shown: Array) -> str:
    n, m = shown.shape
    middle = n // 2
    keys = np.flatnonzero(shown[middle])
    if not keys.size:
        return ""
    left, right = middle - int(keys[0]), int(keys[-1]) - middle
    for offset, words in ((0, ""), (m - n, ", bottom-right")):
        if left >= 0 and np.array_equal(shown, triangle(0, bool(words), left + offset)(n, m)):
            return f"causal, window {left + offset + 1}{words}"
    if np.array_equal(shown, band(left, right)(n, m)):
        return f"window ({left}, {right})"
    sizes = range(2, m)
    found = [
        f"blocks of {b}{', causal' if c else ''}"
        for b in sizes
        for c in (False, True)
        if np.array_equal(shown, blocks(b, c)(n, m))
    ]
    found += [f"causal with a prefix of {b} keys" for b in sizes if np.array_equal(shown, prefix(b)(n, m))]
    return found[0] if found else ""


def _judge_sums(s: Session, weights: Array, sizes: Sizes) -> None:
    if s.axis != "keys" or "sink" in s.facts or s.found("row-sums"):
        return
    sums = np.nan_to_num(weights).sum(axis=-1)
    off = float(np.abs(sums[sums != 0] - 1).max(initial=0.0))
    if not np.isfinite(weights).all() or off > s.slack(8) * max(1.0, sizes.n_keys / 64):
        s.report("long-rows", f"At {sizes.n_keys} keys rows sum to {sums.min():.6g} … {sums.max():.6g}.")


def _judge_ratios(s: Session, q: Array, k: Array, first: Array, seen: Array, sizes: Sizes) -> None:
    """Lengthen every sixteenth key: the weights of all others keep their ratios in any softmax, whatever its scores."""
    raised, others = k.copy(), np.arange(sizes.n_keys) % SPACING != SPACING // 2
    raised[:, :, ~others] *= RAISED
    second = s.own(q, s.caller.rounded(raised))
    scores = [np.where(seen & others, s.score(weights), np.nan) for weights in (first, second)]
    both = np.isfinite(scores[0]) & np.isfinite(scores[1])
    change = centred(scores[1], both) - centred(scores[0], both)
    size = max(float(np.abs(x[both]).max(initial=0.0)) for x in scores)
    gap = np.where(both, np.abs(change), 0.0)
    if gap.max() > s.slack(16) * (1 + size):
        worst = int(np.unravel_index(int(gap.argmax()), gap.shape)[-1])
        s.report(
            "long-rows",
            f"At {sizes.n_keys} keys, longer keys elsewhere change the ratio of two other weights by up to "
            f"exp({gap.max():.3g}), most at key {worst}.",
        )


def _judge_scores(s: Session, q: Array, k: Array, first: Array, seen: Array, sizes: Sizes) -> None:
    """Scores must be in proportion to q·k row by row, as they are at few keys."""
    score = s.score(first)
    both = seen & np.isfinite(score)
    score, x = centred(score, both), centred(np.einsum("bhid,bhjd->bhij", q, k), both)
    y, z = np.where(both, score, 0.0), np.where(both, x, 0.0)
    slope = (y * z).sum(-1, keepdims=True) / np.maximum((z * z).sum(-1, keepdims=True), 1e-300)
    gap, size = np.abs(y - slope * z), float(np.abs(y).max())
    if gap.max() > s.slack(16) * (1 + size):
        worst = int(np.unravel_index(int(gap.argmax()), gap.shape)[-1])
        s.report(
            "long-rows",
            f"At {sizes.n_keys} keys scores are up to {gap.max():.3g} from proportion to q·k, most at key {worst}; "
            f"at {s.sizes.n_keys} they are in proportion.",
        )
