"""Calls a stranger's attention function with canonical (batch, heads, length, d) arrays, whatever it takes itself."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.audit.functions.arguments import Arguments
from analysis.audit.functions.layouts import Array, from_layout, layout_shape, to_layout

_ROUNDING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class CallFailed(Exception):
    """The function under audit raised, or returned something that is no array of the right shape."""


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
    output_layout : str or None
        Where the output's axes come in another order.
    device : str or None
    raw_split, raw_merge : bool
        Whether inputs are cut into heads, and outputs put together, by reshaping without transposing. The audit sets
        them once it has found that fault, so that the later probes still read the right numbers.
    """

    function: Callable[..., Any]
    framework: str
    dtype: str
    layout: str
    arguments: Arguments
    output_layout: str | None = None
    device: str | None = None
    raw_split: bool = False
    raw_merge: bool = False

    def __call__(
        self, query: Array, key: Array, value: Array, *, mask: Array | None = None, padding: Array | None = None,
        causal: bool = False,
    ) -> Array:  # fmt: skip
        """Return the output as float64 (batch, heads, n_queries, d_v); CallFailed when that is not what comes back."""
        output = self.native(
            *(self.present(x) for x in (query, key, value)),
            mask=mask, padding=padding, causal=causal, like=(query, key),
        )  # fmt: skip
        expected = query.shape[:3] + value.shape[-1:]
        array, layout = _as_numpy(output), self.output_layout or self.layout
        if array.shape != layout_shape(expected, layout):
            wanted = layout_shape(expected, layout)
            raise CallFailed(f"the output has shape {array.shape}, where {wanted} was expected")
        return from_layout(array, layout, expected, raw=self.raw_merge)

    def native(
        self, query: Any, key: Any, value: Any, *, mask: Array | None = None, padding: Array | None = None,
        causal: bool = False, like: tuple[Array, Array],
    ) -> Any:  # fmt: skip
        """Call the function with arrays of its own framework and layout; a tuple's first element is the output."""
        names = self.arguments
        heads = like[0].shape[2 if "w" in self.layout else 1]
        options = names.options(heads=heads, d_k=like[0].shape[3], grouped=like[0].shape[1] != like[1].shape[1])
        for name, array, what in ((names.mask, mask, "mask"), (names.padding, padding, "padding mask")):
            if array is not None:
                options[_known(name, what)] = self.convert(array, keep_type=True)
        if causal:
            options[_known(names.causal, "causal flag")] = causal
        inputs: tuple[Any, ...] = (query, key, value)
        if names.inputs is not None:
            inputs, options = (), options | dict(zip(names.inputs, inputs, strict=True))
        return _guarded(lambda: self.function(*inputs, **options))

    def present(self, x: Array) -> Any:
        """Return a canonical array in the function's own layout and framework."""
        return self.convert(to_layout(x, self.layout, raw=self.raw_split))

    def convert(self, x: Array, *, keep_type: bool = False) -> Any:
        """Return an array of the function's framework; masks keep their type unless floating."""
        floating = not keep_type or x.dtype.kind == "f"
        if self.framework == "torch":
            torch = sys.modules["torch"]
            tensor = torch.from_numpy(np.array(x))
            return tensor.to(self.device or "cpu", getattr(torch, self.dtype) if floating else tensor.dtype)
        x = x.astype(_numpy_type(self.dtype)) if floating else np.array(x)
        return sys.modules["jax"].numpy.asarray(x) if self.framework == "jax" else x

    def rounded(self, x: Array) -> Array:
        """Return what is left of an array in the type of the inputs."""
        return x if self.dtype == "float64" else _as_numpy(self.convert(x))

    @property
    def precision(self) -> float:
        """The rounding step at 1 of the inputs' type."""
        return _ROUNDING[self.dtype]

    def using(self, **changes: Any) -> Caller:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


def to_numpy(tensor: Any) -> Any:
    """Return a torch tensor as NumPy; anything else unchanged."""
    return tensor.detach().cpu().double().numpy() if hasattr(tensor, "detach") else tensor


def _numpy_type(name: str) -> Any:
    if name != "bfloat16":
        return name
    import ml_dtypes

    return ml_dtypes.bfloat16


def _known(name: str | None, what: str) -> str:
    if name is None:
        raise CallFailed(f"the function takes no {what}")
    return name


def _guarded(call: Callable[[], Any]) -> Any:
    """Run a stranger's code: whatever it raises, but for an interrupt, is the outcome of the call."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            output = call()
            return output[0] if isinstance(output, tuple | list) and len(output) else output
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise CallFailed(f"{type(error).__name__}: {' '.join(_words(error).split())[:200]}") from None


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception of a stranger's class may fail to print itself
        return "without a message"


def _as_numpy(output: Any) -> Array:
    """Return a floating output as float64."""
    array = _guarded(lambda: (np.asarray(to_numpy(output)),))
    if array.dtype.kind not in "fV" or array.dtype.names is not None:
        raise CallFailed(f"the output has type {array.dtype}, where a floating type was expected")
    return np.asarray(_guarded(lambda: (array.astype(np.float64),)))
