"""One captured attention call: its statistics until they become rows, and the axes of what it was given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from analysis.audit.live.history import WatchRow
from analysis.audit.live.statistics import rounding_step


@dataclass
class Record:
    """One captured call: what `WatchRow` says of it, still as tensors, so that nothing waits for the device."""

    step: int
    module: str
    call: int
    query: Any
    n_keys: int
    scale: float
    statistics: dict[str, Any]
    gradients: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> list[WatchRow]:
        """Return one row per head."""
        heads, n_queries, d_k = self.query.shape[-3], self.query.shape[-2], self.query.shape[-1]
        columns = {name: values.tolist() for name, values in self.statistics.items()}
        gradients = {
            f"{name}_gradient_norm": self.gradients[name].tolist() if name in self.gradients else [float("nan")] * heads
            for name in ("query", "key")
        }
        dtype = self.query.dtype
        return [
            WatchRow(
                step=self.step, module=self.module, call=self.call, head=head, d_k=d_k, n_queries=n_queries,
                n_keys=self.n_keys, scale=self.scale, dtype=str(dtype).removeprefix("torch."),
                rounding_step=rounding_step(columns["largest_score"][head], dtype),
                **{name: column[head] for name, column in (columns | gradients).items()},
            )
            for head in range(heads)
        ]  # fmt: skip


def gradient_hook(store: dict[str, Any], name: str, heads: int) -> Any:
    """Return a hook that stores rms ‖gradient‖ per head, and leaves the gradient as it is."""

    def hook(gradient: Any) -> None:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            square = four_axes(gradient.detach()).float().square().sum(-1).mean((0, 2)).sqrt()
            repeat = heads // square.shape[0]
            store[name] = square.repeat_interleave(repeat) if repeat > 1 else square

    return hook


def four_axes(tensor: Any) -> Any:
    """Return (batch, heads, length, d): three axes are batch, length, d with one head."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(1 if tensor.dim() == 3 else 0)
    return tensor.flatten(0, -4) if tensor.dim() > 4 else tensor


def mask_axes(mask: Any, query: Any) -> Any:
    """Return a mask with the four axes of `four_axes(query)`; leading axes broadcast from the right, as in SDPA."""
    if mask.dim() <= 2 and query.dim() <= 4:
        return mask
    mask = mask[(None,) * (query.dim() - mask.dim())]
    return four_axes(mask if query.dim() <= 4 else mask.expand(*query.shape[:-2], *mask.shape[-2:]))
