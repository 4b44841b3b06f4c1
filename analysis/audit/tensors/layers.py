"""A layer's arrays, fetched when their turn comes, and what of them each head reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors.arrays import LayerArrays, as_attention_mask, spread_mask
from analysis.audit.tensors.score_rows import ScoreRows, Visible, score_rows, working_type
from analysis.audit.tensors.visibility import RowView, Rules
from analysis.vocabulary.scale import Scale

Array = NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """A layer whose arrays are fetched when its turn comes, so that only one is in memory."""

    name: str
    load: Callable[[], LayerArrays]


@dataclass(frozen=True, kw_only=True)
class HeadPlace:
    """Where a head stands and how its scores are made; see `HeadAudit`."""

    layer: str
    head: int
    key_head: int
    d_k: int
    n_keys: int
    scale: float
    softcap: float | None


@dataclass(frozen=True)
class HeadItem:
    """One head in one batch item, padding already cut away; `visible` and `bias` as for `score_rows`."""

    query: Array
    key: Array
    value: Array | None
    padded_rows: int
    visible: Visible | None = None
    bias: Callable[[slice], Array | None] | None = None


def head_place(name: str, head: int, arrays: LayerArrays, scale: Scale, rules: Rules) -> HeadPlace:
    """Return where a head stands: under grouped heads, head h reads key head h // (H_q / H_kv)."""
    (_, heads, _, d_k), (_, key_heads, n_keys, _) = arrays.query.shape, arrays.key.shape
    return HeadPlace(
        layer=name, head=head, key_head=head // (heads // key_heads), d_k=d_k, n_keys=n_keys,
        scale=scale(d_k, max(n_keys, 1)), softcap=rules.softcap,
    )  # fmt: skip


def head_items(head: int, arrays: LayerArrays, rules: Rules) -> list[HeadItem]:
    """Return a head's queries, keys and values per batch item, padded rows cut away."""
    (batch, heads, n_queries, _), (_, key_heads, n_keys, _) = arrays.query.shape, arrays.key.shape
    key_head = head // (heads // key_heads)
    mask = None
    if rules.attn_mask is not None:
        mask = spread_mask(as_attention_mask(rules.attn_mask), (batch, heads, n_queries, n_keys))
    items = []
    for b in range(batch):
        rows, columns = _kept(arrays.valid_queries, b, n_queries), _kept(arrays.valid_keys, b, n_keys)
        view = RowView(rules, rows, columns, None if mask is None else mask[b, head])
        whole_rows, whole_columns = len(rows) == n_queries, len(columns) == n_keys
        query, key = arrays.query[b, head], arrays.key[b, key_head]
        value = None if arrays.value is None else arrays.value[b, key_head]
        items.append(
            HeadItem(
                query=query if whole_rows else query[rows],
                key=key if whole_columns else key[columns],
                value=value if value is None or whole_columns else value[columns],
                padded_rows=n_queries - len(rows),
                visible=view.visible if rules.hides else None,
                bias=view.bias if rules.adds else None,
            )
        )
    return items


def measure_head(place: HeadPlace, items: list[HeadItem]) -> list[ScoreRows]:
    """Return the rows of every batch item."""
    return [_measure(place, item) for item in items]


def counted(measured: list[ScoreRows]) -> ScoreRows:
    """Return the rows that count, joined: two visible keys or more, all finite."""
    return ScoreRows.joined([rows.where((rows.visible >= 2) & rows.finite) for rows in measured])


def _measure(place: HeadPlace, item: HeadItem) -> ScoreRows:
    if 0 in (len(item.query), len(item.key)):
        return ScoreRows.unseeing(len(item.query))
    dtype = working_type(item.query, item.key, place.scale)
    query, key = item.query.astype(dtype, copy=False), item.key.astype(dtype, copy=False)
    return score_rows(query, key, scale=place.scale, softcap=place.softcap, visible=item.visible, bias=item.bias)


def _kept(valid: Array | None, item: int, length: int) -> Array:
    return np.arange(length) if valid is None else np.flatnonzero(valid[item])
