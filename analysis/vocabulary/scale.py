"""What multiplies kᵀq before softmax: by name, number, expression in d_k and n_keys, or callable."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from analysis.vocabulary.numbers import shown
from attnsym._expression import read_expression
from attnsym._validate import finite_number

ScaleLike = str | float | Callable[[int, int], float] | None

_FUNCTIONS = {"sqrt": math.sqrt, "log": math.log, "exp": math.exp}
_MAX_POWER = 1000.0
_PROBES = (2, 3, 1009)  # numbers of keys at which a scale that depends on them shows it


@dataclass(frozen=True)
class Scale:
    """
    A scale as a function of d_k and n_keys.

    Attributes
    ----------
    label : str
        How tables, stores and seeds name it: ``"sqrt"``, ``"unscaled"``, the number or expression as given, or the
        callable's ``__name__``.
    function : callable
        ``(d_k, n_keys) -> float``.
    """

    label: str
    function: Callable[[int, int], float]

    def __call__(self, d_k: int, n_keys: int) -> float:
        """Return the factor at this d_k and n_keys; ValueError unless it is a finite number."""
        try:
            value = float(self.function(d_k, n_keys))
        except (ZeroDivisionError, OverflowError, ValueError, TypeError) as error:
            reason = "it is too large" if isinstance(error, OverflowError) else error
            raise ValueError(f"scale {self.label!r} has no value at d_k={d_k}, n_keys={n_keys}: {reason}") from None
        if not math.isfinite(value):
            raise ValueError(f"scale {self.label!r} must be finite: got {value} at d_k={d_k}, n_keys={n_keys}")
        return value


_NAMED = {
    "sqrt": Scale("sqrt", lambda d_k, n_keys: 1.0 / math.sqrt(d_k)),
    "unscaled": Scale("unscaled", lambda d_k, n_keys: 1.0),
}


def resolve_scale(scale: ScaleLike) -> Scale:
    """
    Turn what a user passes as ``scale`` into a `Scale`.

    Parameters
    ----------
    scale : {"sqrt", "unscaled"}, None, number, expression or callable
        None and ``"sqrt"`` are 1/√d_k, ``"unscaled"`` is 1; an expression such as ``"log(n_keys)/sqrt(d_k)"`` knows
        d_k, n_keys, pi, sqrt, log and exp; a callable takes (d_k, n_keys).

    Raises
    ------
    ValueError
        For a boolean, a NaN or infinite number, or an expression that cannot be read. ``"none"`` is refused with a
        hint, since it reads both as "no scaling" and as Python's None, which is 1/√d_k.
    """
    if scale is None:
        return _NAMED["sqrt"]
    if isinstance(scale, str):
        return _NAMED.get(scale) or _from_expression(scale)
    if callable(scale):
        return Scale(getattr(scale, "__name__", "callable"), scale)
    try:
        number = finite_number(scale, "scale")
    except ValueError:
        raise ValueError(
            f"scale must be a name, a finite number, an expression or a callable: got {shown(scale)}"
        ) from None
    return Scale(repr(number), lambda d_k, n_keys: number)


def scale_of_one_score(scale: Scale, d_k: int, n_keys: int | None) -> float:
    """
    Return the factor of a single score, where `n_keys` may be left out if the scale does not depend on it.

    Raises
    ------
    ValueError
        For a scale that depends on n_keys when none is given.
    """
    if n_keys is not None:
        return scale(d_k, n_keys)
    factors = {scale(d_k, n) for n in _PROBES}
    if len(factors) > 1:
        raise ValueError(f"a score has no n_keys: give the number of keys, or a number, for scale {scale.label!r}")
    return factors.pop()


def _from_expression(text: str) -> Scale:
    if text.strip().lower() == "none":
        raise ValueError("scale 'none' is ambiguous: write 'unscaled' for no scaling or 'sqrt' for 1/sqrt(d_k)")

    def value(d_k: int, n_keys: int) -> float:
        names = {"d_k": float(d_k), "n_keys": float(n_keys), "pi": math.pi}
        result: float = read_expression(text, names=names, functions=_FUNCTIONS, number=_number, power=_power)
        return result

    try:
        value(7, 11)  # a misspelt name is reported where it was typed, not in the middle of a study
    except ValueError as error:
        raise ValueError(f"scale: {error}") from None
    return Scale(text.strip(), value)


def _number(literal: str) -> float:
    return float(int(literal)) if literal.isdecimal() else float(literal)  # a whole number too large says so


def _power(base: float, exponent: float) -> float:
    if abs(exponent) > _MAX_POWER:
        raise ValueError(f"an exponent in a scale may be at most {_MAX_POWER:g} in size: got {exponent:g}")
    result: float | complex = base**exponent
    if isinstance(result, complex):
        raise ValueError(f"{base:g} ** {exponent:g} is not real")
    return result
