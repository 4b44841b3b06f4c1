"""Audit of queries and keys: what a model's scores do, head by head, against what random scores would do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from analysis.audit.tensors.arrays import LayerArrays, as_layer
from analysis.audit.tensors.heads import audit_head
from analysis.audit.tensors.layers import Layer, head_items, head_place
from analysis.audit.tensors.result import TensorAudit
from analysis.audit.tensors.rows import HeadAudit
from analysis.audit.tensors.visibility import Rules
from analysis.predict.interpolated import predicted_entropy
from analysis.vocabulary.scale import Scale, ScaleLike, resolve_scale
from analysis.vocabulary.text import printable
from attnsym._settings import read_settings
from attnsym._threads import available_workers, one_blas_thread
from attnsym.masks import Window

PARALLEL_SCORES = 2**24


def audit_tensors(
    query: Any,
    key: Any,
    value: Any = None,
    *,
    attn_mask: Any = None,
    padding_mask: Any = None,
    is_causal: bool = False,
    scale: ScaleLike = None,
    enable_gqa: bool = False,
    softcap: float | None = None,
    window: Window = None,
    layout: str = "bhsd",
    names: Sequence[str] | None = None,
    num_heads: int | None = None,
) -> TensorAudit:
    """
    Audit the queries and keys of one or several layers.

    Parameters
    ----------
    query, key, value : array_like, sequence of array_like, or mapping of name to array_like
        Per layer (batch, heads, length, d), after projection and before any scaling; NumPy, torch or JAX arrays of any
        float type, memory-mapped ones are read head by head. A list or mapping holds several layers.
    attn_mask : array_like, optional
        Boolean (True = may attend) or floating (added to the scores), broadcast to (batch, heads, n_queries, n_keys) of
        every layer. A bias of −10⁴ or below counts as hidden.
    padding_mask : array_like, optional
        (batch, n_keys), 1 = a real token. Padded keys are hidden; padded queries are left out where queries and keys
        have the same length.
    is_causal : bool
        Key j is visible to query i when j ≤ i (top-left alignment).
    scale : {"sqrt", "unscaled"}, None, number, expression or callable
        The factor on kᵀq; None is 1/√d_k.
    enable_gqa : bool
        Allow fewer key heads than query heads; query head h reads key head h // (H_q / H_kv).
    softcap : float, optional
        Scores become softcap·tanh(score/softcap), before masks.
    window : int or (int, int), optional
        w: keys at a distance below w; (left, right): inclusive on both sides.
    layout : {"bhsd", "bshd", "hsd", "shd"}
        Order of the axes, the last two without a batch; (length, d) of one head is taken under any.
    names : sequence of str, optional
        The layers' names; by default ``layer0``, … or the keys of the mapping.
    num_heads : int, optional
        Query heads of (batch, length, heads·d) arrays, as a projection returns them; keys have as many heads as their
        width holds. Three axes without it, or without a layout of three letters, are refused.

    Returns
    -------
    TensorAudit
        One `HeadAudit` per layer and head, in order.

    Raises
    ------
    ValueError
        For shapes, masks or settings that do not fit.

    Notes
    -----
    Variances are population variances: they divide by the number of visible keys m, so that iid scores of variance 1
    average 1 − 1/m. The statistics of a row are exact up to rounding; "predicted" columns are expectations under
    assumptions that `HeadAudit` states. Heads run in parallel; numbers do not depend on the number of threads.
    """
    read_settings(enable_gqa=enable_gqa)
    rules = Rules(is_causal=is_causal, window=window, softcap=softcap, attn_mask=attn_mask)
    layers = [
        Layer(
            part[0], partial(as_layer, *part, padding_mask, layout=layout, enable_gqa=enable_gqa, num_heads=num_heads)
        )
        for part in _as_layers(query, key, value, names)
    ]
    return audit_layers(layers, rules=rules, scale=resolve_scale(scale), source="arrays")


@np.errstate(all="ignore")
def audit_layers(
    layers: Sequence[Layer], *, rules: Rules, scale: Scale, source: str, notes: Sequence[str] = ()
) -> TensorAudit:
    """Audit layers one after the other; `audit_tensors` and `audit_files` end here."""
    heads: list[HeadAudit] = []
    workers = available_workers()
    with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
        for layer in layers:
            arrays = layer.load()
            audit = partial(_audit_head, layer.name, arrays, scale, rules)
            scores = math.prod(arrays.query.shape[:3]) * arrays.key.shape[2]
            run = pool.map if scores >= PARALLEL_SCORES else map
            heads += run(audit, range(arrays.query.shape[1]))
    return TensorAudit(source, scale.label, rules, tuple(notes), tuple(heads), _layers=tuple(layers))


@np.errstate(all="ignore")  # threads start with NumPy's own; what is not finite is found and told in words
def _audit_head(name: str, arrays: LayerArrays, scale: Scale, rules: Rules, head: int) -> HeadAudit:
    place = head_place(name, head, arrays, scale, rules)
    # one BLAS thread under each of ours: a head's products are small, and two levels of threads fight for the cores
    with one_blas_thread():
        return audit_head(place, head_items(head, arrays, rules), predicted_entropy)


def _kind(part: Any) -> str:
    if isinstance(part, Mapping):
        return "a mapping"
    return "a list" if isinstance(part, list | tuple) else "an array"


def _as_layers(query: Any, key: Any, value: Any, names: Sequence[str] | None) -> list[tuple[str, Any, Any, Any]]:
    if isinstance(names, str):
        raise ValueError(f"names must be a sequence of layer names, such as [{names!r}]: got one string")
    for name, part in (("key", key), ("value", value)):
        if part is not None and _kind(part) != _kind(query):
            raise ValueError(
                f"query and {name} must both be an array, a list or a mapping (of one array per layer): got "
                f"{_kind(query)} and {_kind(part)}"
            )
    if isinstance(query, Mapping):
        missing = [name for part in (key, value) if part is not None for name in query if name not in part]
        if missing:
            raise ValueError(f"key and value must have the layers of query: {printable(str(missing[0]))} is missing")
        chosen = [str(name) for name in query] if names is None else list(names)
        columns = [[part[name] for name in query] if part is not None else None for part in (query, key, value)]
    else:
        several = isinstance(query, list | tuple)
        columns = [part if part is None or several else [part] for part in (query, key, value)]
        chosen = [f"layer{i}" for i in range(len(columns[0] or ()))] if names is None else list(names)
    count = len(columns[0] or ())
    for name, column in (("key", columns[1]), ("value", columns[2]), ("names", chosen)):
        if column is not None and len(column) != count:
            raise ValueError(
                f"query, key, value and names must count the same layers: query has {count}, {name} has {len(column)}"
            )
    return list(zip(chosen, *(column if column is not None else [None] * count for column in columns), strict=True))
