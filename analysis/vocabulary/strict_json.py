"""Strict JSON, which has no NaN and no infinity, and can be shown on any terminal."""

from __future__ import annotations

import json
import math
from typing import Any


def finite_or_none(value: Any) -> Any:
    """Return `value` with None for every float that is not finite, within dictionaries, lists and tuples too."""
    if isinstance(value, dict):
        return {name: finite_or_none(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(payload: Any, *, encoding: str = "utf-8") -> str:
    """
    Return `payload` as indented JSON that `encoding` can write, in which no name can steer a terminal.

    ValueError for NaN and infinities: `finite_or_none` replaces them.
    """
    text = json.dumps(payload, indent=2, allow_nan=False, ensure_ascii=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(payload, indent=2, allow_nan=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
