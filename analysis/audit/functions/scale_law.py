"""The recovered scale and its law, in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from analysis.audit.functions.session import Sizes

DETERMINED = 0.2  # exponents known no better than this tell no law from another


@dataclass(frozen=True)
class ScaleLaw:
    """
    The recovered scale.

    Attributes
    ----------
    value : float
        The factor on kᵀq at the audited sizes (on unit vectors where both are normalised); the mean where heads or
        queries differ.
    name : str
        In words, such as "1/√d_k".
    exponent_d, exponent_heads, exponent_keys : float or None
        scale ∝ d_k^−a · H^−b · n_keys^c; None where other sizes were refused.
    coefficient : float or None
        value · d_k^a · H^b, where both are known.
    measurements : tuple of (d_k, heads, n_keys, scale)
    suspicion, words : str
        A code of the catalogue where the law itself is suspicious, and the sentence; else empty.
    follows_batch : bool
    """

    value: float
    name: str
    exponent_d: float | None
    exponent_heads: float | None
    exponent_keys: float | None
    coefficient: float | None
    measurements: tuple[tuple[int, int, int, float], ...]
    suspicion: str = ""
    words: str = ""
    follows_batch: bool = False


_NAMES = {
    (0.5, 0.0): "√d_k",
    (1.0, 0.0): "d_k",
    (0.5, 0.5): "√(H·d_k)",
    (1.0, 1.0): "(H·d_k)",
    (0.25, 0.0): "d_k^(1/4)",
}


def describe(
    value: float, measured: Mapping[str, float | None], sizes: Sizes,
    measurements: tuple[tuple[int, int, int, float], ...], error: float,
) -> ScaleLaw:  # fmt: skip
    """
    Put a scale at several sizes into a law.

    Parameters
    ----------
    value : float
        The scale at ``sizes``.
    measured : mapping
        "d" at four times the width; "heads", "keys", "queries", "batch" at twice the number; None where refused.
    error : float
        Relative error of a measurement: exponents and factors are rounded to what it supports, and where it supports
        no law the name is "not determined".
    """

    def exponent(name: str, factor: float) -> float | None:
        other = measured.get(name)
        return None if other is None or other / value <= 0 else math.log(other / value) / math.log(factor) + 0.0

    a, b, c = exponent("d", 0.25), exponent("heads", 0.5), exponent("keys", 2)
    slack = max(5e-3, 2 * error)
    coefficient = None if a is None else value * sizes.d_k**a * sizes.heads ** (b or 0.0)
    name = _name(value, (a, b, c), sizes, error, slack)
    batch, queries = exponent("batch", 2), exponent("queries", 2)
    suspicion, words = _suspicion(a, b, c, queries, slack)
    return ScaleLaw(
        value,
        name,
        a,
        b,
        c,
        coefficient,
        measurements,
        suspicion,
        words,
        batch is not None and abs(batch) > max(slack, 0.1),
    )


def _suspicion(
    a: float | None, b: float | None, c: float | None, queries: float | None, slack: float
) -> tuple[str, str]:
    """Return the code and sentence of a law that is hardly ever meant."""

    def is_(x: float | None, target: float) -> bool:
        return x is not None and abs(x - target) < slack

    if is_(a, 0.5) and is_(b, 0.5):
        return "scale-d-model", ""
    if is_(c, -0.5) or is_(c, -1.0):
        return "scale-axis", "The scale follows the number of keys, as if the wrong axis had been measured."
    if is_(queries, -0.5) or is_(queries, -1.0):
        return "scale-axis", "The scale follows the number of queries, as if the wrong axis had been measured."
    if is_(a, 0.0) and (is_(b, 0.5) or is_(b, 1.0)):
        return "scale-axis", "The scale follows the number of heads and not their width."
    if is_(a, -0.5) or is_(a, -1.0):
        return "scale-axis", "The scale grows with d_k: scores are multiplied where they should be divided."
    return "", ""


def _name(
    value: float, exponents: tuple[float | None, float | None, float | None], z: Sizes, error: float, slack: float
) -> str:
    (a, b, c), digits = exponents, max(2, min(6, int(-math.log10(max(error, 1e-9)))))
    if slack > DETERMINED or not math.isfinite(error):
        return f"not determined ({value:.{digits}g} here)"
    if a is None:
        return _one_width(value, b, z, max(1e-3, 4 * error), digits)
    b, by_keys = b or 0.0, ""
    factor = value * z.d_k**a * z.heads**b
    if c is not None and abs(c) > slack:
        logarithmic = math.log2(math.log(2 * z.n_keys) / math.log(z.n_keys)) if z.n_keys > 1 else math.inf
        by_keys = "log n_keys" if abs(c - logarithmic) < slack else f"n_keys^{c:.3g}"
        factor /= math.log(z.n_keys) if by_keys == "log n_keys" else z.n_keys**c
    close = [(x, y, name) for (x, y), name in _NAMES.items() if abs(x - a) < slack and abs(y - b) < slack]
    if close:  # the factor is that of the named exponents, not of the measured ones
        factor *= z.d_k ** (close[0][0] - a) * z.heads ** (close[0][1] - b)
    elif abs(a) < slack and abs(b) < slack:
        factor *= z.d_k**-a * z.heads**-b
    number = "" if abs(factor - 1) < max(1e-3, 4 * error) else f"{factor:.{digits}g}"
    front = "·".join(part for part in (number, by_keys) if part) or "1"
    if close:
        return f"{front}/{close[0][2]}"
    if abs(a) < slack and abs(b) < slack:
        return "1 (none)" if front == "1" else front
    return "·".join([front, *(f"{name}^{-x:.3g}" for name, x in (("d_k", a), ("H", b)) if abs(x) > slack)])


def _one_width(value: float, b: float | None, z: Sizes, slack: float, digits: int) -> str:
    """Name the laws that one width leaves open."""
    open_laws = [
        f"1/{name}"
        for (x, y), name in _NAMES.items()
        if (b is None or abs(b - y) < slack) and abs(value * z.d_k**x * z.heads**y - 1) < slack
        and not (y and z.heads == 1)
    ]  # fmt: skip
    return " or ".join([*open_laws, f"the constant {value:.{digits}g}"]) + ": the function has one width"
