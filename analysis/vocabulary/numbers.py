"""Readers of a caller's numbers: what they refuse, they refuse in one sentence that names the argument."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

Value = TypeVar("Value")

LARGEST_WHOLE = 2**53  # whole numbers above are not all float64 numbers
_SHOWN = 100  # characters of a value in a message


def shown(value: Any) -> str:
    """Return a value as a message shows it: on one line, and not without end."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a whole number of too many digits, or a class that cannot show itself
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def listed(argument: str, value: Any) -> list[Any]:
    """Return a value or an iterable of values as a list that is not empty."""
    single = isinstance(value, str | bytes) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0
    items = [value] if single else list(value)
    if not items:
        raise ValueError(f"{argument}: a study needs at least one value of each setting, got {shown(value)}")
    return items


def unique(items: Iterable[Value]) -> list[Value]:
    """Return the items without repetitions, in their order."""
    return list(dict.fromkeys(items))


def positive_integers(argument: str, value: Any) -> list[int]:
    """Read one or several whole numbers of at least 1."""
    if value is None:
        raise ValueError(f"{argument} is missing: it may be left out for the quantity 'score' only")
    return unique(positive_integer(argument, item) for item in listed(argument, value))


def positive_integer(argument: str, value: Any, most: int = LARGEST_WHOLE) -> int:
    """Read a whole number from 1 to `most`; a boolean or a float is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < 1:
        raise ValueError(f"{argument} must be a whole number of at least 1: got {shown(value)}")
    if int(value) > most:
        raise ValueError(f"{argument} must be a whole number of at least 1 and at most {most}: got {shown(value)}")
    return int(value)


def number(argument: str, value: Any) -> float:
    """Read a finite number; a boolean is none."""
    read = math.nan
    if not isinstance(value, bool) and isinstance(value, numbers.Real):
        with suppress(OverflowError):
            read = float(value)
    if not math.isfinite(read):
        raise ValueError(f"{argument} must be a finite number: got {shown(value)}")
    return read


def positive(argument: str, value: Any) -> float:
    """Read a number above 0."""
    read = number(argument, value)
    if read <= 0:
        raise ValueError(f"{argument} must be positive: got {shown(value)}")
    return read


def fraction(argument: str, value: Any) -> float:
    """Read a number strictly between 0 and 1."""
    read = number(argument, value)
    if not 0.0 < read < 1.0:
        raise ValueError(f"{argument} must lie between 0 and 1: got {shown(value)}")
    return read
