"""Scaled dot-product attention in NumPy; its mathematics, checked by machine, in `attnsym.symbolic`."""

from __future__ import annotations

from attnsym.attention import attention_scores, attention_weights, scaled_dot_product_attention
from attnsym.backward import scaled_dot_product_attention_vjp
from attnsym.explain import Explanation, KeyStep, explain
from attnsym.heads import merge_heads, multi_head_attention, split_heads
from attnsym.masks import causal_mask, padding_mask, window_mask
from attnsym.norms import qk_norm
from attnsym.positions import alibi_bias, rotary
from attnsym.softmax import entropy, log_softmax, softmax, softmax_jacobian, softmax_vjp

__version__ = "0.1.0"

__all__ = [
    "Explanation",
    "KeyStep",
    "alibi_bias",
    "attention_scores",
    "attention_weights",
    "causal_mask",
    "entropy",
    "explain",
    "log_softmax",
    "merge_heads",
    "multi_head_attention",
    "padding_mask",
    "qk_norm",
    "rotary",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_vjp",
    "softmax",
    "softmax_jacobian",
    "softmax_vjp",
    "split_heads",
    "window_mask",
]
