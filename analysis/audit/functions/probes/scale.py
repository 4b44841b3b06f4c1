"""The effective scale, exactly, its law in d_k, heads and keys, the soft-cap, and normalised queries or keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.scale_law import ScaleLaw, name_law
from analysis.audit.functions.session import HIDDEN, Array, Session, Sizes, distance

LINEAR = 1e-4
STRAIGHT = 0.01
LOW_PRECISION = 5e-3


def log_ratio(s: Session, a: float, b: float, sizes: Sizes | None = None) -> float:
    """
    Return the score difference that q = a·e₁, k = b·e₁ has over k = b·e₃, from the logarithm of a weight ratio.

    The same reading with e₃ everywhere is subtracted, so that a bias by position drops out.
    """
    return _log_ratio(s, a, b, sizes or s.sizes, special=0) - _log_ratio(s, a, b, sizes or s.sizes, special=1)


def _log_ratio(s: Session, a: float, b: float, z: Sizes, special: int) -> float:
    # e₃, not e₂: rotary embeddings turn e₁ within a pair of channels, (1, 2) or (1, 1 + d/2)
    units = np.eye(z.d_k)[[0, min(2, z.d_k - 1)]]
    q, k = np.zeros((z.batch, z.heads, z.n_queries, z.d_k)), np.zeros((z.batch, z.heads, z.n_keys, z.d_k))
    q[...], k[...] = a * units[0], b * units[1]
    row, first, second = _places(s, z)
    if s.axis == "keys":
        k[:, :, first] = b * units[special]
        weights = s.own(q, k)[0, 0, row]
        pair = weights[first], weights[second]
    else:
        k[...], q[...] = b * units[0], a * units[1]
        index = {"queries": (slice(None), slice(None), 0), "heads": (slice(None), 0), "batch": (0,)}[s.axis]
        q[index] = a * units[special]
        weights = s.own(q, k)
        other = {"queries": (0, 0, 1, 0), "heads": (0, 1, 0, 0), "batch": (1, 0, 0, 0)}[s.axis]
        pair = weights[0, 0, 0, 0], weights[other]
    with np.errstate(all="ignore"):
        return float(np.log(pair[0]) - np.log(pair[1]))


def _places(s: Session, z: Sizes) -> tuple[int, int, int]:
    """Return a row, the key at its own position where it sees that (rotary angle 0), and another key that it sees."""
    visible = s.facts.get("visible_function")
    pattern = np.ones((z.n_queries, z.n_keys), bool) if visible is None else visible(z.n_queries, z.n_keys)
    for row in reversed(range(min(z.n_queries, z.n_keys))):
        seen = np.flatnonzero(pattern[row])
        if row in seen and len(seen) > 1:
            return row, row, int(seen[seen != row][0])
    row = int(np.argmax(pattern.sum(axis=1)))
    first, second = np.flatnonzero(pattern[row])[:2]
    return row, int(first), int(second)


def probe_scale(s: Session, intended: Callable[[int, int], float] | None, label: str) -> None:
    """Measure the scale and its law; compare with the intended one."""
    if s.axis == "none" or s.facts.get("ignored"):
        s.skipped["scale"] = "the weights are no softmax of q·k"
        return
    g11, g21, g12 = log_ratio(s, 1, 1), log_ratio(s, 2, 1), log_ratio(s, 1, 2)
    if not all(map(math.isfinite, (g11, g21, g12))) or max(map(abs, (g11, g21, g12))) < s.tolerance:
        s.skipped["scale"] = f"the probe gave log ratios {g11:.3g}, {g21:.3g}, {g12:.3g}"
        return
    growth_q, growth_k = math.log2(abs(g21 / g11)), math.log2(abs(g12 / g11))
    flat = [name for name, growth in (("queries", growth_q), ("keys", growth_k)) if abs(growth) < 0.02]
    s.facts["normalised"] = tuple(flat)
    if flat:
        words = " and ".join(flat)
        s.report(
            "normalised",
            f"Doubling the {words} multiplies the score by {2 ** (growth_q if 'queries' in flat else growth_k):.4f}.",
        )
    else:
        _probe_softcap(s, max(growth_q, growth_k, key=lambda growth: abs(growth - 1)))
    if s.found("nonlinear"):
        s.skipped["scale"] = "log ratios of weights are not proportional to q·k"
        return
    _law(s)
    _judge(s, intended, label)


def _probe_softcap(s: Session, growth: float) -> None:
    """
    Follow g(x) = c·tanh(scale·x/c) to large x = a·b, and solve for scale and c.

    Where no cap fits, ``growth`` (the exponent of x at small x) tells a bent response from one that is clipped far out.
    """
    small, limit = log_ratio(s, 1, 1), 300.0 if s.caller.precision < 1e-10 else 50.0
    side, large = 1.0, small
    while abs(large) < limit / 4 and side < 2**20 and abs(large) > 0.5 * abs(small) * side * side:
        side *= 2
        large = log_ratio(s, side, side)
    product = side * side
    if not math.isfinite(large) or abs(large / (small * product) - 1) < LINEAR:
        return
    middle_side = side / 2
    middle = log_ratio(s, middle_side, middle_side)

    def excess(cap: float) -> float:
        return cap * math.tanh(product * math.atanh(abs(small) / cap)) - abs(large)

    cap = _root(excess, abs(large) * (1 + 1e-12), abs(large) * 1e6)
    if cap is not None and abs(cap * math.tanh(middle_side**2 * math.atanh(abs(small) / cap)) / abs(middle) - 1) < 1e-3:
        s.facts["softcap"] = cap
        s.report("softcap", f"A score of {small * product:.4g} is {large:.4g}: cap {cap:.6g} by c·tanh(score/c).")
    elif abs(growth - 1) > STRAIGHT + 4 * _relative_error(s, small):
        evidence = f"Doubling q·k multiplies log(w₀/w_j) by {2**growth:.4g}, not 2; at {product:g} times by"
        s.report("nonlinear", f"{evidence} {large / small:.4g}.")
    else:
        s.report("large-scores", f"A score of {small * product:.4g} acts as {large:.4g}, which no soft-cap explains.")
        s.facts["clipped"] = abs(large)


def _root(function: Callable[[float], float], low: float, high: float) -> float | None:
    if function(low) * function(high) > 0:
        return None
    return float(brentq(function, low, high, xtol=1e-14, rtol=1e-14))


def _scale_at(s: Session, sizes: Sizes) -> float | None:
    try:
        value = log_ratio(s, 1, 1, sizes)
    except CallFailed:
        return None
    if "softcap" in s.facts:
        cap = s.facts["softcap"]
        value = cap * math.atanh(value / cap)
    return value if math.isfinite(value) and value != 0 else None


def _law(s: Session) -> None:
    z = s.sizes
    fixed_heads = "h" not in s.caller.layout and (s.caller.arguments.heads is None or "m" not in s.caller.layout)
    keys = 2 * z.n_keys
    other_keys = replace(z, n_keys=keys, n_queries=keys if z.n_queries == z.n_keys else z.n_queries)
    variants = {"base": z, "d": replace(z, d_k=4 * z.d_k), "keys": other_keys}
    if not fixed_heads:
        variants["heads"] = replace(z, heads=2 * z.heads)
    measured = {name: _scale_at(s, sizes) for name, sizes in variants.items()}
    base = measured["base"]
    if base is None:
        s.skipped["scale"] = "the probe failed when repeated"
        return

    def exponent(name: str, factor: float) -> float | None:
        other = measured.get(name)
        return None if other is None or other / base <= 0 else math.log(other / base) / math.log(factor) + 0.0

    a, b, c = exponent("d", 0.25), exponent("heads", 0.5), exponent("keys", 2)
    coefficient = None if a is None else base * z.d_k**a * z.heads ** (b or 0.0)
    values = tuple((v.d_k, v.heads, v.n_keys, m) for n, v in variants.items() if (m := measured[n]) is not None)
    name = name_law(base, (a, b, c), (z.d_k, z.heads, z.n_keys), keys, _relative_error(s, base))
    s.facts["law"] = ScaleLaw(base, name, a, b, c, coefficient, values)


def _judge(s: Session, intended: Callable[[int, int], float] | None, label: str) -> None:
    law: ScaleLaw | None = s.facts.get("law")
    if law is None:
        return
    measured = "; ".join(f"{v:.6g} at d_k={d}, {h} heads, {n} keys" for d, h, n, v in law.measurements)
    if law.value < 0:
        s.report("negative-scale", measured)
    if intended is not None:
        wrong = [
            (d, h, n, v / intended(d, n)) for d, h, n, v in law.measurements if not _agree(s, v, d, intended(d, n))
        ]
        if wrong:
            d, h, _, ratio = wrong[0]
            s.report(
                "scale", f"{law.name}, intended {label}: {ratio:.6g} times as large at d_k={d}, {h} heads ({measured})."
            )
        return
    if (law.name.startswith("1/√d_k") and "·" not in law.name) or s.facts.get("normalised"):
        return
    code = "scale-d-model" if law.name.endswith("/√(H·d_k)") else "scale-law"
    hints = {"1/d_k": " (muP, or 1/√d_k applied twice)", "1 (none)": " (no scale at all)"}
    s.report(
        code, f"{measured}.", None if code != "scale-law" else f"The scale is {law.name}{hints.get(law.name, '')}."
    )


def _agree(s: Session, value: float, d_k: int, wanted: float) -> bool:
    candidates = [wanted, wanted * d_k] if s.facts.get("normalised") else [wanted]
    return any(abs(value - c) <= max(1e-6, _relative_error(s, c)) * abs(c) for c in candidates)


def _relative_error(s: Session, value: float) -> float:
    """Bound the error of a scale: a logarithm of weights with 64 rounding units, or the noise seen in row sums."""
    return 2 * (64 * s.caller.precision + s.facts.get("noise", 0.0)) / abs(value) if value else np.inf


def probe_exactness(s: Session) -> None:
    """Compare the weights on random inputs with the softmax of the recovered scores."""
    law: ScaleLaw | None = s.facts.get("law")
    if law is None or s.axis != "keys" or s.found("softmax-axis", "row-sums", "large-scores"):
        return
    q, k, _ = s.draw()
    weights, seen = np.nan_to_num(s.own(q, k)), None
    if "visible_function" in s.facts:
        seen = s.facts["visible_function"](s.sizes.n_queries, s.sizes.n_keys)
    if s.facts.get("normalised"):
        return
    expected = _expected(s, q, k, law.value, seen)
    if seen is not None:  # rows that see nothing are 0, NaN or uniform as a function pleases
        weights, expected = weights[:, :, seen.any(axis=1)], expected[:, :, seen.any(axis=1)]
    gap = distance(weights, expected)
    if gap <= 16 * s.tolerance:
        s.facts["exact"] = gap
        return
    if gap < LOW_PRECISION and not s.found("low-precision"):
        s.facts["noise"] = 8 * gap
        s.report("low-precision", f"Weights are softmax({law.value:.4g}·q·k) within {gap:.2g}.")
    elif _depends_on_position(s):
        s.report(
            "position",
            f"With all keys equal, weights still differ; they are {gap:.3g} from softmax({law.value:.4g}·q·k).",
        )
    else:
        s.report("unexplained", f"The largest difference is {gap:.3g} at scale {law.value:.6g}.")


def _expected(s: Session, q: Array, k: Array, scale: float, seen: Array | None) -> Array:
    scores = scale * np.einsum("bhid,bhjd->bhij", q, k)
    if "softcap" in s.facts:
        scores = s.facts["softcap"] * np.tanh(scores / s.facts["softcap"])
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores)
    total = weights.sum(axis=-1, keepdims=True) + s.facts.get("sink", 0.0)
    result: Array = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return result


def _depends_on_position(s: Session) -> bool:
    q, k, _ = s.draw()
    weights = s.own(q, np.broadcast_to(k[:, :, :1], k.shape))
    shown = weights[weights > HIDDEN]
    spread = np.abs(weights - weights.max(axis=-1, keepdims=True))[weights > HIDDEN].max(initial=0.0)
    return bool(shown.size) and float(spread) > s.tolerance
