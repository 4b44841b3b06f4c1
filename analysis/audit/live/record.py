"""One captured attention call: its statistics until they become rows, and the axes of what it was given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from analysis.audit.live.expected import key_nodes, predicted_ratio
from analysis.audit.live.history import WatchRow, rank_and_size
from analysis.audit.live.vectors import rounding_step


@dataclass
class Record:
    """One captured call: what `WatchRow` says of it, still as tensors, so that nothing waits for the device."""

    step: int
    module: str
    call: int
    source: str
    d_k: int
    n_queries: int
    n_keys: int
    scale: float
    dtype: Any
    statistics: dict[str, Any]
    gradients: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> list[WatchRow]:
        """Return one row per head."""
        heads = len(self.statistics["rows"])
        columns = {name: values.tolist() for name, values in self.statistics.items()}
        nodes = key_nodes(self.n_keys)
        expected = zip(columns.pop("key_counts"), columns.pop("unbiased_variance"), strict=True)
        columns["predicted_entropy_ratio"] = [predicted_ratio(counts, nodes, variance) for counts, variance in expected]
        for name in ("query", "key"):
            known = self.gradients.get(name)
            columns[f"{name}_gradient_norm"] = [float("nan")] * heads if known is None else known.tolist()
        return [
            WatchRow(
                step=self.step, module=self.module, call=self.call, head=head, d_k=self.d_k, n_queries=self.n_queries,
                n_keys=self.n_keys, scale=self.scale, dtype=str(self.dtype).removeprefix("torch."),
                rounding_step=rounding_step(columns["largest_score"][head], self.dtype),
                source=self.source, rank=rank_and_size()[0],
                **{name: column[head] for name, column in columns.items()},
            )
            for head in range(heads)
        ]  # fmt: skip

    def watch_gradients(self, tensors: dict[str, Any]) -> list[Any]:
        """Hook the gradients of the call's query and key, where they have one; return the hooks."""
        heads = len(self.statistics["rows"])
        wanted = {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}
        return [tensor.register_hook(_gradient_hook(self.gradients, name, heads)) for name, tensor in wanted.items()]


def _gradient_hook(store: dict[str, Any], name: str, heads: int) -> Any:
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


class Unreadable(Exception):
    """Why a call's numbers cannot be read, in words for `Watcher.unseen`."""


def check_readable(tensor: Any) -> None:
    """Refuse a tensor that holds no numbers that can be read now."""
    if torch.compiler.is_compiling():
        raise Unreadable("it was traced or exported, not run")
    if type(tensor).__name__ in ("FakeTensor", "FunctionalTensor") or tensor.device.type == "meta":
        raise Unreadable("its tensors are fake: they hold no numbers")
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise Unreadable("it ran inside a transform of torch.func such as vmap, grad or jacrev")
    if tensor.is_nested:
        raise Unreadable("nested tensors")


def product_type(tensor: Any) -> Any:
    """Return the type in which autocast runs a product of this tensor: its own where autocast is off."""
    kind = tensor.device.type
    lowered = torch.is_autocast_enabled(kind) and tensor.is_floating_point() and tensor.dtype != torch.float64
    return torch.get_autocast_dtype(kind) if lowered else tensor.dtype
