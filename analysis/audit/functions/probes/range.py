"""Probes of range and the rest: large scores, float16, grouped heads, gradients."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.audit.functions.adapter import CallFailed, to_numpy
from analysis.audit.functions.session import Array, Session, reference

LAMBDAS = (20.0, 100.0, 1e4, 3e4)
FLOAT16_T = 300.0
GRADIENT_PRECISION = 1e-5


def probe_range(s: Session) -> None:
    """Give one key a large score: its weight must be 1 and nothing else may break."""
    if s.axis != "keys" or s.found("softmax-axis") or s.facts.get("ignored") or s.facts.get("normalised"):
        return
    if s.found("nonlinear"):
        s.skipped["range"] = "the weights are no softmax of the scores"
        return
    law = s.facts.get("law")
    scale = abs(law.value) if law is not None else s.sizes.d_k**-0.5
    cap = s.facts.get("softcap", np.inf)
    if law is not None and law.value < 0:
        return
    for target in LAMBDAS:
        weights = _peaked(s, (target / scale) ** 0.5)
        expected = np.exp(-cap * np.tanh(target / cap)) if np.isfinite(cap) else np.exp(-target)
        rest = float(1 - weights.max(axis=-1).min())
        if np.isfinite(weights).all() and weights.max(axis=-1).min() == 0:
            s.report("overflow", f"At a score of {target:g} all weights of a row vanish.")
            return
        if not np.isfinite(weights).all():
            s.report("overflow", f"At a score of {target:g} the weights are {weights[~np.isfinite(weights)].flat[0]}.")
            return
        bound = s.sizes.n_keys * expected + s.tolerance + (1.0 if "sink" in s.facts and target < 20 else 0.0)
        if rest > bound and not s.found("large-scores", "position"):
            s.report(
                "large-scores", f"At a score of {target:g} the other keys keep {rest:.3g}, not {expected:.3g} each."
            )
            return
    _probe_float16(s, scale)


def _peaked(s: Session, t: float) -> Array:
    """Return the weights of rows that see key 0, q = k₀ = t·e₁, other keys 0."""
    z = s.sizes
    q, k = np.zeros((z.batch, z.heads, z.n_queries, z.d_k)), np.zeros((z.batch, z.heads, z.n_keys, z.d_k))
    q[..., 0] = t
    k[:, :, 0, 0] = t
    weights = s.own(q, k)
    pattern = s.facts.get("visible_function")
    rows = np.ones(z.n_queries, bool) if pattern is None else pattern(z.n_queries, z.n_keys)[:, 0]
    return weights[:, :, rows]


def _probe_float16(s: Session, scale: float) -> None:
    """Feed float16 whose raw products exceed 65504 while the scaled scores do not."""
    if FLOAT16_T**2 * scale > 6e4 or scale > 0.6:
        return
    half, original = s.caller.using(dtype="float16"), s.caller
    try:
        s.caller = half
        weights = _peaked(s, FLOAT16_T)
    except CallFailed as error:
        s.skipped["float16"] = str(error)
        return
    finally:
        s.caller = original
    if not np.isfinite(weights).all() or weights[..., 0].min() < 0.99:
        raw = FLOAT16_T**2
        s.report("float16-overflow", f"q·k = {raw:.0f} (scaled {raw * scale:.0f}) gives {weights[..., 0].flat[0]:.3g}.")


def probe_grouped(s: Session) -> None:
    """Give two key heads to four query heads: which reads which?"""
    if "h" not in s.caller.layout or s.axis != "keys" or s.found("softmax-axis", "attends-over-heads"):
        return
    if s.facts.get("ignored"):
        return
    sizes = replace(s.sizes, heads=4)
    q, k, _ = s.draw(sizes=sizes, key_heads=2)
    try:
        weights = s.read(q, k)
    except CallFailed as error:
        s.skipped["grouped heads"] = str(error)
        return
    by_value = np.nan_to_num(weights).sum(axis=(0, 2, 4)).argmax(axis=1)
    by_key = _key_heads(s, q, k, weights)
    s.facts["grouped"] = tuple(by_value.tolist())
    right = [0, 0, 1, 1]
    evidence = (
        f"Query heads 0-3 mix the values of key heads {by_value.tolist()} with weights from {by_key}; expected {right}."
    )
    if by_value.tolist() == right and by_key in (right, None):
        return
    s.report(
        "grouped-tiled" if by_value.tolist() == [0, 1, 0, 1] and by_key in ([0, 1, 0, 1], None) else "grouped-order",
        evidence,
    )


def _key_heads(s: Session, q: Array, k: Array, weights: Array) -> list[int] | None:
    law = s.facts.get("law")
    if law is None or s.facts.get("exact") is None:
        return None
    total = np.nan_to_num(weights).sum(axis=3)
    pattern = s.facts.get("visible_function")
    seen = None if pattern is None else pattern(q.shape[2], k.shape[2])
    gaps = [[_gap(total[:, h], q[:, h], k[:, g], law.value, seen) for g in range(2)] for h in range(4)]
    return [int(np.argmin(row)) for row in gaps]


def _gap(weights: Array, q: Array, k: Array, scale: float, seen: Array | None) -> float:
    return float(np.abs(weights - reference(q[:, None], k[:, None], scale, seen)[:, 0]).max())


def probe_gradient(s: Session) -> None:
    """Compare automatic derivatives with central differences in a random direction, argument by argument."""
    if s.caller.framework not in ("torch", "jax") or s.repeats > 1:
        s.skipped["gradient"] = "dropout is on" if s.repeats > 1 else "no automatic derivatives in NumPy"
        return
    precision = max(s.caller.precision, s.facts.get("noise", 0.0))
    if precision > GRADIENT_PRECISION:
        s.skipped["gradient"] = f"the function's precision of {precision:.2g} is too low for differences"
        return
    arrays = s.draw()
    upstream = s.rng.standard_normal((s.sizes.batch, s.sizes.heads, s.sizes.n_queries, s.sizes.d_k))
    try:
        gradients = (_torch_gradients if s.caller.framework == "torch" else _jax_gradients)(s, arrays, upstream)
    except Exception as error:  # whatever a stranger's code raises under differentiation
        s.skipped["gradient"] = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return
    step = precision ** (1 / 3)
    for place, name in enumerate(("query", "key", "value")):
        direction = s.rng.standard_normal(arrays[place].shape)
        moved = [list(arrays), list(arrays)]
        moved[0][place], moved[1][place] = arrays[place] + step * direction, arrays[place] - step * direction
        plus, minus = (float((upstream * s.caller(*a)).sum()) for a in moved)
        numeric, analytic = (plus - minus) / (2 * step), float((gradients[place] * direction).sum())
        scale = max(abs(numeric), abs(analytic), 1e-3 * float(np.abs(upstream).sum()))
        if abs(numeric - analytic) > 100 * step**2 * scale:
            s.report("gradient", f"In {name}: derivative {analytic:.6g}, central difference {numeric:.6g}.")


def _torch_gradients(s: Session, arrays: tuple[Array, ...], upstream: Array) -> list[Array]:
    torch = sys.modules["torch"]
    with torch.enable_grad():
        leaves = [s.caller.present(x).requires_grad_() for x in arrays]
        output = s.caller.native(*leaves, like=(arrays[0], arrays[1]))
        if not output.requires_grad:
            return [np.zeros_like(x) for x in arrays]
        output.backward(s.caller.present(upstream))
    return [_back(s, x.grad, a) for x, a in zip(leaves, arrays, strict=True)]


def _jax_gradients(s: Session, arrays: tuple[Array, ...], upstream: Array) -> list[Array]:
    jax = sys.modules["jax"]
    weight = s.caller.present(upstream)

    def total(*inputs: Any) -> Any:
        return (s.caller.native(*inputs, like=(arrays[0], arrays[1])) * weight).sum()

    gradients = jax.grad(total, argnums=(0, 1, 2))(*(s.caller.present(x) for x in arrays))
    return [_back(s, np.asarray(g), a) for g, a in zip(gradients, arrays, strict=True)]


def _back(s: Session, gradient: Any, like: Array) -> Array:
    from analysis.audit.functions.adapter import from_layout

    if gradient is None:
        return np.zeros_like(like)
    return from_layout(np.asarray(to_numpy(gradient), np.float64), s.caller.layout, like.shape, raw=s.caller.raw_split)
