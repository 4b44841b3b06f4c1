"""Orders of axes: from canonical (batch, heads, length, d) to a function's own and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LAYOUTS = ("bhsd", "bshd", "sbhd", "hsd", "shd", "bsd", "sbd", "sd", "bsm", "sbm", "sm")
_TOGETHER = {"m": "hd", "w": "sd"}  # w stands where a function takes tokens for heads in a merged axis


def to_layout(x: Array, layout: str, *, raw: bool = False) -> Array:
    """Return a (b, h, s, d) array in another layout; ``raw`` reinterprets memory instead of moving axes."""
    shape = layout_shape(x.shape, layout)
    if raw:
        return np.ascontiguousarray(x).reshape(shape)
    return np.ascontiguousarray(x.transpose(["bhsd".index(axis) for axis in _letters(layout)])).reshape(shape)


def from_layout(y: Array, layout: str, shape: tuple[int, ...], *, raw: bool = False) -> Array:
    """Invert `to_layout`; ``shape`` is (b, h, s, d)."""
    if raw:
        return np.ascontiguousarray(y).reshape(shape)
    letters, size = _letters(layout), dict(zip("bhsd", shape, strict=True))
    return y.reshape([size[axis] for axis in letters]).transpose([letters.index(axis) for axis in "bhsd"])


def layout_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return the shape that a (b, h, s, d) array has in a layout."""
    size = dict(zip("bhsd", shape, strict=True))
    size |= {merged: size[pair[0]] * size[pair[1]] for merged, pair in _TOGETHER.items()}
    return tuple(size[axis] for axis in layout)


def axes(layout: str) -> tuple[bool, bool]:
    """Tell whether a layout has a batch axis, and a heads axis (its own or merged)."""
    if not isinstance(layout, str) or not (
        layout in LAYOUTS or (set(layout) <= set("bhsdm") and len(set(layout)) == len(layout))
    ):
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}: got {layout!r}")
    return "b" in layout, "h" in layout or "m" in layout


def tokens_as_heads(layout: str) -> str | None:
    """Return the layout under which attention over the heads of a token reads as attention over tokens."""
    if "s" not in layout or not ("h" in layout or "m" in layout):
        return None
    return layout.translate(str.maketrans("hsm", "shw"))


def _letters(layout: str) -> str:
    """Return all four axes in memory order; those that the layout lacks have length 1 and come last."""
    whole = "".join(_TOGETHER.get(axis, axis) for axis in layout)
    return whole + "".join(axis for axis in "bhsd" if axis not in whole)
