"""Scaled dot-product attention in NumPy; its mathematics, checked by machine, in `attnsym.symbolic`."""

from __future__ import annotations

from attnsym.attention import attention_scores, attention_weights, scaled_dot_product_attention
from attnsym.masks import causal_mask, padding_mask, window_mask
from attnsym.softmax import entropy, log_softmax, softmax, softmax_jacobian, softmax_vjp

__version__ = "0.1.0"

__all__ = [
    "attention_scores",
    "attention_weights",
    "causal_mask",
    "entropy",
    "log_softmax",
    "padding_mask",
    "scaled_dot_product_attention",
    "softmax",
    "softmax_jacobian",
    "softmax_vjp",
    "window_mask",
]
