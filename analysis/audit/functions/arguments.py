"""The names under which a function takes queries, keys, values, masks, causal flag and heads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

MASKS = ("attn_mask", "mask", "attention_mask", "src_mask", "attn_bias", "bias")
PADDINGS = (
    "key_padding_mask", "padding_mask", "key_mask", "kv_mask", "pad_mask", "src_key_padding_mask",
    "memory_key_padding_mask",
)  # fmt: skip
CAUSALS = ("is_causal", "causal", "use_causal_mask")
_HEADS = ("num_heads", "n_heads", "heads", "n_head", "nhead", "nheads", "num_attention_heads")
_GROUPED = ("enable_gqa",)
_WIDTHS = ("d_k", "dk", "head_dim", "d_head", "dim_head")
_SCALES = ("scale", "scaling", "sm_scale", "softmax_scale")
_OFF = ("dropout", "dropout_p", "p_dropout", "attn_dropout", "dropout_rate")
_INPUTS = (
    ("query", "queries", "q", "xq", "query_states", "query_layer"),
    ("key", "keys", "k", "xk", "key_states", "key_layer"),
    ("value", "values", "v", "xv", "value_states", "value_layer"),
)


@dataclass(frozen=True)
class Arguments:
    """
    The names of a function's arguments; None where it has none.

    Attributes
    ----------
    mask, padding, causal, heads, grouped : str or None
    inputs : tuple of str or None
        Names of query, key and value where they do not come first, in that order.
    required : tuple of str
        Further arguments without a default.
    guess : bool
        The function takes ``**kwargs``: names that its signature lacks may still be read from them.
    """

    mask: str | None = None
    padding: str | None = None
    causal: str | None = None
    heads: str | None = None
    grouped: str | None = None
    inputs: tuple[str, str, str] | None = None
    required: tuple[str, ...] = ()
    guess: bool = False

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Arguments:
        """Read a signature. Where there is none to read (built-ins), PyTorch's names are tried."""
        parameters = _parameters(function)
        if parameters is None:
            return cls("attn_mask", causal="is_causal", grouped="enable_gqa")

        def first(names: Sequence[str]) -> str | None:
            return next((name for name in names if name in parameters), None)

        inputs = _inputs(parameters)
        places = list(parameters) if inputs is None else [n for n in parameters if n not in inputs]
        required = tuple(
            name
            for name in (places[3:] if inputs is None else places)
            if parameters[name].default is inspect.Parameter.empty
            and parameters[name].kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        )
        guess = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        return cls(
            first(MASKS), first(PADDINGS), first(CAUSALS), first(_HEADS), first(_GROUPED), inputs, required, guess
        )

    def taking(self, **names: Any) -> Arguments:
        """Return a copy with names that were found to act."""
        return replace(self, **names)

    def options(self, *, heads: int, d_k: int, grouped: bool) -> dict[str, Any]:
        """Return what every call passes beside queries, keys and values: sizes, and values for what has no default."""
        known: dict[str, Any] = {}
        for name in self.required:
            if name in _WIDTHS:
                known[name] = d_k
            elif name in _SCALES:
                known[name] = d_k**-0.5
            else:
                known[name] = 0.0 if name in _OFF else False if name in (self.causal, "training") else None
        if self.heads is not None:
            known[self.heads] = heads
        if grouped and self.grouped is not None:
            known[self.grouped] = True
        return known


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    target = function
    forward = getattr(type(function), "forward", None)
    if callable(forward):
        target = function.forward  # type: ignore[attr-defined]
    try:
        return inspect.signature(target).parameters
    except Exception:  # a stranger's object may raise anything when it is looked at
        return None


def _inputs(parameters: Mapping[str, inspect.Parameter]) -> tuple[str, str, str] | None:
    """Return the names of query, key and value where the signature has them in another place than the first three."""
    kinds = {"positional": inspect.Parameter.POSITIONAL_ONLY}
    lower = {name.lower(): name for name, p in parameters.items() if p.kind is not kinds["positional"]}
    found = tuple(next((lower[n] for n in names if n in lower), "") for names in _INPUTS)
    if not all(found) or tuple(parameters)[:3] == found:
        return None
    return found[0], found[1], found[2]
