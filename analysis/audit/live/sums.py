"""Means over the rows of a score matrix, tile by tile, and the place of its largest score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from analysis.audit.live.expected import key_nodes
from analysis.vocabulary.row_formulas import DEAD_TRACE

_MEANS = (
    "within_row_variance", "unbiased_variance", "entropy_ratio", "dead_row_fraction", "first_key_share", "sink_share",
    "logsumexp",
)  # fmt: skip


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


def _update(best: Any, place: Any, absolute: Any, start: int) -> tuple[Any, Any]:
    _, heads, rows, n_keys = absolute.shape
    flat = absolute.transpose(0, 1).reshape(heads, -1)
    value, index = flat.max(dim=-1)
    position = torch.stack((index // (rows * n_keys), index // n_keys % rows + start, index % n_keys), dim=-1)
    better = value > best
    return torch.where(better, value, best), torch.where(better[:, None], position, place)
