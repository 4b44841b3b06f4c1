"""How a boolean and a floating mask are read: the hypothesis that explains the weights under a random mask."""

from __future__ import annotations

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.probes.visibility import visible
from analysis.audit.functions.session import HIDDEN, Array, Session, distance


def attempt(s: Session, q: Array, k: Array, mask: Array) -> Array | None:
    """Return the weights under a mask, or None (with the reason kept) where the function refuses it."""
    try:
        return s.own(q, k, mask=mask)
    except CallFailed as error:
        s.skipped["mask"] = str(error)
        return None


def read_boolean(s: Session, q: Array, k: Array, plain: Array) -> str:
    """Return the code of what is wrong with a boolean mask, or ""; the evidence goes to the facts."""
    visible_pairs = s.rng.random(plain.shape[2:]) < 0.6
    visible_pairs[:, 0], visible_pairs[1, 2], visible_pairs[2, 1] = True, False, True
    visible_pairs[visible_pairs.all(axis=1), -1] = False  # every row hides a key, so that both polarities show
    given = visible_pairs if s.mask_means == "keep" else ~visible_pairs
    masked = attempt(s, q, k, given)
    if masked is None:
        return ""
    hidden_mass = float(np.nan_to_num(masked)[..., ~visible_pairs].sum() / masked[..., 0].size)
    wanted = renormalised(plain, visible_pairs)
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


def renormalised(plain: Array, factor: Array) -> Array:
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
        if any(_fits(shown, renormalised(plain, factor), tolerance) for factor in factors):
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


def read_floating(s: Session, q: Array, k: Array, plain: Array) -> bool:
    """Tell whether a floating mask is added to the scores; report one that is added before scaling."""
    bias = s.rng.standard_normal(plain.shape[2:])
    shifted = attempt(s, q, k, bias)
    if shifted is None:
        return False
    wanted = renormalised(plain, np.exp(bias))
    if distance(np.nan_to_num(shifted), wanted) < 16 * s.tolerance:
        return True
    if bias.shape[0] == bias.shape[1]:
        turned = distance(np.nan_to_num(shifted), renormalised(plain, np.exp(bias.T)))
        if turned < 16 * s.tolerance:
            evidence = f"A random {bias.shape} bias acts as its transpose within {turned:.2g}, not as itself."
            s.report("mask-transposed", evidence)
            return False
    law = s.facts.get("law")
    if law is not None and "softcap" not in s.facts:
        scaled = renormalised(plain, np.exp(law.value * bias))
        if distance(np.nan_to_num(shifted), scaled) < 16 * s.tolerance and abs(law.value - 1) > 1e-3:
            s.report("mask-scaled", f"A bias b moves the score by {law.value:.6g}·b.")
            return False
    s.report(
        "mask-boolean-only", f"A random bias gives weights {distance(shifted, wanted):.3g} from softmax(scores + bias)."
    )
    return False
