"""Which tensors of a checkpoint are the query and key projections, their biases and the norm before them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from analysis.audit.files.naming import KEY_NAMES, QUERY_NAMES, natural_order, split_role
from analysis.vocabulary.text import printable

# fused projections: rows in blocks q, k, v; and group by group, each the queries of a key head, then k, v (of one query
# head a group in GPT-NeoX and BLOOM, of several in Falcon and Megatron)
BLOCKS = ("qkv", "qkv_proj", "c_attn", "Wqkv", "wqkv", "W_pack", "to_qkv", "in_proj")
BY_GROUP = ("query_key_value", "linear_qkv")
_WEIGHT = re.compile(r"(?P<stem>.+?)(?P<end>[./]weight|[./]kernel|_weight)")
_BIAS = {".weight": ".bias", "/weight": "/bias", ".kernel": ".bias", "/kernel": "/bias", "_weight": "_bias"}
# pre-norms beside the attention module, by library; norm1 of torch's own layers may come after it, and is left out
_NORMS = (
    "input_layernorm", "ln_1", "attention_norm", "self_attn_layer_norm", "layer_norm", "norm1", "ln1", "attn_norm",
    "layernorm_before", "norm", "ln_attn", "pre_attention_layernorm", "norm_1", "ln_before", "attention_layer_norm",
    "attention_layernorm",
)  # fmt: skip
_QK_NORMS = (("q_norm", "k_norm"), ("q_layernorm", "k_layernorm"), ("query_norm", "key_norm"),
    ("q_layer_norm", "k_layer_norm"), ("query_layernorm", "key_layernorm"), ("norm_q", "norm_k"),
    ("q_ln", "k_ln"), ("ln_q", "ln_k"))  # fmt: skip
_CROSS = re.compile(r"encoder_attn|EncDecAttention|crossattention|cross_attn|multihead_attn|attn2", re.IGNORECASE)
_POST = re.compile(r"(?P<root>.*?)encoder\.layer\.(?P<number>[0-9]+)\.attention\.self")


@dataclass(frozen=True)
class WeightNames:
    """
    The names of one layer's tensors.

    `fused` is "blocks" or "by group" where `query` and `key` are one tensor; `by_rows` tells weights of shape
    (outputs, inputs), as torch's Linear has them, and is None where the shape must tell. `gain` and `offset` are of the
    norm before (of the block before where `norm_before` is False), `query_norm` and `key_norm` the gains of norms after
    the projections.
    """

    layer: str
    query: str
    key: str
    by_rows: bool | None
    fused: str | None = None
    bias_query: str | None = None
    bias_key: str | None = None
    gain: str | None = None
    offset: str | None = None
    query_norm: str | None = None
    key_norm: str | None = None
    norm_before: bool = True


def find_projections(names: Iterable[str]) -> list[WeightNames]:
    """
    Return the layers of a checkpoint in natural order.

    Raises
    ------
    ValueError
        When there is no pair of projections.
    """
    present = list(names)
    held = set(present)
    found: dict[str, WeightNames] = {}
    queries: dict[str, str] = {}
    keys: dict[str, str] = {}
    for name in present:
        match = _WEIGHT.fullmatch(name)
        if match is None:
            continue
        stem, end = match["stem"], match["end"]
        prefix, role = split_role(stem)
        last = re.split(r"[./]", stem)[-1]
        if last in BLOCKS + BY_GROUP:
            layer = stem[: -len(last)].rstrip("./") or last
            bias = _held(held, stem + _BIAS[end])
            fused = "by group" if last in BY_GROUP else "blocks"
            # GPT-2's Conv1D and Flax keep (inputs, outputs); others call a Linear c_attn too
            rows = None if last == "c_attn" else "kernel" not in end
            found[layer] = WeightNames(
                layer, name, name, rows, fused, bias, bias, _gain(held, layer, last == "in_proj")
            )
        elif role in QUERY_NAMES:
            queries[prefix] = name
        elif role in KEY_NAMES:
            keys[prefix] = name
    for layer, name in queries.items():
        if layer in keys:
            found[layer or "-"] = WeightNames(
                layer=layer or "-",
                query=name,
                key=keys[layer],
                by_rows="kernel" not in name,
                bias_query=_held(held, _bias_of(name)),
                bias_key=_held(held, _bias_of(keys[layer])),
                gain=_gain(held, layer, torch_layer=False),
            )
    if not found:
        some = ", ".join(printable(name[:80]) for name in present[:6]) + (", …" if len(present) > 6 else "")
        raise ValueError(
            f"no query and key projections found (q_proj.weight, qkv.weight, …): the file holds {some or 'nothing'}"
        )
    return [_with_norms(found[layer], held) for layer in sorted(found, key=natural_order)]


def _with_norms(names: WeightNames, held: set[str]) -> WeightNames:
    """Add the norms of queries and keys that stand beside the projections, and the bias of the norm before."""
    pairs = [[_held(held, f"{names.layer}.{norm}.weight") for norm in pair] for pair in _QK_NORMS]
    query, key = next((pair for pair in pairs if pair != [None, None]), [None, None])
    return replace(
        names,
        offset=None if names.gain is None else _held(held, _bias_of(names.gain)),
        query_norm=query,
        key_norm=key,
        norm_before=_POST.fullmatch(names.layer) is None,
    )


def _bias_of(weight: str) -> str:
    match = _WEIGHT.fullmatch(weight)
    assert match is not None
    return match["stem"] + _BIAS[match["end"]]


def _held(held: set[str], name: str) -> str | None:
    return name if name in held else None


def _gain(held: set[str], layer: str, torch_layer: bool) -> str | None:
    """Return the name of the gain of the norm that the attention's input has passed, None where it is not certain."""
    if torch_layer or _CROSS.search(layer):
        return None
    post = _POST.fullmatch(layer)
    if post is not None:  # BERT normalises after each block: the input comes from the block before
        number = int(post["number"])
        before = f"encoder.layer.{number - 1}.output" if number else "embeddings"
        return _held(held, f"{post['root']}{before}.LayerNorm.weight")
    block = layer
    for _ in range(2):
        block, dot, _ = block.rpartition(".")
        for norm in _NORMS:
            if f"{block}{dot}{norm}.weight" in held and dot:
                return f"{block}{dot}{norm}.weight"
    return None


def sizes_of(config: Mapping[str, object]) -> tuple[int | None, int | None]:
    """Return the numbers of query and of key heads that a model's config.json states."""

    def first(*names: str) -> int | None:
        values = (config.get(name) for name in names)
        return next((value for value in values if type(value) is int and value > 0), None)

    of_key = first("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "num_query_groups")
    if config.get("multi_query") is True and not config.get("new_decoder_architecture"):  # Falcon 7B, StarCoder
        of_key = 1
    return first("num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads"), of_key
