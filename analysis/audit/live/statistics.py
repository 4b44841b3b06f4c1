"""Statistics of one attention call in torch: streaming over query tiles, in float32 or finer, without gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from analysis.audit.live.sums import Sums
from analysis.audit.live.vectors import no_vectors, vector_columns
from analysis.vocabulary.row_formulas import HIDDEN_BIAS

TILE_SCORES = 2**22
HIDDEN_SCORE = -5e3  # a score with the usual fills added: −10⁴, the type's least number, −∞


@dataclass(frozen=True)
class Call:
    """An attention call: query (batch, heads, n_queries, d), key (batch, heads, n_keys, d), and what it was told."""

    query: Any
    key: Any
    mask: Any
    is_causal: bool
    scale: float


@dataclass(frozen=True)
class Pair:
    """The queries (batch, heads, n_queries, d) and keys (batch, heads, n_keys, d) of a score matrix."""

    query: Any
    key: Any


def head_statistics(call: Call) -> dict[str, Any]:
    """
    Return per-head tensors of shape (heads,), named as in `WatchRow`, and what its prediction needs.

    That is ``unbiased_variance``, and ``key_counts`` (heads, nodes): rows at each number of keys of `key_nodes`.

    Padded queries are inferred: where a mask hides a key from every query of an item and queries and keys have the same
    length, the query at that place is padding too.
    """
    wide = torch.float64 if call.query.dtype == torch.float64 else torch.float32
    query, key = call.query.detach().to(wide), call.key.detach().to(wide)
    batch, heads, n_queries, _ = query.shape
    n_keys = key.shape[2]
    padded = _padded_queries(call, n_queries, n_keys)
    sums = Sums(heads, n_keys, wide, query.device)
    step = max(1, TILE_SCORES // max(1, batch * heads * n_keys))
    for start in range(0, n_queries, step):
        rows = slice(start, min(start + step, n_queries))
        scores = (query[:, :, rows] * call.scale) @ key.transpose(-1, -2)
        visible = _apply_mask(call, scores, rows)
        sums.add(scores, visible, None if padded is None else padded[:, rows], start)
    return sums.result(batch * n_queries) | vector_columns(query, key, call.scale, sums, padded)


def matrix_statistics(scores: Any, n_keys: int, pair: Pair | None) -> dict[str, Any]:
    """
    Return the same of a score matrix (batch, heads, n_queries, n_keys or more) as a softmax took it.

    A score below −5000 counts as hidden. Columns from `n_keys` on are a sink: they take weight and have no value. Norms
    are of the vectors whose product the scores came from, where that was seen.
    """
    wide = torch.float64 if scores.dtype == torch.float64 else torch.float32
    batch, heads, n_queries, _ = scores.shape
    padded = None
    if n_queries == n_keys:
        padded = ~(scores[..., :n_keys] > HIDDEN_SCORE).any(dim=-2).any(dim=1)
    sums = Sums(heads, n_keys, wide, scores.device)
    step = max(1, TILE_SCORES // max(1, batch * heads * n_keys))
    for start in range(0, n_queries, step):
        rows = slice(start, min(start + step, n_queries))
        tile = scores[:, :, rows].detach().to(wide)
        sums.add(
            tile[..., :n_keys],
            tile[..., :n_keys] > HIDDEN_SCORE,
            None if padded is None else padded[:, rows],
            start,
            sink=tile[..., n_keys:],
        )
    vectors = no_vectors(heads, scores.device)
    if pair is not None and pair.query.shape[:3] == scores.shape[:3] and pair.key.shape[1] == heads:
        vectors = vector_columns(pair.query.detach().to(wide), pair.key.detach().to(wide), torch.nan, sums, padded)
    return sums.result(batch * n_queries) | vectors


def _padded_queries(call: Call, n_queries: int, n_keys: int) -> Any:
    if call.mask is None or n_queries != n_keys:
        return None
    mask = call.mask.detach()
    seen = mask if mask.dtype == torch.bool else mask > HIDDEN_BIAS
    seen = (
        seen.expand(call.query.shape[0], *seen.shape[-3:]) if seen.dim() == 4 else seen.expand(1, 1, *seen.shape[-2:])
    )
    hidden = ~seen.any(dim=-2).any(dim=1)  # (batch, n_keys): no query of no head sees this key
    return hidden.expand(call.query.shape[0], n_keys)


def _apply_mask(call: Call, scores: Any, rows: slice) -> Any:
    """Add a floating mask in place; return the boolean visibility, or None where everything is visible."""
    visible = None
    if call.mask is not None:
        mask = call.mask.detach()
        mask = mask[..., rows, :] if mask.dim() > 1 and mask.shape[-2] > 1 else mask
        if mask.dtype == torch.bool:
            visible = mask
        else:
            visible = mask > HIDDEN_BIAS
            scores += mask.to(scores.dtype).masked_fill(~visible, 0.0)
    if call.is_causal:
        i = torch.arange(rows.start, rows.stop, device=scores.device)[:, None]
        causal = torch.arange(scores.shape[-1], device=scores.device)[None, :] <= i
        visible = causal if visible is None else visible & causal
    return None if visible is None else visible.expand_as(scores)
