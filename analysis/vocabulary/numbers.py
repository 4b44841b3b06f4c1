"""Readers of a caller's numbers: what they refuse, they refuse in one sentence that names the argument."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import Any, TypeVar

Value = TypeVar("Value")


def listed(argument: str, value: Any) -> list[Any]:
    """Return a value or an iterable of values as a list that is not empty."""
    single = isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0
    items = [value] if single else list(value)
    if not items:
        raise ValueError(f"{argument}: a study needs at least one value of each setting, got {value!r}")
    return items


def unique(items: Iterable[Value]) -> list[Value]:
    """Return the items without repetitions, in their order."""
    return list(dict.fromkeys(items))


def positive_integers(argument: str, value: Any) -> list[int]:
    """Read one or several whole numbers of at least 1."""
    if value is None:
        raise ValueError(f"{argument} is missing: it may be left out for the quantity 'score' only")
    return unique(positive_integer(argument, item) for item in listed(argument, value))


def positive_integer(argument: str, value: Any) -> int:
    """Read a whole number of at least 1; a boolean or a float is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{argument} must be a whole number of at least 1: got {value!r}")
    return int(value)


def number(argument: str, value: Any) -> float:
    """Read a finite number; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError(f"{argument} must be a finite number: got {value!r}")
    return float(value)


def positive(argument: str, value: Any) -> float:
    """Read a number above 0."""
    read = number(argument, value)
    if read <= 0:
        raise ValueError(f"{argument} must be positive: got {value!r}")
    return read


def fraction(argument: str, value: Any) -> float:
    """Read a number strictly between 0 and 1."""
    read = number(argument, value)
    if not 0.0 < read < 1.0:
        raise ValueError(f"{argument} must lie between 0 and 1: got {value!r}")
    return read
