"""Weights that need no sum over the keys: sigmoid and ReLU of the scores, and their slopes."""

from __future__ import annotations

import numpy as np

from attnsym._validate import Array


def activate(scores: Array, normalizer: str, bias: Array | None, n_keys: int) -> Array:
    """Overwrite masked scores s by sigmoid(s + bias) or relu(s + bias)/n_keys, and return those."""
    if bias is not None:
        scores += bias
    if normalizer == "relu":
        np.maximum(scores, 0, out=scores)
        scores /= max(n_keys, 1)
        return scores
    np.negative(scores, out=scores)
    np.exp(scores, out=scores)  # beyond the range of the type: 1/(1 + inf), which is 0
    scores += 1
    return np.reciprocal(scores, out=scores)


def slopes(scores: Array, normalizer: str, bias: Array | None) -> Array:
    """Return the derivative of each weight in its own score; at the corner of ReLU it is 0, by choice."""
    shifted = scores if bias is None else scores + bias
    if normalizer == "relu":
        slope = np.where(shifted > 0, scores.dtype.type(1 / max(scores.shape[-1], 1)), scores.dtype.type(0))
        return np.where(np.isnan(shifted), shifted, slope)
    small = np.exp(-np.abs(shifted))
    return np.asarray(small / np.square(1 + small))
