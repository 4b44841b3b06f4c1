"""Probes of masks: how each kind is read, rows with nothing visible, NaN behind a mask."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.audit.adapter import CallFailed
from analysis.audit.probe_visibility import Pattern, visible
from analysis.audit.probing import HIDDEN, Array, Session, distance


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
        if _probe_kinds(s):
            s.skipped["mask of unequal lengths"] = refusal
        s.sizes = sizes


def _probe_kinds(s: Session) -> bool:
    """Give a boolean and a floating mask; False when the function refuses both."""
    q, k, _ = s.draw()
    keep = np.ones((s.sizes.n_queries, s.sizes.n_keys), bool)
    plain = s.own(q, k)
    if s.mask_means == "drop":
        keep = ~keep
    boolean = _try(s, q, k, keep)
    floating = _try(s, q, k, np.zeros(keep.shape))
    if boolean is None and floating is None:
        return False
    s.skipped.pop("mask", None)
    problem = "" if boolean is None else _read_boolean(s, q, k, plain)
    if (
        boolean is not None
        and problem != "mask-inverted"  # which, with a finite fill, makes rows that see all keys uniform
        and distance(boolean, plain) > s.tolerance
        and np.abs(boolean.sum(-1) - 1).max() < s.tolerance
    ):
        s.report("mask-all-true", f"An all-visible boolean mask moves weights by {distance(boolean, plain):.3g}.")
        s.facts["mask"] = "changes the result even where it hides nothing"
        return True
    additive = floating is not None and _read_floating(s, q, k, plain)
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


def _try(s: Session, q: Array, k: Array, mask: Array) -> Array | None:
    try:
        return s.own(q, k, mask=mask)
    except CallFailed as error:
        s.skipped["mask"] = str(error)
        return None


def _read_boolean(s: Session, q: Array, k: Array, plain: Array) -> str:
    """Return the code of what is wrong with a boolean mask, or ""; the evidence goes to the facts."""
    visible_pairs = s.rng.random(plain.shape[2:]) < 0.6
    visible_pairs[:, 0], visible_pairs[1, 2], visible_pairs[2, 1] = True, False, True
    visible_pairs[visible_pairs.all(axis=1), -1] = False  # every row hides a key, so that both polarities show
    given = visible_pairs if s.mask_means == "keep" else ~visible_pairs
    masked = _try(s, q, k, given)
    if masked is None:
        return ""
    hidden_mass = float(np.nan_to_num(masked)[..., ~visible_pairs].sum() / masked[..., 0].size)
    wanted = _renormalised(plain, visible_pairs)
    # a function may hide keys unasked (always causal): compare where both agree that something is visible
    if distance(np.nan_to_num(masked), wanted) < 16 * s.tolerance:
        return ""
    code = _explain_mask(s, plain, masked, visible_pairs)
    s.facts["mask_evidence"] = (
        f"Of {int((~visible_pairs).sum())} hidden pairs, {int(visible(masked)[~visible_pairs].sum())} keep weight, "
        f"{hidden_mass:.3g} per row; visible ones differ from renormalised weights by up to "
        f"{distance(np.nan_to_num(masked)[..., visible_pairs], wanted[..., visible_pairs]):.3g}."
    )
    return code


def _renormalised(plain: Array, factor: Array) -> Array:
    """Return the weights that the same scores give once their exponentials are multiplied by a factor (0: hidden)."""
    whole = np.nan_to_num(plain)
    kept, sink = whole * factor, 1 - whole.sum(axis=-1, keepdims=True)
    total = kept.sum(axis=-1, keepdims=True) + np.where(np.abs(sink) < 1e-3, 0.0, sink)
    result: Array = np.divide(kept, total, out=np.zeros_like(kept), where=total > 0)
    return result


def _explain_mask(s: Session, plain: Array, masked: Array, pairs: Array) -> str:
    tolerance, shown = 16 * s.tolerance, np.nan_to_num(masked)
    if distance(shown, plain) < tolerance:
        return "mask-ignored"
    if distance(shown, plain * pairs) < tolerance:
        return "mask-after-softmax"
    hypotheses = {"mask-inverted": [~pairs], "mask-transposed": []}
    if pairs.shape[0] == pairs.shape[1]:
        hypotheses["mask-transposed"] = [pairs.T, np.exp(pairs.T.astype(float))]  # hiding, or added as 0 and 1
    for code, factors in hypotheses.items():
        if any(_fits(shown, _renormalised(plain, factor), tolerance) for factor in factors):
            return code
    with np.errstate(all="ignore"):
        change = np.log(masked) - np.log(plain)
        change -= change[..., :1]  # key 0 is visible to all
    off, on = change[..., ~pairs], change[..., pairs]
    if np.isfinite(off).all() and np.abs(on).max(initial=0.0) < 1e3 * s.tolerance:
        if np.ptp(off) < 1e3 * s.tolerance:
            added = float(off.mean())
            return "mask-added" if abs(added + 1) < 1e-3 else "mask-leaks"
        law = s.facts.get("softcap")
        return "softcap-after-mask" if law is not None else "mask-multiplied"
    return "mask-position"


def _fits(shown: Array, wanted: Array, tolerance: float) -> bool:
    """Compare the rows in which something stays visible: the others are 0, NaN or uniform as a function pleases."""
    rows = wanted.sum(axis=-1) > HIDDEN
    return bool(rows.any()) and distance(shown[rows], wanted[rows]) < tolerance


def _read_floating(s: Session, q: Array, k: Array, plain: Array) -> bool:
    """Tell whether a floating mask is added to the scores; report one that is added before scaling."""
    bias = s.rng.standard_normal(plain.shape[2:])
    shifted = _try(s, q, k, bias)
    if shifted is None:
        return False
    wanted = _renormalised(plain, np.exp(bias))
    if distance(np.nan_to_num(shifted), wanted) < 16 * s.tolerance:
        return True
    if bias.shape[0] == bias.shape[1]:
        turned = distance(np.nan_to_num(shifted), _renormalised(plain, np.exp(bias.T)))
        if turned < 16 * s.tolerance:
            evidence = f"A random {bias.shape} bias acts as its transpose within {turned:.2g}, not as itself."
            s.report("mask-transposed", evidence)
            return False
    law = s.facts.get("law")
    if law is not None and "softcap" not in s.facts:
        scaled = _renormalised(plain, np.exp(law.value * bias))
        if distance(np.nan_to_num(shifted), scaled) < 16 * s.tolerance and abs(law.value - 1) > 1e-3:
            s.report("mask-scaled", f"A bias b moves the score by {law.value:.6g}·b.")
            return False
    s.report(
        "mask-boolean-only", f"A random bias gives weights {distance(shifted, wanted):.3g} from softmax(scores + bias)."
    )
    return False


def _probe_batch_order(s: Session, q: Array, k: Array, plain: Array) -> None:
    """Give every batch item its own mask."""
    if s.sizes.batch < 2:
        return
    masks = np.ones((s.sizes.batch, 1, 1, s.sizes.n_keys), bool)
    for item in range(s.sizes.batch):
        masks[item, ..., item + 1] = False
    wanted = _renormalised(plain, masks)
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
    weights = _try(s, q, k, mask if s.mask_means == "keep" else ~mask)
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
