"""What strict JSON can hold: it has no NaN and no infinity."""

from __future__ import annotations

import math
from typing import Any


def finite_or_none(value: Any) -> Any:
    """Return `value` with None for every float that is not finite, within dictionaries, lists and tuples too."""
    if isinstance(value, dict):
        return {name: finite_or_none(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
