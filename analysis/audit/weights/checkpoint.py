"""Audit of a checkpoint's weights: memory-mapped, a layer at a time, sizes from its config.json or from the caller."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.files.readers import read_tensors
from analysis.audit.files.stored import StoredTensor
from analysis.audit.weights.audit import N_KEYS, audit_projections
from analysis.audit.weights.checked import NormTensors, as_projections
from analysis.audit.weights.naming import WeightNames, find_projections, sizes_of
from analysis.audit.weights.projections import Projections
from analysis.audit.weights.result import WeightsAudit
from analysis.vocabulary.scale import ScaleLike, resolve_scale
from analysis.vocabulary.text import printable

Array = NDArray[Any]

MAX_CONFIG = 10_000_000
_UNSCALED = ("t5", "gpt_neo")
_LAYER_QK_NORM = ("cohere", "cohere2", "stablelm", "persimmon", "phi", "mpt", "dbrx")
_INTERLEAVED = ("gptj", "helium", "ernie4_5", "ernie4_5_moe", "llama4_text", "cohere", "cohere2", "glm", "glm4")


@dataclass(frozen=True)
class _Model:
    """What is known of a model beside its weights."""

    num_heads: int
    key_heads: int
    rotary: str | None
    rotary_share: float
    rotary_dims: int | None
    rotary_base: float
    one_plus_gain: bool
    layer_norm: bool
    layer_qk_norm: bool
    by_group: bool
    blocks: bool


def audit_checkpoint(
    paths: str | Path | Sequence[str | Path],
    *,
    num_heads: int | None = None,
    num_key_value_heads: int | None = None,
    scale: ScaleLike = None,
    rotary: str | None = None,
    n_keys: int = N_KEYS,
) -> WeightsAudit:
    """
    Audit the query and key projections in a checkpoint's files.

    Parameters
    ----------
    paths : path or sequence of path
        .safetensors, .npz or .npy files, a folder, or the index of a sharded checkpoint.
    num_heads, num_key_value_heads, scale, rotary, n_keys
        As in `audit_weights`. What is not given is taken from the ``config.json`` beside the first file, where there is
        one; a note says what was assumed. ``rotary="none"`` leaves rotary embedding out.

    Returns
    -------
    WeightsAudit

    Raises
    ------
    OSError
        When a file cannot be opened.
    ValueError
        For files that cannot be read, no projections among the names, quantised weights, or an unknown number of heads.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    tensors = read_tensors(paths)
    layers = find_projections(tensors)
    config = _config(Path(paths[0]))
    model, notes = _model(config, num_heads, num_key_value_heads, rotary)
    factor, told = _scale(config, scale)
    gains = sum(names.gain is not None for names in layers)
    notes += [*told, f"{len(layers)} layers; the gain of the norm before them is folded into {gains}."]
    normed = sum(names.query_norm is not None or names.key_norm is not None for names in layers)
    if normed:
        notes.append(
            f"{normed} layers normalise queries or keys after the projection: the sizes told are those of the gains; "
            "where one norm is taken over all heads, its length is held at its root mean square."
        )
    return audit_projections(
        [partial(_projections, names, tensors, model) for names in layers],
        scale=resolve_scale(factor),
        n_keys=n_keys,
        source=", ".join(Path(path).name or str(path) for path in paths),
        notes=notes,
    )


def _config(path: Path) -> dict[str, Any]:
    folders = (path, path.resolve().parent) if path.is_dir() else (path.parent,)
    place = next((folder / "config.json" for folder in folders if (folder / "config.json").is_file()), None)
    if place is None or place.stat().st_size > MAX_CONFIG:
        return {}
    try:
        config = json.loads(place.read_text(encoding="utf-8"))
        return {**config, **config.get("text_config", {})}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{printable(str(place))} is no model's config.json") from None


def _model(
    config: Mapping[str, Any], num_heads: int | None, key_heads: int | None, rotary: str | None
) -> tuple[_Model, list[str]]:
    heads, of_key = sizes_of(config)
    chosen = heads if num_heads is None else num_heads
    if chosen is None:
        raise ValueError("the number of heads is not known: pass num_heads, or keep config.json beside the file")
    grouped = key_heads if key_heads is not None else of_key if num_heads is None else None
    kind, share = rotary, 1.0
    if rotary is None and any(name in config for name in ("rope_theta", "rope_parameters", "rotary_pct", "rotary_dim")):
        kind = "interleaved" if config.get("model_type") in _INTERLEAVED else "half"
        share = _share(config)
    kind = None if kind == "none" else kind
    family = str(config.get("model_type", ""))
    if family == "codegen":
        raise ValueError("CodeGen's fused projections are laid out for a mesh of devices, which is not read")
    layer_norm = "rms_norm_eps" not in config and not family.endswith("t5")
    model = _Model(
        chosen,
        grouped or chosen,
        kind,
        share,
        _whole(config.get("rotary_dim")),
        _base(config),
        one_plus_gain=family.startswith(("gemma", "qwen3_next", "nemotron")),
        layer_norm=layer_norm and any(name.startswith("layer_norm_eps") for name in config),
        layer_qk_norm=family in _LAYER_QK_NORM,
        by_group=family.startswith("internlm2"),
        blocks=family.startswith("chatglm"),
    )
    told = f"{model.num_heads} query heads, {model.key_heads} key heads"
    told += f"; rotary embedding ({kind}), averaged over positions." if kind else "; no rotary embedding."
    return model, [told]


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _share(config: Mapping[str, Any]) -> float:
    value = _of_rotary(config, "partial_rotary_factor") or _of_rotary(config, "rotary_pct") or 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"config.json gives rotary embedding {printable(repr(value)[:40])} of the components")
    return float(value)


def _base(config: Mapping[str, Any]) -> float:
    value = _of_rotary(config, "rope_theta") or config.get("rotary_emb_base")
    return float(value) if isinstance(value, int | float) and 0 < value < 1e300 else 10000.0


def _of_rotary(config: Mapping[str, Any], name: str) -> Any:
    """Return a setting of rotary embedding, which newer configurations keep in a table of their own."""
    nested = config.get("rope_parameters")
    return config.get(name) or (nested.get(name) if isinstance(nested, dict) else None)


def _scale(config: Mapping[str, Any], scale: ScaleLike) -> tuple[ScaleLike, list[str]]:
    """Return the scale that the caller or the model's configuration gives."""
    if scale is not None or not config:
        return scale, []
    if str(config.get("model_type", "")).endswith(_UNSCALED):
        return "unscaled", [f"{config['model_type']} has no scale: 1."]
    for name, power in (("query_pre_attn_scalar", -0.5), ("attention_multiplier", 1.0)):
        value = config.get(name)
        if isinstance(value, int | float) and value > 0:
            return float(value) ** power, [f"The scale is from {name} = {value:g}."]
    return None, []


def _projections(names: WeightNames, tensors: Mapping[str, StoredTensor], model: _Model) -> Projections:
    label = printable(names.layer)
    q, k = (_by_columns(tensors[name], names, label) for name in (names.query, names.key))
    biases = [None if name is None else tensors[name].array() for name in (names.bias_query, names.bias_key)]
    if names.fused is not None:
        form = "by group" if model.by_group else "blocks" if model.blocks else names.fused
        q, k = _parted(q, form, model, label)
        biases = [None, None] if biases[0] is None else list(_parted(biases[0].reshape(1, -1), form, model, label))
        biases = [None if bias is None else bias[0] for bias in biases]
    gain, offset, query_gain, key_gain = (
        None if name is None else tensors[name].array().astype(np.float32)
        for name in (names.gain, names.offset, names.query_norm, names.key_norm)
    )
    if model.one_plus_gain:
        gain, query_gain, key_gain = (None if g is None else g + 1 for g in (gain, query_gain, key_gain))
    d_k = q.shape[1] // model.num_heads
    of_query, of_key = (None if bias is None else bias.reshape(-1) for bias in biases)
    return as_projections(
        names.layer, q, k, of_query, of_key, gain, offset,
        num_heads=model.num_heads, key_heads=model.key_heads, rotary=model.rotary,
        rotary_dims=model.rotary_dims or int(d_k * model.rotary_share), rotary_base=model.rotary_base,
        norm_before=names.norm_before,
        norm="layer" if offset is not None or (model.layer_norm and gain is not None) else "rms",
        query_norm=_norm_tensors(names.query_norm, query_gain, tensors, model),
        key_norm=_norm_tensors(names.key_norm, key_gain, tensors, model),
    )  # fmt: skip


def _norm_tensors(
    name: str | None, gain: Array | None, tensors: Mapping[str, StoredTensor], model: _Model
) -> NormTensors | None:
    if name is None:
        return None
    bias = tensors.get(name.removesuffix("weight") + "bias")
    kind = "layer" if bias is not None or model.layer_qk_norm else "rms"
    return NormTensors(kind, gain, None if bias is None else bias.array())


def _by_columns(tensor: StoredTensor, names: WeightNames, label: str) -> Array:
    """Return (inputs, outputs), heads and components in one axis."""
    array, by_rows = tensor.array(), names.by_rows
    if by_rows is None:  # a fused projection has more outputs than inputs
        by_rows = array.ndim == 2 and array.shape[0] > array.shape[1]
    if array.dtype.kind in "iub":
        raise ValueError(f"the projections of {label} are {array.dtype}: quantised weights are not read")
    if array.ndim == 3 and not by_rows:  # Flax: (d_model, heads, d_k)
        array = array.reshape(len(array), -1)
    if array.ndim != 2:
        raise ValueError(f"the projections of {label} must have two axes: got shape {array.shape}")
    return array.T if by_rows else array


def _parted(fused: Array, form: str, model: _Model, label: str) -> tuple[Array, Array]:
    """Return the queries' and the keys' columns of a fused projection."""
    width, heads, key_heads = fused.shape[1], model.num_heads, model.key_heads
    parts = heads + 2 * key_heads
    if width % parts:
        raise ValueError(
            f"the fused projection of {label} has {width} outputs: not those of {heads} query heads and of "
            f"{key_heads} key heads twice"
        )
    d_k, readers = width // parts, heads // key_heads
    if form == "by group":
        apart = fused.reshape(len(fused), key_heads, readers + 2, d_k)
        return apart[:, :, :readers].reshape(len(fused), -1), apart[:, :, readers].reshape(len(fused), -1)
    return fused[:, : heads * d_k], fused[:, heads * d_k : (heads + key_heads) * d_k]
