"""First probes: randomness, ignored arguments, and whether the output is linear in the values at all."""

from __future__ import annotations

import numpy as np

from analysis.audit.functions.session import REPEATS_UNDER_DROPOUT, Session, distance

DROPOUT_CALLS = 400
READINGS = 20
HALF = 2.0**-5


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
    readings = np.stack([s.own(q, k) for _ in range(READINGS)])
    zeros, sums = float((readings == 0).mean()), readings.sum(axis=-1)
    kept = readings.max(axis=0)
    whole = (readings == 0) | (np.abs(readings - kept) <= s.tolerance * np.abs(kept))
    if not zeros or not whole.all() or np.ptp(sums, axis=0).max() < s.tolerance:
        s.report(
            "random-output",
            f"Over {READINGS} calls a weight moves by up to {np.ptp(readings, axis=0).max():.3g}; {zeros:.0%} are 0.",
        )
        return False
    ones = np.ones_like(v)
    means = np.stack([s.caller(q, k, ones) for _ in range(DROPOUT_CALLS)]).mean(axis=(1, 2, 3, 4))
    mean, error = float(means.mean()), float(means.std(ddof=1) / np.sqrt(DROPOUT_CALLS))
    kind = "kept weights are divided by 1 - p" if abs(mean - 1) < 4 * error else "kept weights are not rescaled"
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
        if name == "value" or not s.facts.get("intended_zero"):
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


def probe_linearity(s: Session) -> bool:
    """Add and double values: weights can be read only from an output that is linear in them. False stops the audit."""
    if s.repeats > 1:
        return True
    q, k, v = s.draw()
    _, _, other = s.draw()
    at_zero, one, two = s.caller(q, k, np.zeros_like(v)), s.caller(q, k, v), s.caller(q, k, other)
    size = max(float(np.abs(one).max()), float(np.abs(two).max()))
    bound = max(s.slack(16), HALF) * size  # a function may compute in half precision whatever its inputs
    both = distance(s.caller(q, k, s.caller.rounded(v + other)), one + two - at_zero)
    if np.abs(at_zero).max() > bound and both <= bound:
        s.report("offset", f"With all values 0 the output is up to {np.abs(at_zero).max():.3g}.")
        s.skipped["rest"] = "weights are read through single values, to which something is added here"
        return False
    if both > bound or not np.isfinite(both):
        s.report("nonlinear-values", f"f(v + v') differs from f(v) + f(v') by {both:.3g}.")
        s.skipped["rest"] = "weights can only be read from an output that is linear in the values"
        return False
    return True
