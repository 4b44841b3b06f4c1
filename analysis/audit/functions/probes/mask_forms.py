"""The shapes and types in which a mask may be taken, and the presenting of what is visible in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.layouts import Array
from analysis.audit.functions.session import Session, Sizes

PAIRS = ("ij", "b1ij", "bhij", "bij", "nij", "11ij")
KEYS = ("bj", "b11j", "b1j", "1j", "j")


@dataclass(frozen=True)
class Form:
    """
    One way to hand over a mask.

    Attributes
    ----------
    argument : {"mask", "padding"}
    axes : str
        Of b(atch), h(eads), n (batch·heads), i (queries), j (keys) and 1.
    kind : {"boolean", "floating", "integer"}
    drop : bool
        True hides, in booleans and integers.
    """

    argument: str
    axes: str
    kind: str
    drop: bool = False

    @property
    def by_query(self) -> bool:
        """Tell whether queries may see different keys."""
        return "i" in self.axes

    @property
    def by_item(self) -> bool:
        """Tell whether batch items may see different keys."""
        return bool({"b", "n"} & set(self.axes))

    def present(self, visible: Array, sizes: Sizes) -> Array:
        """Return (batch, n_queries, n_keys) visibility in this form."""
        number = -np.inf if self.kind == "floating" else None
        given = self.shape(visible, sizes)
        if number is not None:
            return np.where(given, 0.0, number)
        given = ~given if self.drop else given
        return given if self.kind == "boolean" else given.astype(np.int64)

    def shape(self, table: Array, sizes: Sizes) -> Array:
        """Return a (batch, n_queries, n_keys) table with this form's axes."""
        whole = np.broadcast_to(table[:, None], (sizes.batch, sizes.heads, *table.shape[1:]))
        if "n" in self.axes:
            return np.ascontiguousarray(whole.reshape(-1, *table.shape[1:]))
        picks = tuple(slice(None) if axis in self.axes else 0 for axis in "bhij")
        picked = whole[picks]
        return np.ascontiguousarray(
            picked.reshape([1 if a == "1" else dict(zip("bhij", whole.shape, strict=True))[a] for a in self.axes])
        )

    def __str__(self) -> str:
        """Return the shape in words."""
        names = {"b": "batch", "h": "heads", "n": "batch·heads", "i": "n_queries", "j": "n_keys", "1": "1"}
        return f"({', '.join(names[a] for a in self.axes)})"


def forms(s: Session, argument: str, kind: str, drop: bool) -> Iterator[Form]:
    """Yield the forms that could be meant, those by query first."""
    every = (*PAIRS, *KEYS) if argument == "mask" else (*KEYS, *PAIRS)
    for axes in every:
        if s.sizes.batch == 1 and {"b", "n"} & set(axes) and "b" not in s.caller.layout and axes not in ("bij",):
            continue
        yield Form(argument, axes, kind, drop)


def attempt(s: Session, q: Array, k: Array, form: Form, table: Array, **options: Any) -> Array | None:
    """Return the weights under a mask, or None (with the reason kept) where the function refuses it."""
    try:
        return s.own(q, k, **{form.argument: table}, **options)
    except CallFailed as error:
        s.facts["refusal"] = str(error)
        return None
