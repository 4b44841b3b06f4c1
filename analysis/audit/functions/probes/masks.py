"""Probes of masks: how each kind is read, rows with nothing visible, NaN behind a mask."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.probes.mask_reading import attempt, read_boolean, read_floating, renormalised
from analysis.audit.functions.probes.visibility import Pattern, visible
from analysis.audit.functions.session import HIDDEN, Array, Session, distance


def probe_mask(s: Session) -> None:
    """Hide keys by a boolean mask and by a floating one; tell how each is read."""
    if s.caller.arguments.mask is None:
        s.skipped["mask"] = "no mask argument"
        return
    if s.axis != "keys" or s.found("softmax-axis"):
        s.skipped["mask"] = "softmax does not run over the keys"
        return
    if s.found("nonlinear"):
        s.skipped["mask"] = "the weights are no softmax of the scores"
        return
    sizes = s.sizes
    # a transposed mask broadcasts only where lengths are equal
    if not _probe_kinds(s) and sizes.n_queries != sizes.n_keys:
        refusal = s.skipped["mask"]
        s.sizes = replace(sizes, n_queries=sizes.n_keys)
        try:
            if _probe_kinds(s):
                s.skipped["mask of unequal lengths"] = refusal
        finally:
            s.sizes = sizes


def _probe_kinds(s: Session) -> bool:
    """Give a boolean and a floating mask; False when the function refuses both."""
    q, k, _ = s.draw()
    keep = np.ones((s.sizes.n_queries, s.sizes.n_keys), bool)
    plain = s.own(q, k)
    if s.mask_means == "drop":
        keep = ~keep
    boolean = attempt(s, q, k, keep)
    floating = attempt(s, q, k, np.zeros(keep.shape))
    if boolean is None and floating is None:
        return False
    s.skipped.pop("mask", None)
    problem = "" if boolean is None else read_boolean(s, q, k, plain)
    if (
        boolean is not None
        and problem != "mask-inverted"  # which, with a finite fill, makes rows that see all keys uniform
        and distance(boolean, plain) > s.tolerance
        and np.abs(boolean.sum(-1) - 1).max() < s.tolerance
    ):
        s.report("mask-all-true", f"An all-visible boolean mask moves weights by {distance(boolean, plain):.3g}.")
        s.facts["mask"] = "changes the result even where it hides nothing"
        return True
    additive = floating is not None and read_floating(s, q, k, plain)
    if problem == "mask-added" and additive:
        s.report(
            problem,
            s.facts.pop("mask_evidence"),
            "A boolean mask is added to the scores as 0 and 1; only floating masks (0 and -inf) hide keys.",
            severity="warning",
        )
    elif problem and not s.found(problem):
        s.report(problem, s.facts.pop("mask_evidence"))
    s.facts["mask"] = _mask_words(boolean is not None and not problem, additive)
    if problem or (boolean is None and not additive):
        return True
    if boolean is not None:
        _probe_batch_order(s, q, k, plain)
        _probe_empty_row(s, q, k)
        _probe_nan(s, q, k)
        _probe_mask_and_causal(s, q, k)
    return True


def _mask_words(boolean: bool, additive: bool) -> str:
    words = [word for word, ok in (("boolean", boolean), ("floating", additive)) if ok]
    return " and ".join(words) or "none read as documented"


def _probe_batch_order(s: Session, q: Array, k: Array, plain: Array) -> None:
    """Give every batch item its own mask."""
    if s.sizes.batch < 2:
        return
    masks = np.ones((s.sizes.batch, 1, 1, s.sizes.n_keys), bool)
    for item in range(s.sizes.batch):
        masks[item, ..., item + 1] = False
    wanted = renormalised(plain, masks)
    for shape in ((s.sizes.batch, 1, 1, s.sizes.n_keys), (s.sizes.batch, 1, s.sizes.n_queries, s.sizes.n_keys),
                  (s.sizes.batch, s.sizes.n_queries, s.sizes.n_keys), (s.sizes.batch, s.sizes.n_keys)):  # fmt: skip
        mask = np.broadcast_to(masks, (s.sizes.batch, 1, s.sizes.n_queries, s.sizes.n_keys))
        mask = masks[:, 0, 0] if len(shape) == 2 else mask[:, :, : shape[-2]].reshape(shape)
        try:
            weights = np.nan_to_num(s.own(q, k, mask=mask if s.mask_means == "keep" else ~mask))
        except CallFailed:
            continue
        if distance(weights, wanted) < 16 * s.tolerance:
            s.facts["mask_shape"] = shape
            return
        if len(shape) == 4:
            gap = distance(weights, wanted)
            s.report("mask-batch-order", f"With one mask per batch item, weights are wrong by up to {gap:.3g}.")
            return


def _probe_empty_row(s: Session, q: Array, k: Array) -> None:
    mask = np.ones((s.sizes.n_queries, s.sizes.n_keys), bool)
    mask[1] = False
    weights = attempt(s, q, k, mask if s.mask_means == "keep" else ~mask)
    if weights is None:
        return
    row = weights[:, :, 1]
    if not np.isfinite(row).all():
        s.report("masked-row-nan", f"Row 1 has no visible key; its weights are {row.flat[0]}.")
    elif np.abs(row).max() > HIDDEN:
        s.report("masked-row-attends", f"Row 1 has no visible key; its weights sum to {row.sum(axis=-1).mean():.3g}.")
    s.facts["masked_row"] = "NaN" if not np.isfinite(row).all() else "0" if np.abs(row).max() <= HIDDEN else "attends"


def _probe_nan(s: Session, q: Array, k: Array) -> None:
    hidden = np.ones((s.sizes.n_queries, s.sizes.n_keys), bool)
    hidden[:, 1] = False
    given = hidden if s.mask_means == "keep" else ~hidden
    leaks = []
    for name in ("key", "value"):
        bad_k, bad_v = k.copy(), np.ones_like(k)
        (bad_k if name == "key" else bad_v)[:, :, 1] = np.nan
        if not np.isfinite(s.caller(q, bad_k, bad_v, mask=given)).all():
            leaks.append(name)
    if leaks:
        s.report("nan-leak", f"NaN in a hidden {' and in a hidden '.join(leaks)} makes visible outputs NaN.")
    s.facts["nan_leak"] = tuple(leaks)


def _probe_mask_and_causal(s: Session, q: Array, k: Array) -> None:
    pattern: Pattern | None = s.facts.get("causal_function")
    if pattern is None:
        return
    mask = np.ones((s.sizes.n_queries, s.sizes.n_keys), bool)
    mask[:, 1] = False
    try:
        weights = s.own(q, k, mask=mask if s.mask_means == "keep" else ~mask, causal=True)
    except CallFailed as error:
        s.facts["mask_and_causal"] = f"refused ({error})"
        return
    wanted = mask & pattern(s.sizes.n_queries, s.sizes.n_keys)
    seen = visible(weights)
    s.facts["mask_and_causal"] = "intersect"
    extra = seen & ~wanted & wanted.any(axis=1, keepdims=True)  # rows with nothing visible are another matter
    if extra.any():
        s.facts["mask_and_causal"] = "do not intersect"
        s.report("causal-mask-replaced", f"{int(extra.sum())} pairs are visible that one of the two hides.")
