"""Probes of masks: how each kind is read, rows with nothing visible, NaN behind a mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.mask_forms import Form, attempt, forms
from analysis.audit.functions.probes.mask_reading import Reading, changes_like, masked_weights, read_mask
from analysis.audit.functions.probes.visibility import seen_by_default, visible
from analysis.audit.functions.session import HIDDEN, Session, distance

WORDS = {"padding": "padding mask", "mask": "mask"}


def probe_mask(s: Session) -> None:
    """Hide keys by boolean, integer and floating masks, in every documented shape; tell how each is read."""
    names = s.caller.arguments
    arguments = [a for a, name in (("mask", names.mask), ("padding", names.padding)) if name is not None]
    if not arguments:
        s.skipped["mask"] = "no mask argument"
        return
    if s.axis in ("none", "queries", "heads", "batch") or s.found("softmax-axis", "nonlinear", "no-softmax"):
        s.skipped["mask"] = "the weights are no softmax over keys"
        return
    for argument in arguments:
        _probe_argument(s, argument)


def _probe_argument(s: Session, argument: str) -> None:
    sizes = s.sizes
    # a transposed mask broadcasts only where lengths are equal
    if _probe_kinds(s, argument) or sizes.n_queries == sizes.n_keys:
        return
    refusal = s.skipped.get(WORDS[argument], "")
    s.sizes = replace(sizes, n_queries=sizes.n_keys)
    try:
        if _probe_kinds(s, argument):
            s.skipped[f"{WORDS[argument]} of unequal lengths"] = refusal
    finally:
        s.sizes = sizes


def _scene(s: Session, form: Form) -> tuple[Array, Array, Array]:
    """Return queries, keys and what a random mask shows, (batch, n_queries, n_keys): every row shows and hides some."""
    q, k, _ = s.draw()
    z = s.sizes
    table = s.rng.random((z.batch, z.n_queries, z.n_keys)) < 0.6
    if form.by_query:
        table[:, 1, 2], table[:, 2 % z.n_queries, 1] = False, True
    table[:, :, 0] = True
    full = table.all(axis=2)
    table[full, -1] = False
    if not form.by_item:
        table[:] = table[:1]
    if not form.by_query:
        table[:] = table[:, :1]
        for item in range(z.batch if form.by_item else 0):
            table[item, :, 1 + item % (z.n_keys - 1)] = bool(item % 2)
        table[:, :, -1] = False
    return q, k, table


def _accepted(s: Session, argument: str, kind: str) -> list[tuple[Form, Reading]]:
    """Return the first form that is read as documented, or else all that are accepted, with their readings."""
    found: list[tuple[Form, Reading]] = []
    drop = s.mask_means == "drop"
    for form in forms(s, argument, kind, drop):
        q, k, table = _scene(s, form)
        plain = s.own(q, k)
        _remember_scores(s, q, k)
        masked = attempt(s, q, k, form, form.present(table, s.sizes))
        if masked is None:
            continue
        reading = read_mask(s, plain, masked, table[:, None])
        if not reading.code and (form.by_query or not any(f.by_query for f, _ in found)):
            return [(form, reading)]
        if reading.code:
            found.append((form, reading))
    return found


def _remember_scores(s: Session, q: Array, k: Array) -> None:
    """Keep the scores themselves, where they are known, for the reading of a fill."""
    by_row = s.facts.get("by_row")
    s.facts["scores"] = None
    if by_row is None or "rotary" in s.facts or s.facts.get("normalised") or s.facts.get("biased"):
        return
    if by_row.shape != (q.shape[1], q.shape[2]):
        by_row = np.full((q.shape[1], q.shape[2]), np.nanmean(by_row))
    x = np.einsum("bhid,bhjd->bhij", q, k) * by_row[None, :, :, None]
    s.facts["scores"] = s.facts["softcap"] * np.tanh(x / s.facts["softcap"]) if "softcap" in s.facts else x


def _probe_kinds(s: Session, argument: str) -> bool:
    """Give boolean, floating and, where neither is taken, integer masks; False when the function refuses all."""
    word = WORDS[argument]
    boolean = _accepted(s, argument, "boolean")
    floating = [f for f in forms(s, argument, "floating", False) if _takes_floats(s, f)]
    additive = any(_adds(s, f) for f in floating[:3])
    if not boolean and not additive:
        boolean = _accepted(s, argument, "integer")
    if not boolean and not floating:
        s.skipped[word] = s.facts.get("refusal", "refused")
        return False
    s.skipped.pop(word, None)
    form, reading = boolean[0] if boolean else (None, Reading(""))
    if form is not None and reading.code:
        form, reading = _simplest(boolean)
    if form is not None and reading.code != "mask-inverted" and _changes_when_open(s, form):
        return True
    if reading.code and form is not None:
        form, reading = _judge(s, form, reading, additive)
    elif floating and not additive and not s.found("mask-transposed", "mask-scaled"):
        _explain_floats(s, floating[0], form)
    good = None if form is None or reading.code else form
    s.facts[argument] = _words(good, additive)
    if good is not None:
        for probe in (_probe_batch_order, _probe_empty_row, _probe_nan, _probe_with_causal):
            probe(s, good)
    return True


def _simplest(found: list[tuple[Form, Reading]]) -> tuple[Form, Reading]:
    """Prefer the form whose misreading has a name; a mask that takes several shapes by query is meant by query."""
    by_query = [pair for pair in found if pair[0].by_query]
    found = by_query if len(by_query) > 1 else found
    return next((pair for pair in found if pair[1].code not in ("mask-position", "mask-ignored")), found[0])


def _judge(s: Session, form: Form, reading: Reading, additive: bool) -> tuple[Form, Reading]:
    """Report a mask that is not read as documented, unless its own convention is what was found."""
    if form.argument == "padding" and s.mask_means is None and reading.code == "mask-inverted":
        other = replace(form, drop=True)
        s.report(
            "padding-convention",
            f"{reading.evidence} True hides a key here, as in nn.MultiheadAttention; shape {form}.",
        )
        return other, Reading("")
    if (
        reading.code == "mask-ignored"
        and s.caller.arguments.guess
        and form.argument == "mask"
        and s.facts.get("guessed")
    ):
        return form, reading
    words: str | None = None
    severity: str | None = None
    if reading.code == "mask-added" and additive:
        words = "A boolean mask is added to the scores as 0 and 1; only floating masks (0 and -inf) hide keys."
        severity = "warning"
    if not s.found(reading.code):
        s.report(reading.code, f"{reading.evidence} Mask of shape {form}.", words, severity=severity)
    return form, reading


def _words(form: Form | None, additive: bool) -> str:
    kinds = [word for word, ok in ((form.kind if form else "", form is not None), ("floating", additive)) if ok]
    shape = f", {form}" if form is not None and not form.by_query else ""
    return (" and ".join(kinds) or "none read as documented") + shape


def _changes_when_open(s: Session, form: Form) -> bool:
    """A mask that hides nothing must change nothing."""
    q, k, table = _scene(s, form)
    plain, opened = s.own(q, k), attempt(s, q, k, form, form.present(np.ones_like(table), s.sizes))
    if opened is None or distance(opened, plain) <= s.slack(4):
        return False
    if s.axis == "keys" and np.abs(opened.sum(-1) - plain.sum(-1)).max() > s.slack(4):
        return False
    s.report("mask-all-true", f"An all-visible boolean mask moves weights by {distance(opened, plain):.3g}.")
    s.facts[form.argument] = "changes the result even where it hides nothing"
    return True


def _takes_floats(s: Session, form: Form) -> bool:
    q, k, table = _scene(s, form)
    return attempt(s, q, k, form, np.zeros(form.shape(table, s.sizes).shape)) is not None


def _biased(s: Session, form: Form) -> tuple[Array, Array, Array] | None:
    """Return plain and biased weights and the bias, (batch, 1, n_queries, n_keys); None where refused."""
    q, k, _ = _scene(s, form)
    bias = np.asarray(s.rng.standard_normal((s.sizes.batch, s.sizes.n_queries, s.sizes.n_keys)))
    bias = bias if form.by_item else np.broadcast_to(bias[:1], bias.shape)
    bias = bias if form.by_query else np.broadcast_to(bias[:, :1], bias.shape)
    bias = s.caller.rounded(np.array(bias))
    shifted = attempt(s, q, k, form, form.shape(bias, s.sizes))
    return None if shifted is None else (s.own(q, k), shifted, bias[:, None])


def _adds(s: Session, form: Form) -> bool:
    """Tell whether a floating mask is added to the scores; report one that is added transposed or before scaling."""
    found = _biased(s, form)
    if found is None:
        return False
    plain, shifted, bias = found
    slack = s.slack(64)
    if changes_like(s, plain, shifted, bias) < slack:
        return True
    turned = changes_like(s, plain, shifted, bias.swapaxes(-1, -2)) if bias.shape[2] == bias.shape[3] else np.inf
    if turned < slack:
        if not s.found("mask-transposed"):
            s.report("mask-transposed", f"A bias of shape {form} acts as its transpose, within {turned:.2g}.")
        return False
    law = s.facts.get("law")
    value = 1.0 if law is None or "softcap" in s.facts else law.value
    if abs(value - 1) > 1e-3 and not s.found("mask-scaled") and changes_like(s, plain, shifted, value * bias) < slack:
        s.report("mask-scaled", f"A bias b moves the score by {value:.6g}·b.")
    return False


def _explain_floats(s: Session, form: Form, boolean: Form | None) -> None:
    found = _biased(s, form)
    if found is None:
        return
    gap = changes_like(s, found[0], found[1], found[2])
    s.report("mask-boolean-only", f"A random bias moves scores by {gap:.3g} more or less than itself.")
    if boolean is None:  # then -inf is all that can hide
        q, k, table = _scene(s, form)
        masked = attempt(s, q, k, form, form.present(table, s.sizes))
        reading = None if masked is None else read_mask(s, s.own(q, k), masked, table[:, None])
        if reading is not None and reading.code:
            s.report(reading.code, reading.evidence)


def _probe_batch_order(s: Session, form: Form) -> None:
    """Give every batch item its own mask."""
    if s.sizes.batch < 2:
        return
    q, k, _ = s.draw()
    plain = s.own(q, k)
    kinds = [form, *(replace(form, axes=axes) for axes in ("b1ij", "b11j", "bij", "bj") if axes != form.axes)]
    for one in (f for f in kinds if f.by_item):
        table = np.ones((s.sizes.batch, s.sizes.n_queries, s.sizes.n_keys), bool)
        for item in range(s.sizes.batch):
            table[item, :, (item + 1) % s.sizes.n_keys] = False
        weights = attempt(s, q, k, one, one.present(table, s.sizes))
        if weights is None:
            continue
        wanted = masked_weights(s, plain, table[:, None])
        gap = distance(np.nan_to_num(weights), wanted)
        if gap < s.slack(16):
            s.facts["mask_shape"] = one.axes
            return
        if len(one.axes) == 4 or one.axes == form.axes:
            s.report("mask-batch-order", f"With one mask per batch item, weights are wrong by up to {gap:.3g}.")
            return


def _probe_empty_row(s: Session, form: Form) -> None:
    q, k, table = _scene(s, form)
    table[:] = True
    place = (slice(None), 1) if form.by_query and s.sizes.n_queries > 1 else (-1,) if form.by_item else (slice(None),)
    table[place] = False
    weights = attempt(s, q, k, form, form.present(table, s.sizes))
    if weights is None:
        return
    empty = ~np.asarray(table.any(axis=-1))
    row = weights[np.broadcast_to(empty[:, None], weights.shape[:3])]
    if not np.isfinite(row).all():
        s.report("masked-row-nan", f"A row without a visible key has weights {row.flat[0]}.")
    elif np.abs(row).max(initial=0.0) > HIDDEN:
        s.report("masked-row-attends", f"A row without a visible key has weights of sum {row.sum(axis=-1).mean():.3g}.")
    s.facts["masked_row"] = (
        "NaN" if not np.isfinite(row).all() else "0" if np.abs(row).max(initial=0) <= HIDDEN else "attends"
    )


def _key_hidden(s: Session, form: Form) -> Array:
    table = np.ones((s.sizes.batch, s.sizes.n_queries, s.sizes.n_keys), bool)
    table[:, :, 1 % s.sizes.n_keys] = False
    return form.present(table, s.sizes)


def _probe_nan(s: Session, form: Form) -> None:
    q, k, _ = s.draw()
    leaks = []
    for name in ("key", "value"):
        bad_k, bad_v = k.copy(), np.ones_like(k)
        (bad_k if name == "key" else bad_v)[:, :, 1] = np.nan
        masks = {form.argument: _key_hidden(s, form)}
        try:
            if not np.isfinite(s.caller(q, bad_k, bad_v, **masks)).all():  # type: ignore[arg-type]
                leaks.append(name)
        except CallFailed as error:
            s.skipped["NaN behind a mask"] = str(error)
            return
    if leaks:
        s.report("nan-leak", f"NaN in a hidden {' and in a hidden '.join(leaks)} makes visible outputs NaN.")
    s.facts["nan_leak"] = tuple(leaks)


def _probe_with_causal(s: Session, form: Form) -> None:
    pattern: Callable[[int, int], Array] | None = s.facts.get("causal_function")
    if pattern is None or s.caller.arguments.causal is None:
        return
    q, k, _ = s.draw()
    n, m = s.sizes.n_queries, s.sizes.n_keys
    try:
        weights = s.own(q, k, causal=True, **{form.argument: _key_hidden(s, form)})
    except CallFailed as error:
        s.facts["mask_and_causal"] = f"refused ({error})"
        return
    wanted = np.asarray(np.broadcast_to(np.arange(m) != 1, (n, m)) & pattern(n, m) & seen_by_default(s, n, m))
    rows = wanted.any(axis=1)  # rows with nothing visible are another matter
    extra = np.asarray(visible(weights))[rows] & ~wanted[rows]
    s.facts["mask_and_causal"] = "do not intersect" if extra.any() else "intersect"
    if extra.any():
        s.report("causal-mask-replaced", f"{int(extra.sum())} pairs are visible that one of the two hides.")
