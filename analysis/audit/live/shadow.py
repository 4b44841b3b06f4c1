"""A second, silent run of `nn.MultiheadAttention` through fused attention, where its own path cannot be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

# these ask whether a torch function mode is active, and then leave their fused path: other bits, so ours is off inside
FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
_NAMES = (
    "query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal",
)  # fmt: skip


def attention_arguments(args: Any, kwargs: Any) -> dict[str, Any]:
    """Return what a MultiheadAttention was called with, by name, weights not asked for."""
    return {**dict(zip(_NAMES, args, strict=False)), **kwargs, "need_weights": False}


def layer_arguments(layer: nn.TransformerEncoderLayer, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return what the attention of an encoder layer was called with, nested tensors padded."""
    given = dict(zip(("src", "src_mask", "src_key_padding_mask", "is_causal"), args, strict=False)) | kwargs
    x, padding = given["src"], given.get("src_key_padding_mask")
    with torch.no_grad(), torch._C.DisableTorchFunction():
        if x.is_nested:
            lengths = torch.tensor([len(item) for item in x.unbind()], device=x.device)
            x = x.to_padded_tensor(0.0)
            padding = torch.arange(x.shape[1], device=x.device)[None, :] >= lengths[:, None]
        x = layer.norm1(x) if layer.norm_first else x
    call = {"query": x, "key": x, "value": x, "attn_mask": given.get("src_mask"), "key_padding_mask": padding}
    causal = given.get("is_causal", False) and given.get("src_mask") is not None
    return call | {"need_weights": False, "is_causal": causal}


def run_again(module: nn.MultiheadAttention, given: dict[str, Any], stand_in: Callable[..., Any]) -> None:
    """Run the module with `stand_in` for fused attention; the model's mode, settings and random numbers stay."""
    fast, training, present = (
        torch.backends.mha.get_fastpath_enabled(),
        module.training,
        functional.scaled_dot_product_attention,
    )
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        module.training = False  # no dropout: the model's random numbers stay as they are
        functional.scaled_dot_product_attention = stand_in
        with torch.no_grad():
            module.forward(**given)
    finally:
        functional.scaled_dot_product_attention = present
        torch.backends.mha.set_fastpath_enabled(fast)
        module.training = training
