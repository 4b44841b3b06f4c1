"""Statistics of one attention call in torch: streaming over query tiles, in float32 or finer, without gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from analysis.audit.live.expected import key_nodes
from analysis.vocabulary.row_formulas import DEAD_TRACE, HIDDEN_BIAS

TILE_SCORES = 2**22
HIDDEN_SCORE = -5e3  # a score with the usual fills added: −10⁴, the type's least number, −∞
_MEANS = (
    "within_row_variance", "unbiased_variance", "entropy_ratio", "dead_row_fraction", "first_key_share", "sink_share",
    "logsumexp",
)  # fmt: skip


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
    return sums.result(batch * n_queries) | _vectors(query, key, call.scale, sums, padded)


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
        vectors = _vectors(pair.query.detach().to(wide), pair.key.detach().to(wide), torch.nan, sums, padded)
    return sums.result(batch * n_queries) | vectors


def _vectors(query: Any, key: Any, scale: float, sums: Sums, padded: Any) -> dict[str, Any]:
    """Return what the vectors tell beside their scores: norms, the bound, and the pair of the largest score."""
    if not query.numel() or not key.numel():
        return no_vectors(query.shape[1], query.device)
    largest = _at_largest(query, key, sums.place)
    for name, values in largest.items():
        unknown = torch.nan if values.is_floating_point() else -1
        largest[name] = values.masked_fill(sums.rows == 0, unknown)
    return largest | norms_and_bound(query, key, scale, padded)


def norms_and_bound(query: Any, key: Any, scale: float, padded: Any) -> dict[str, Any]:
    """Return the rms norms of queries and keys, (heads,) each, and |scale|·max ‖q‖·max ‖k‖."""
    longest = [x.square().sum(-1).amax((0, 2)).sqrt() for x in (query, key)]
    return {
        "query_norm": _rms_norm(query, padded),
        "key_norm": _rms_norm(key, padded),
        "score_bound": abs(scale) * longest[0] * longest[1],
    }


def no_vectors(heads: int, device: Any) -> dict[str, Any]:
    """Return the columns of vectors that were not seen."""
    numbers = (
        "query_norm", "key_norm", "score_bound", "cosine_at_largest", "largest_channel_share", "query_norm_at_largest",
        "key_norm_at_largest",
    )  # fmt: skip
    places = ("largest_channel", "query_at_largest", "key_at_largest")
    unknown = {name: torch.full((heads,), torch.nan, device=device) for name in numbers}
    return unknown | {name: torch.full((heads,), -1, device=device) for name in places}


class Sums:
    """Sums over rows, tile by tile, and the place of the largest score."""

    def __init__(self, heads: int, n_keys: int, wide: Any, device: Any) -> None:
        self.rows: Any = torch.zeros(heads, dtype=torch.long, device=device)
        self.totals = {name: torch.zeros(heads, dtype=wide, device=device) for name in _MEANS}
        self.nodes = torch.tensor(key_nodes(n_keys), dtype=wide, device=device)
        self.key_counts = torch.zeros((heads, len(self.nodes)), dtype=wide, device=device)
        self.best = torch.full((heads,), -1.0, dtype=wide, device=device)
        self.highest = torch.full((heads,), -torch.inf, dtype=wide, device=device)
        self.place = torch.zeros((heads, 3), dtype=torch.long, device=device)

    def add(self, scores: Any, visible: Any, padded: Any, start: int, sink: Any = None) -> None:
        """Take a tile of query rows from `start` on."""
        if not scores.numel():
            return
        tile = _tile(scores, visible, padded, sink)
        self.add_rows(tile.count, tile.used, tile.means)
        self.highest = torch.maximum(self.highest, tile.highest)
        self.best, self.place = _update(self.best, self.place, tile.absolute, start)

    def add_rows(self, count: Any, used: Any, values: dict[str, Any]) -> None:
        """Take rows (batch, heads, rows) with their numbers of visible keys, which of them count, and their values."""
        self.rows = self.rows + used.sum((0, 2))
        self.key_counts += _at_nodes(self.nodes, count, used)
        for name, total in self.totals.items():
            self.totals[name] = total + torch.where(used, values[name], 0.0).sum((0, 2))

    def result(self, rows: int) -> dict[str, Any]:
        """Return the means over rows that count."""
        count, nothing = self.rows.clamp(min=1).to(self.best.dtype), self.rows == 0
        means = {name: (total / count).masked_fill(nothing, torch.nan) for name, total in self.totals.items()}
        return means | {
            "rows": self.rows,
            "key_counts": self.key_counts,
            "rows_left_out": rows - self.rows,
            "largest_score": self.best.masked_fill(self.best < 0, torch.nan),
            "largest_signed_score": self.highest.masked_fill(nothing, torch.nan),
        }


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


@dataclass(frozen=True)
class _Tile:
    """Rows (batch, heads, rows): keys seen, whether they count, values to be averaged; and scores by size."""

    count: Any
    used: Any
    means: dict[str, Any]
    highest: Any
    absolute: Any


def _tile(scores: Any, visible: Any, padded: Any, sink: Any) -> _Tile:
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
    top = centred.amax(-1, keepdim=True)
    shifted = centred - top
    weights = shifted.exp()
    if visible is not None:
        weights = weights.masked_fill(~visible, 0.0)
    total = weights.sum(-1)
    entropy = total.log() - (weights * shifted).sum(-1) / total
    trace = 1 - weights.square().sum(-1) / total.square()
    used = (count >= 2) & variance.isfinite()
    if padded is not None:
        used = used & ~padded[:, None, :]
    lse = total.log() + (top + mean)[..., 0]
    share = torch.full_like(lse, torch.nan)
    if sink is not None and sink.shape[-1]:
        beside = sink.logsumexp(-1)
        share = (beside - torch.logaddexp(beside, lse)).exp()
    hidden = ~used[..., None] if visible is None else ~(used[..., None] & visible)
    means = {
        "within_row_variance": variance,
        "unbiased_variance": variance * count / (count - 1).clamp(min=1),
        "entropy_ratio": entropy / count.clamp(min=2).log(),
        "dead_row_fraction": (trace < DEAD_TRACE).to(scores.dtype),
        "first_key_share": weights[..., 0] / total,
        "sink_share": share,
        "logsumexp": lse,
    }
    highest = shown.masked_fill(hidden, -torch.inf).amax((0, 2, 3))
    return _Tile(count, used, means, highest, shown.abs().masked_fill(~used[..., None], -1.0))


def _at_nodes(nodes: Any, count: Any, used: Any) -> Any:
    """Return (heads, nodes): how many rows see so many keys; between nodes a row is shared out, linear in log m."""
    right = torch.bucketize(count.contiguous(), nodes).clamp(1, len(nodes) - 1)
    logs = nodes.log()
    part = (count.clamp(min=2).log() - logs[right - 1]) / (logs[right] - logs[right - 1])
    place = (right - 1 + part).masked_fill(~used, torch.inf)
    steps = torch.arange(len(nodes), dtype=nodes.dtype, device=nodes.device)
    return (1 - (place[..., None] - steps).abs()).clamp(min=0).sum((0, 2))


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
        "query_at_largest": place[:, 1],
        "key_at_largest": place[:, 2],
        "query_norm_at_largest": q.square().sum(-1).sqrt(),
        "key_norm_at_largest": k.square().sum(-1).sqrt(),
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
