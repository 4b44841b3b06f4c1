"""Where a torch attention module keeps the numbers that make its queries and keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from analysis.vocabulary.text import printable

_PAIRS = (("q_proj", "k_proj"), ("query", "key"), ("to_q", "to_k"), ("q_lin", "k_lin"), ("wq", "wk"), ("q", "k"))
_PACKED = ("qkv", "c_attn", "qkv_proj")  # all queries, then all keys, then all values
_NORM = r"{0}_?(layer_?)?norm|(layer_?)?norm_?{0}|ln_?{0}|{0}_?ln"
_SIDES = {"query": "(q|query)", "key": "(k|key)"}
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads")
# parameters of the module itself whose part in the scores is known: projections, or something added to scores
_KNOWN = {
    "in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight", "bias_k", "bias_v", "sinks",
    "relative_position_bias_table",
}  # fmt: skip
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Rows:
    """A parameter whose axis 0 runs, from `start` on, over (head, component) of one side."""

    name: str
    values: Any
    start: int = 0


@dataclass(frozen=True)
class Projections:
    """The parameters that carry a factor per head on the queries and on the keys, and their sizes."""

    num_heads: int
    num_key_value_heads: int
    d_k: int
    query: list[Rows]
    key: list[Rows]


def projections(module: nn.Module, num_heads: int | None = None) -> Projections:
    """
    Find what makes a module's queries and keys.

    Raises
    ------
    ValueError
        With the reason why a factor cannot be put on single heads of this module.
    """
    heads = _num_heads(module, num_heads)
    for name, child in module.named_children():
        if isinstance(child, nn.Embedding) and child.embedding_dim != heads:  # one number a head is a bias on scores
            raise _refuse(module, f"{name} may make scores with the queries alone, as relative keys do")
    sides = _multihead(module) if isinstance(module, nn.MultiheadAttention) else _linear(module, heads)
    strange = [name for name, _ in module.named_parameters(recurse=False) if name not in _KNOWN]
    if strange:
        raise _refuse(module, f"its parameter {printable(strange[0])} may have a part in the scores")
    width = {side: size for side, (_, size) in sides.items()}
    d_k, rest = divmod(width["query"], heads)
    stated = getattr(module, "head_dim", d_k)
    if rest or not d_k or width["key"] % d_k or heads % (width["key"] // d_k or heads + 1) or stated != d_k:
        sizes = f"query width {width['query']}, key width {width['key']}, head_dim {stated}"
        raise _refuse(module, f"{heads} heads do not fit its projections ({sizes})")
    key_heads = width["key"] // d_k
    query = _carrier(module, "query", sides["query"][0], heads, d_k)
    key = _carrier(module, "key", sides["key"][0], key_heads, d_k)
    _check_numbers(module, query, key)
    return Projections(heads, key_heads, d_k, query, key)


def _refuse(module: nn.Module, reason: str) -> ValueError:
    return ValueError(f"{type(module).__name__} cannot be clipped head by head: {reason}")


def _num_heads(module: nn.Module, given: int | None) -> int:
    holders = (module, getattr(module, "config", None))
    found = next((getattr(x, n) for x in holders for n in _HEADS if isinstance(getattr(x, n, None), int)), None)
    heads = found if given is None else given
    if isinstance(heads, bool) or not isinstance(heads, int) or heads < 1:
        raise _refuse(module, f"it does not say how many heads it has: give num_heads (got {given!r})")
    if given is not None and found is not None and given != found:
        raise _refuse(module, f"it has {found} heads: got num_heads {given}")
    return heads


def _multihead(module: nn.MultiheadAttention) -> dict[str, tuple[list[Rows], int]]:
    if type(module).forward is not nn.MultiheadAttention.forward or nn.utils.parametrize.is_parametrized(module):
        raise _refuse(module, "it changes what nn.MultiheadAttention does with its weights")
    width = module.embed_dim
    sides: dict[str, tuple[list[Rows], int]] = {}
    for start, side, own in ((0, "query", module.q_proj_weight), (width, "key", module.k_proj_weight)):
        packed = Rows("in_proj_weight", module.in_proj_weight, start)
        rows = [packed if own is None else Rows(f"{side[0]}_proj_weight", own)]
        if module.in_proj_bias is not None:
            rows.append(Rows("in_proj_bias", module.in_proj_bias, start))
        sides[side] = rows, width
    if module.bias_k is not None:
        sides["key"][0].append(Rows("bias_k", module.bias_k.view(-1)))
    return sides


def _linear(module: nn.Module, heads: int) -> dict[str, tuple[list[Rows], int]]:
    """Return both sides of separate projections, or of one in three blocks."""
    children = module._modules  # `named_children` leaves out what has two names
    pair = next((pair for pair in _PAIRS if set(pair) <= set(children)), None)
    if pair is not None:
        found = {side: list(_of(module, name)) for side, name in zip(("query", "key"), pair, strict=True)}
        if found["query"][0].values is found["key"][0].values:
            raise _refuse(module, "one matrix makes its queries and its keys")
        return {side: (rows, rows[0].values.shape[0]) for side, rows in found.items()}
    packed = next((name for name in _PACKED if name in children), None)
    if packed is None:
        raise _refuse(module, "no projections of known names (q_proj and k_proj, query and key, qkv, ...) were found")
    rows = list(_of(module, packed))
    outputs, inputs = rows[0].values.shape
    stated = getattr(module, "head_dim", None)
    width = inputs if stated is None else heads * stated
    key_width, rest = divmod(outputs - width, 2)
    key_heads = next((getattr(module, n) for n in ("num_key_value_heads", "num_kv_heads") if hasattr(module, n)), heads)
    if rest or key_width <= 0 or key_width * heads != width * key_heads:
        raise _refuse(module, f"{packed} is no three blocks of queries, keys and values, of the widths that it states")
    return {"query": (rows, width), "key": ([Rows(row.name, row.values, width) for row in rows], key_width)}


def _of(module: nn.Module, name: str) -> Iterator[Rows]:
    """Yield a projection's weight and bias, outputs along axis 0."""
    layer: Any = getattr(module, name)
    transposed = type(layer).__name__ == "Conv1D"  # of GPT-2: weight (inputs, outputs)
    plain = isinstance(layer, nn.Linear) or transposed
    if not plain or list(layer.children()) or not isinstance(layer.weight, nn.Parameter):  # a parametrised one is none
        raise _refuse(module, f"{name} is {type(layer).__name__}, not a plain linear layer")
    yield Rows(f"{name}.weight", layer.weight.T if transposed else layer.weight)
    if layer.bias is not None:
        yield Rows(f"{name}.bias", layer.bias)


def _carrier(module: nn.Module, side: str, rows: list[Rows], heads: int, d_k: int) -> list[Rows]:
    """Return the projection's numbers, or those of a norm that stands behind it and would undo a factor on them."""
    pattern = _NORM.format(_SIDES[side])
    for name, norm in module.named_children():
        if re.fullmatch(r"qk_?(layer_?)?norm", name):
            raise _refuse(module, f"{name} normalises queries and keys together")
        if not re.fullmatch(pattern, name) or isinstance(norm, nn.Identity):
            continue
        gain = getattr(norm, "weight", None)
        if gain is None:
            raise _refuse(module, f"{name} normalises its {side} without a gain, so that a factor would have no effect")
        if gain.numel() != heads * d_k:
            raise _refuse(module, f"{name} normalises its {side}, and all heads share its gain")
        bias = getattr(norm, "bias", None)
        found = {"weight": gain} if bias is None else {"weight": gain, "bias": bias}
        return [Rows(f"{name}.{kind}", values.view(-1)) for kind, values in found.items()]
    return rows


def _check_numbers(module: nn.Module, *sides: list[Rows]) -> None:
    for row in (row for side in sides for row in side):
        if row.values.dtype not in _FLOATS or row.values.device.type == "meta":
            raise _refuse(
                module, f"{row.name} holds no floating numbers ({row.values.dtype}, {row.values.device.type})"
            )
