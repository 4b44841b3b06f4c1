"""Calls a stranger's attention function with canonical (batch, heads, length, d) arrays, whatever it takes itself."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LAYOUTS = ("bhsd", "bshd", "sbhd", "hsd", "shd", "bsd", "sbd", "sd", "bsm", "sbm", "sm")
_MASK_NAMES = ("attn_mask", "mask", "attention_mask", "attn_bias", "bias")
_CAUSAL_NAMES = ("is_causal", "causal")
_HEADS_NAMES = ("num_heads", "n_heads", "heads", "n_head", "nhead", "nheads")
_GROUPED_NAMES = ("enable_gqa",)
_WIDTH_NAMES = ("d_k", "dk", "head_dim", "d_head", "dim_head")


class CallFailed(Exception):
    """The function under audit raised, or returned something that is no array of the right shape."""


@dataclass(frozen=True)
class Arguments:
    """The names under which a function takes its optional arguments; None where it has none."""

    mask: str | None
    causal: str | None
    heads: str | None
    grouped: str | None
    defaults: tuple[str, ...] = ()

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Arguments:
        """Read a signature. Where there is none to read (built-ins), PyTorch's names are tried."""
        target = getattr(function, "forward", function)
        try:
            parameters = inspect.signature(target).parameters
        except (TypeError, ValueError):
            return cls("attn_mask", "is_causal", None, "enable_gqa")
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return cls("attn_mask", "is_causal", None, "enable_gqa")

        def first(names: Sequence[str]) -> str | None:
            return next((name for name in names if name in parameters), None)

        required = tuple(
            n for n, p in list(parameters.items())[3:] if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
        )
        return cls(first(_MASK_NAMES), first(_CAUSAL_NAMES), first(_HEADS_NAMES), first(_GROUPED_NAMES), required)


@dataclass(frozen=True)
class Caller:
    """
    A function under audit together with how to call it.

    Attributes
    ----------
    function : callable
    framework, dtype : "numpy", "torch" or "jax", and the type of the inputs.
    layout : str
        Axes in order: b(atch), h(eads), s(equence), d, or m for heads·d in one axis.
    arguments : Arguments
    raw_split, raw_merge : bool
        Whether inputs are cut into heads, and outputs put together, by reshaping without transposing. The audit sets
        them once it has found that fault, so that the later probes still read the right numbers.
    """

    function: Callable[..., Any]
    framework: str
    dtype: str
    layout: str
    arguments: Arguments
    raw_split: bool = False
    raw_merge: bool = False

    def __call__(
        self, query: Array, key: Array, value: Array, *, mask: Array | None = None, causal: bool = False
    ) -> Array:
        """Return the output as float64 (batch, heads, n_queries, d_v); CallFailed when that is not what comes back."""
        output = self.native(
            *(self.present(x) for x in (query, key, value)), mask=mask, causal=causal, like=(query, key)
        )
        expected = query.shape[:3] + value.shape[-1:]
        array = np.asarray(to_numpy(output))
        shape = _layout_shape(expected, self.layout)
        if array.shape != shape or array.dtype.kind not in "fV":
            raise CallFailed(f"the output has shape {array.shape} and type {array.dtype}, where {shape} was expected")
        return from_layout(array.astype(np.float64), self.layout, expected, raw=self.raw_merge)

    def native(
        self,
        query: Any,
        key: Any,
        value: Any,
        *,
        mask: Array | None = None,
        causal: bool = False,
        like: tuple[Array, Array],
    ) -> Any:
        """Call the function with arrays of its own framework and layout; a tuple's first element is the output."""
        names, options = self.arguments, dict.fromkeys(self.arguments.defaults)
        if mask is not None or names.mask in options:
            options[_known(names.mask, "mask")] = None if mask is None else self.convert(mask, keep_type=True)
        if causal or names.causal in options:
            options[_known(names.causal, "causal flag")] = causal
        options |= {name: like[0].shape[3] for name in options if name in _WIDTH_NAMES}
        if names.heads is not None:
            options[names.heads] = like[0].shape[1]
        if like[0].shape[1] != like[1].shape[1] and names.grouped is not None:
            options[names.grouped] = True
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                output = self.function(query, key, value, **options)
            except Exception as error:  # whatever a stranger's code raises
                raise CallFailed(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from None
        return output[0] if isinstance(output, tuple | list) and output else output

    def present(self, x: Array) -> Any:
        """Return a canonical array in the function's own layout and framework."""
        return self.convert(to_layout(x, self.layout, raw=self.raw_split))

    def convert(self, x: Array, *, keep_type: bool = False) -> Any:
        """Return an array of the function's framework; masks keep their type unless floating."""
        if not keep_type or x.dtype.kind == "f":
            x = x.astype(self.dtype)
        if self.framework == "torch":
            return sys.modules["torch"].from_numpy(np.array(x))
        if self.framework == "jax":
            return sys.modules["jax"].numpy.asarray(x)
        return np.array(x)

    @property
    def precision(self) -> float:
        """The rounding unit of the inputs' type."""
        return float(np.finfo(self.dtype).eps)

    def using(self, **changes: Any) -> Caller:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


def _known(name: str | None, what: str) -> str:
    if name is None:
        raise CallFailed(f"the function takes no {what}")
    return name


def to_numpy(tensor: Any) -> Any:
    """Return a torch tensor as NumPy; anything else unchanged."""
    return tensor.detach().cpu().double().numpy() if hasattr(tensor, "detach") else tensor


def _order(layout: str) -> str:
    return layout.replace("m", "hd")


def _layout_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    size = dict(zip("bhsd", shape, strict=True))
    size["m"] = size["h"] * size["d"]
    return tuple(size[axis] for axis in layout)


def to_layout(x: Array, layout: str, *, raw: bool = False) -> Array:
    """Return a (b, h, s, d) array in another layout; ``raw`` reinterprets memory instead of moving axes."""
    shape = _layout_shape(x.shape, layout)
    if raw:
        return np.ascontiguousarray(x).reshape(shape)
    order = [
        *("bhsd".index(axis) for axis in _order(layout)),
        *("bhsd".index(a) for a in "bhsd" if a not in _order(layout)),
    ]
    return np.ascontiguousarray(x.transpose(order)).reshape(shape)


def from_layout(y: Array, layout: str, shape: tuple[int, ...], *, raw: bool = False) -> Array:
    """Invert `to_layout`; ``shape`` is (b, h, s, d)."""
    if raw:
        return np.ascontiguousarray(y).reshape(shape)
    letters = _order(layout) + "".join(axis for axis in "bhsd" if axis not in _order(layout))
    size = dict(zip("bhsd", shape, strict=True))
    return y.reshape([size[axis] for axis in letters]).transpose([letters.index(axis) for axis in "bhsd"])


def axes(layout: str) -> tuple[bool, bool]:
    """Tell whether a layout has a batch axis, and a heads axis (its own or merged)."""
    if not (layout in LAYOUTS or (set(layout) <= set("bhsdm") and len(set(layout)) == len(layout))):
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}: got {layout!r}")
    return "b" in layout, "h" in layout or "m" in layout
