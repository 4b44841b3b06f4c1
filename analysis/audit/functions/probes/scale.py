"""The scale: read, followed through other sizes, named, and compared with the intended one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes import normalised
from analysis.audit.functions.probes.kernels import is_other
from analysis.audit.functions.probes.position import probe_bias, probe_rotary
from analysis.audit.functions.probes.response import probe_response
from analysis.audit.functions.probes.scores import (
    FLAT,
    LONG,
    Readings,
    first_guess,
    growth,
    lengths,
    read_scores,
    relative_error,
)
from analysis.audit.functions.scale_law import ScaleLaw, describe
from analysis.audit.functions.session import Session, Sizes


def probe_scale(s: Session) -> None:
    """Find what scores are made of: norms, caps, positions, and the scale of every head and row."""
    if s.axis in ("none", "kernel") or s.facts.get("ignored"):
        s.skipped["scale"] = "the weights are no softmax of q·k"
        return
    found = first_guess(s)
    if found is None:
        if not (s.axis == "keys" and is_other(s, 1.0)):
            s.skipped["scale"] = "q·k moves no weight by more than rounding"
        return
    value, norm = found
    powers = dict(zip(("queries", "keys"), growth(s, norm * norm), strict=True))
    sides = tuple(side for side, power in powers.items() if abs(power) < FLAT)
    s.facts["normalised"] = sides
    if not sides:
        probe_response(s, norm)
        if s.found("nonlinear") or s.axis in ("none", "kernel"):
            s.skipped["scale"] = "scores are not in proportion to q·k"
            return
    by_row = _normalised_rows(s, sides, powers) if sides else _rows(s, value)
    if by_row is None:
        if not (s.axis == "keys" and is_other(s, value)):
            s.skipped.setdefault("scale", "the reading was not finite when repeated")
        return
    s.facts["by_row"] = by_row
    s.facts["sign"] = float(np.sign(np.nanmean(by_row)))
    size = abs(float(np.nanmean(by_row)))
    s.spread = 1.0 if sides else float(np.clip((size * s.sizes.d_k**0.5) ** -0.5, 1e-3, 1e3))
    _name_variation(s, by_row)


def _rows(s: Session, value: float) -> Array | None:
    """Return the scale of every head and row, (heads, n_queries), with rotary embedding and biases named on the way."""
    readings = read_scores(s, s.sizes, value)
    if readings is None:
        return None
    if s.axis in ("keys", "each"):
        probe_bias(s)
        if readings.spread > s.times(64) * relative_error(s):
            return s.facts["rotary"] if probe_rotary(s, readings) else None
    return readings.by_row


def _normalised_rows(s: Session, sides: tuple[str, ...], powers: dict[str, float]) -> Array | None:
    """Return the scale on unit vectors where a norm, or a norm and a rotation, explains the scores; else None."""
    words = " and ".join(sides)
    evidence = f"Doubling the {words} multiplies the score by {2 ** powers[sides[0]]:.4f}"
    probe_bias(s)
    found = normalised.fit(s, s.sizes, sides) if s.axis in ("keys", "each") else None
    if found is None and s.axis == "keys":
        many = replace(s.sizes, n_keys=s.sizes.n_keys * math.ceil(4 * s.sizes.d_k / (s.sizes.n_keys * s.sizes.batch)))
        try:
            found = normalised.fit(s, many, sides, ("gains",))
        except CallFailed:
            found = None
    if found is not None:
        s.report("normalised", f"{evidence}; by {normalised.WORDS[found.kind]}.")
        s.facts["norm"] = found.kind
        return found.by_row
    if s.axis == "keys" and is_other(s, 1.0):
        return None
    readings = read_scores(s, s.sizes, 3.0 / LONG**2)
    if readings is not None and readings.spread > s.times(64) * relative_error(s) and probe_rotary(s, readings):
        s.report("normalised", f"{evidence}.")
        s.facts["norm"] = ""
        return replace_rows(readings, readings.product / LONG ** (2 - len(sides)))
    s.facts["normalised"] = ()
    s.report("unexplained", f"{evidence}, by no norm that is known.")
    s.skipped["scale"] = "scores are not in proportion to q·k"
    return None


def replace_rows(readings: Readings, factor: float) -> Array:
    """Return the scale on unit vectors from a reading in which normalised sides do not count."""
    return np.asarray(readings.by_row * factor)


def _name_variation(s: Session, by_row: Array) -> None:
    """Say where scales differ by head or by query."""
    if s.axis not in ("keys", "each"):
        return
    slack = s.times(64) * relative_error(s) + (1e-4 if s.facts["normalised"] else 0.0)
    mean = float(np.nanmean(by_row))
    heads = np.nanmean(by_row, axis=1)
    rows = np.nanmean(by_row / heads[:, None], axis=0)
    if np.nanmax(np.abs(by_row / heads[:, None] - rows)) > slack:
        s.report("unexplained", "The scale changes with head and query together.", severity="warning")
    if np.ptp(heads) > slack * abs(mean):
        s.facts["per_head"] = heads
        s.report("scale-per-head", f"Heads have {', '.join(f'{x:.6g}' for x in heads[:8])}.")
    if np.nanmax(rows) - np.nanmin(rows) > slack:
        s.facts["per_query"] = rows * mean
        s.report("scale-per-query", f"Queries have {', '.join(f'{x:.6g}' for x in rows[:8] * mean)}.")


def _value_at(s: Session, sizes: Sizes, base: Array) -> float | None:
    """Return the mean scale over the heads and rows that both sizes have; None where the size is refused."""
    try:
        if s.facts.get("norm"):
            kinds = (s.facts["norm"],)
            found = normalised.fit(s, sizes, s.facts["normalised"], kinds)
            table = None if found is None else found.by_row
        elif s.facts.get("normalised"):
            readings = read_scores(s, sizes, 3.0 / LONG**2)
            power = LONG ** (2 - len(s.facts["normalised"]))
            table = None if readings is None else replace_rows(readings, readings.product / power)
        elif "rotary" in s.facts:
            norm = 2.0 ** round(math.log2(math.sqrt(3.0 / abs(np.nanmean(base)))))
            place = min(sizes.n_queries, sizes.n_keys) - 1
            table = np.nanmean(lengths(s, sizes, norm, [place]), axis=-1)
            if s.facts["decays"]:  # at its own position there is none
                return float(np.nanmean(table[:, place]))
        else:
            readings = read_scores(s, sizes, abs(float(np.nanmean(base))))
            table = None if readings is None else readings.by_row
    except CallFailed:
        return None
    if table is None:
        return None
    heads, rows = min(table.shape[0], base.shape[0]), min(table.shape[1], base.shape[1])
    both = table[:heads, :rows] / np.where(base[:heads, :rows] == 0, np.nan, base[:heads, :rows])
    ratio = float(np.nanmean(both)) if np.isfinite(both).any() else math.nan
    return ratio * float(np.nanmean(base)) if math.isfinite(ratio) and ratio != 0 else None


def probe_law(s: Session, intended: Callable[[int, int], float] | None, label: str) -> None:
    """Read the scale at other sizes and put its law into words."""
    base = s.facts.get("by_row")
    if base is None:
        _judge_absent(s, intended, label)
        return
    z = s.sizes
    equal = z.n_queries == z.n_keys
    variants = {
        "d": replace(z, d_k=4 * z.d_k),
        "heads": replace(z, heads=2 * z.heads),
        "keys": replace(z, n_keys=2 * z.n_keys, n_queries=2 * z.n_keys if equal else z.n_queries),
        "queries": replace(z, n_queries=2 * z.n_queries),
        "batch": replace(z, batch=2 * z.batch),
    }
    merged = {"m", "w"} & set(s.caller.layout)
    if not ("h" in s.caller.layout or (s.caller.arguments.heads is not None and merged)):
        del variants["heads"]
    if equal:
        del variants["queries"]
    if z.batch == 1:
        del variants["batch"]
    measured = {name: _value_at(s, sizes, base) for name, sizes in variants.items()}
    value = float(np.nanmean(base))
    listed = [(z.d_k, z.heads, z.n_keys, value)] + [
        (variants[n].d_k, variants[n].heads, variants[n].n_keys, m)
        for n in ("d", "keys", "heads") if (m := measured.get(n)) is not None
    ]  # fmt: skip
    law = describe(value, measured, z, tuple(listed), relative_error(s) + (1e-6 if s.facts["normalised"] else 0.0))
    varies = [word for word, name in (("per head", "per_head"), ("per query", "per_query")) if name in s.facts]
    s.facts["law"] = replace(law, name=f"{law.name} on average, {' and '.join(varies)}") if varies else law
    if not s.found("unexplained"):
        judge(s, intended, label)
    elif intended is not None:
        s.skipped["intended scale"] = "scores hold more than scale·q·k"


def _judge_absent(s: Session, intended: Callable[[int, int], float] | None, label: str) -> None:
    """No score moves a weight: that is a scale of 0, and right where 0 is intended."""
    if intended is None or s.facts.get("ignored") != ("query", "key"):
        return
    z = s.sizes
    if intended(z.d_k, z.n_keys) == 0:
        flat = ((z.d_k, z.heads, z.n_keys, 0.0),)
        s.facts["law"] = ScaleLaw(0.0, "0", None, None, None, None, flat)
        s.skipped.pop("scale", None)


def judge(s: Session, intended: Callable[[int, int], float] | None, label: str) -> None:
    """Compare the law with the intended one; without one, say what is suspicious in itself."""
    law: ScaleLaw = s.facts["law"]
    measured = "; ".join(f"{v:.6g} at d_k={d}, {h} heads, {n} keys" for d, h, n, v in law.measurements)
    if law.value < 0:
        s.report("negative-scale", measured)
    if law.follows_batch:
        s.report("scale-axis", measured, "The scale follows the number of batch items.", severity="error")
    if intended is not None:
        wrong = [(d, h, n, v, intended(d, n)) for d, h, n, v in law.measurements if not _agree(s, v, d, intended(d, n))]
        if wrong:
            d, h, _, v, wanted = wrong[0]
            times = f"{v / wanted:.6g} times as large" if wanted else f"{v:.6g} where 0 is intended"
            s.report("scale", f"{law.name}, intended {label}: {times} at d_k={d}, {h} heads ({measured}).")
        return
    if law.value < 0 or s.facts.get("normalised") or law.name == "1/√d_k":
        return
    by_keys = s.axis == "each" and law.suspicion == "scale-axis"  # ReLU attention is divided by the number of keys
    if law.suspicion and not by_keys:
        s.report(law.suspicion, f"{measured}.", None if law.suspicion == "scale-d-model" else law.words)
    elif law.exponent_d is None:
        s.report("scale-law", f"{measured}.", f"The scale is {law.name}.")
    elif not ("per_head" in s.facts or "per_query" in s.facts):
        hints = {"1/d_k": " (muP, or 1/√d_k applied twice)", "1 (none)": " (no scale at all)"}
        s.report("scale-law", f"{measured}.", f"The scale is {law.name}{hints.get(law.name, '')}.")


def _agree(s: Session, value: float, d_k: int, wanted: float) -> bool:
    """Compare with the intended scale, which may be meant before or after an RMS norm."""
    candidates = [wanted * d_k ** (sides / 2) for sides in range(len(s.facts.get("normalised", ())) + 1)]
    slack = max(1e-6, s.times(4) * relative_error(s), 1e-4 if s.facts.get("normalised") else 0.0)
    return any(abs(value - c) <= slack * abs(c) for c in candidates)
