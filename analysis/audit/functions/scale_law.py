"""The recovered scale and its law, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ScaleLaw:
    """
    The recovered scale.

    Attributes
    ----------
    value : float
        The factor on kᵀq at the audited sizes (on unit vectors where both are normalised).
    name : str
        In words, such as "1/√d_k".
    exponent_d, exponent_heads, exponent_keys : float or None
        scale ∝ d_k^−a · H^−b · n_keys^c; None where other sizes were refused.
    coefficient : float or None
        value · d_k^a · H^b, where both are known.
    measurements : tuple of (d_k, heads, n_keys, scale)
    """

    value: float
    name: str
    exponent_d: float | None
    exponent_heads: float | None
    exponent_keys: float | None
    coefficient: float | None
    measurements: tuple[tuple[int, int, int, float], ...]


_NAMES = {
    (0.5, 0.0): "√d_k",
    (1.0, 0.0): "d_k",
    (0.5, 0.5): "√(H·d_k)",
    (1.0, 1.0): "(H·d_k)",
    (0.25, 0.0): "d_k^(1/4)",
}


def name_law(
    base: float,
    exponents: tuple[float | None, float | None, float | None],
    sizes: tuple[int, int, int],
    keys: int,
    error: float,
) -> str:
    """
    Put a law into words; exponents and factors are rounded to what the measurement supports.

    Parameters
    ----------
    base : float
        The scale at ``sizes`` = (d_k, heads, n_keys).
    exponents : tuple
        Of 1/d_k, 1/heads and n_keys, as in `ScaleLaw`.
    keys : int
        The other number of keys that was measured.
    error : float
        Relative error of a measurement.
    """
    (a, b, c), (d_k, heads, n_keys) = exponents, sizes
    if a is None:
        return f"{base:.6g} at d_k = {d_k}; other sizes were refused"
    b, slack = b or 0.0, max(5e-3, 2 * error)
    factor, by_keys = base * d_k**a * heads**b, ""
    if c is not None and abs(c) > slack:
        logarithmic = math.log2(math.log(keys) / math.log(n_keys))
        by_keys = "log n_keys" if abs(c - logarithmic) < slack else f"n_keys^{c:.3g}"
        factor /= math.log(n_keys) if by_keys == "log n_keys" else n_keys**c
    close = [name for (x, y), name in _NAMES.items() if abs(x - a) < slack and abs(y - b) < slack]
    number = "" if abs(factor - 1) < max(1e-3, 4 * error) else f"{factor:.6g}"
    front = "·".join(part for part in (number, by_keys) if part) or "1"
    if abs(a) < slack and abs(b) < slack:
        return "1 (none)" if front == "1" else front
    if close:
        return f"{front}/{close[0]}"
    return "·".join([front, *(f"{name}^{-x:.3g}" for name, x in (("d_k", a), ("H", b)) if abs(x) > slack)])
