"""Layers that bring their own conventions, and identity projections that lay their attention bare."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from analysis.audit.functions.arguments import Arguments
from analysis.audit.functions.opening import Wanted


def with_identity_projections(module: Any) -> Any:
    """
    Return a copy of a torch module whose square projections are identities, so that only its attention is left.

    Parameters
    ----------
    module : torch.nn.Module
        Such as ``nn.MultiheadAttention``, or a layer of ``nn.Linear`` projections of query, key and value. Every
        ``nn.Linear`` of as many outputs as inputs, and a joint ``in_proj_weight``, becomes the identity;
        biases become 0.

    Raises
    ------
    ValueError
        When nothing in it could be replaced: its attention then stays behind its projections.
    """
    import torch

    bare, replaced = copy.deepcopy(module), 0
    with torch.no_grad():
        for part in bare.modules():
            joint = getattr(part, "in_proj_weight", None)
            if joint is not None:
                joint.copy_(torch.eye(joint.shape[1], dtype=joint.dtype).repeat(joint.shape[0] // joint.shape[1], 1))
                replaced += 1
                if getattr(part, "in_proj_bias", None) is not None:
                    part.in_proj_bias.zero_()
            if isinstance(part, torch.nn.Linear) and part.in_features == part.out_features:
                torch.nn.init.eye_(part.weight)
                replaced += 1
                if part.bias is not None:
                    part.bias.zero_()
    if not replaced:
        raise ValueError(f"{type(module).__name__} has no square projection to replace by the identity")
    return bare


def with_given_projections(module: Any, projection: str, *, num_heads: int | None = None) -> Callable[..., Any]:
    """
    Return the attention of a torch module that makes queries, keys and values by one layer, as a function of the three.

    Parameters
    ----------
    module : torch.nn.Module
        Self-attention of one input (batch, length, width). A copy is used; other layers of as many outputs as inputs,
        such as an output projection, let their input through.
    projection : str
        The name of the joint layer in it: ``qkv``, ``c_attn``, ``attn.qkv``.
    num_heads : int, optional
        Where each head's query, key and value stand together, head after head (as in GPT-NeoX); by default all queries
        come first, then all keys, then all values.

    Returns
    -------
    callable
        (query, key, value, **options) of shape (batch, length, heads·d_k) each: layout ``"bsm"``, of one length.

    Raises
    ------
    ValueError
        When the module has no such layer.
    """
    import torch

    bare = copy.deepcopy(module)
    given: dict[str, Any] = {}
    parts = dict(bare.named_modules())
    if not projection or projection not in parts:
        raise ValueError(f"{type(module).__name__} has no layer {projection!r}: its layers are {sorted(parts)[1:]}")
    joint = parts[projection]
    joint.register_forward_hook(lambda *_: given["packed"])
    for part in bare.modules():
        weight = getattr(part, "weight", None)
        if part is not joint and weight is not None and weight.dim() == 2 and len(set(weight.shape)) == 1:
            part.register_forward_hook(lambda _, inputs, __: inputs[0])

    def attend(query: Any, key: Any, value: Any, **options: Any) -> Any:
        blocks = (query, key, value)
        if num_heads is None:
            given["packed"] = torch.cat(blocks, dim=-1)
        else:
            given["packed"] = torch.cat([x.unflatten(-1, (num_heads, -1)) for x in blocks], dim=-1).flatten(-2)
        outputs = given["packed"].shape[-1]
        inputs = next((size for size in joint.weight.shape if size != outputs), outputs)
        result = bare(query.new_zeros((*query.shape[:-1], inputs)), **options)
        return result[0] if isinstance(result, tuple) else result

    attend.__wrapped__ = bare  # type: ignore[attr-defined]  # whose source is no user's: no line of it is shown
    return attend


def opened_module(
    attention: Callable[..., Any], wanted: Wanted
) -> tuple[Callable[..., Any], Wanted, Arguments | None, str]:
    """Return a known layer as bare attention, with its sizes, layout and mask convention; others as given."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(attention, torch.nn.MultiheadAttention):
        return attention, wanted, None, ""
    if not attention._qkv_same_embed_dim:
        return attention, wanted, None, ""
    module: Any = with_identity_projections(attention)
    dtype = str(module.out_proj.weight.dtype).removeprefix("torch.")

    def attend(query: Any, key: Any, value: Any, key_padding_mask: Any = None, attn_mask: Any = None) -> Any:
        return module(query, key, value, key_padding_mask=key_padding_mask, attn_mask=attn_mask, need_weights=False)

    attend.__wrapped__ = module  # type: ignore[attr-defined]  # whose source is no user's: no line of it is shown
    sizes = replace(wanted.sizes, heads=module.num_heads, d_k=module.head_dim)
    layout = wanted.layout or ("bsm" if module.batch_first else "sbm")
    known = replace(
        wanted, sizes=sizes, layout=layout, framework="torch", dtype=wanted.dtype or dtype,
        mask_means=wanted.mask_means or "drop",
    )  # fmt: skip
    note = "Its projections were replaced by identities in a copy; True hides in its masks."
    return attend, known, Arguments("attn_mask", "key_padding_mask"), note
