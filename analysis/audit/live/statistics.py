"""Statistics of one attention call in torch: streaming over query tiles, in float32 or finer, without gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from analysis.vocabulary.row_formulas import DEAD_TRACE, HIDDEN_BIAS

TILE_SCORES = 2**22


@dataclass(frozen=True)
class Call:
    """An attention call: query (batch, heads, n_queries, d), key (batch, heads, n_keys, d), and what it was told."""

    query: Any
    key: Any
    mask: Any
    is_causal: bool
    scale: float


def head_statistics(call: Call) -> dict[str, Any]:
    """
    Return per-head tensors of shape (heads,), named as in `WatchRow`.

    Padded queries are inferred: where a mask hides a key from every query of an item and queries and keys have the same
    length, the query at that place is padding too.
    """
    wide = torch.float64 if call.query.dtype == torch.float64 else torch.float32
    query, key = call.query.detach().to(wide), call.key.detach().to(wide)
    batch, heads, n_queries, _ = query.shape
    n_keys = key.shape[2]
    padded = _padded_queries(call, n_queries, n_keys)
    totals: dict[str, Any] = dict.fromkeys(("rows", "variance", "ratio", "dead"), 0)
    best = torch.full((heads,), -1.0, dtype=wide, device=query.device)
    place = torch.zeros((heads, 3), dtype=torch.long, device=query.device)
    step = max(1, TILE_SCORES // max(1, batch * heads * n_keys))
    for start in range(0, n_queries, step):
        rows = slice(start, min(start + step, n_queries))
        scores = (query[:, :, rows] * call.scale) @ key.transpose(-1, -2)
        visible = _apply_mask(call, scores, rows)
        tile = _tile(scores, visible, None if padded is None else padded[:, rows])
        for name in totals:
            totals[name] = totals[name] + tile[name]
        best, place = _update(best, place, tile["absolute"], start)
    rows_counted = totals["rows"]
    mean = rows_counted.clamp(min=1).to(wide)
    nothing = rows_counted == 0
    result = {
        "rows": rows_counted,
        "rows_left_out": batch * n_queries - rows_counted,
        "largest_score": best.masked_fill(best < 0, torch.nan),
        "query_norm": _rms_norm(query, padded),
        "key_norm": _rms_norm(key, padded),
    }
    for name, total in (("within_row_variance", "variance"), ("entropy_ratio", "ratio"), ("dead_row_fraction", "dead")):
        result[name] = (totals[total] / mean).masked_fill(nothing, torch.nan)
    largest = _at_largest(query, key, place)
    largest["cosine_at_largest"] = largest["cosine_at_largest"].masked_fill(nothing, torch.nan)
    return result | largest


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


def _tile(scores: Any, visible: Any, padded: Any) -> dict[str, Any]:
    n_keys = scores.shape[-1]
    if visible is None:
        count = torch.full(scores.shape[:-1], n_keys, dtype=scores.dtype, device=scores.device)
        shown = scores
    else:
        count = visible.sum(-1).to(scores.dtype)
        shown = scores.masked_fill(~visible, 0.0)
    mean = shown.sum(-1, keepdim=True) / count.clamp(min=1)[..., None]
    centred = shown - mean
    if visible is not None:
        centred = centred.masked_fill(~visible, 0.0)
    variance = centred.square().sum(-1) / count.clamp(min=1)
    shifted = centred - centred.amax(-1, keepdim=True)
    weights = shifted.exp()
    if visible is not None:
        weights = weights.masked_fill(~visible, 0.0)
    total = weights.sum(-1)
    entropy = total.log() - (weights * shifted).sum(-1) / total
    trace = 1 - weights.square().sum(-1) / total.square()
    used = (count >= 2) & variance.isfinite()
    if padded is not None:
        used = used & ~padded[:, None, :]
    ratio = entropy / count.clamp(min=2).log()

    def add(values: Any) -> Any:
        return torch.where(used, values, 0.0).sum((0, 2))

    absolute = shown.abs().masked_fill(~used[..., None], -1.0)
    return {
        "rows": used.sum((0, 2)),
        "variance": add(variance),
        "ratio": add(ratio),
        "dead": add((trace < DEAD_TRACE).to(scores.dtype)),
        "absolute": absolute,
    }


def _rms_norm(x: Any, padded: Any) -> Any:
    """Return per head the root mean square length of the vectors that are no padding."""
    squares = x.square().sum(-1)
    if padded is None:
        return squares.mean((0, 2)).sqrt()
    kept = (~padded).to(squares.dtype)
    return ((squares * kept[:, None, :]).sum((0, 2)) / kept.sum()).sqrt()


def _update(best: Any, place: Any, absolute: Any, start: int) -> tuple[Any, Any]:
    _, heads, rows, n_keys = absolute.shape
    flat = absolute.transpose(0, 1).reshape(heads, -1)
    value, index = flat.max(dim=-1)
    position = torch.stack((index // (rows * n_keys), index // n_keys % rows + start, index % n_keys), dim=-1)
    better = value > best
    return torch.where(better, value, best), torch.where(better[:, None], position, place)


def _at_largest(query: Any, key: Any, place: Any) -> dict[str, Any]:
    heads = torch.arange(query.shape[1], device=query.device)
    q, k = query[place[:, 0], heads, place[:, 1]], key[place[:, 0], heads, place[:, 2]]
    products = (q * k).abs()
    share, channel = (products / products.sum(-1, keepdim=True)).max(dim=-1)
    return {
        "cosine_at_largest": torch.nn.functional.cosine_similarity(q, k, dim=-1),
        "largest_channel": channel,
        "largest_channel_share": share,
    }


def rounding_step(value: float, dtype: Any) -> float:
    """Return the distance from |value| to the next larger number of a torch type; infinite beyond its range."""
    if value != value:
        return value
    information = torch.finfo(dtype)
    size = max(abs(value), information.tiny)
    if size > information.max:
        return float("inf")
    exponent = int(torch.frexp(torch.tensor(size, dtype=torch.float64)).exponent)
    return float(information.eps * 2.0 ** (exponent - 1))
