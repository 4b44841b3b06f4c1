"""The two pictures of a textbook section on attention, computed through the attention core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnsym import attention_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class TenKeys:
    """
    One query against a few keys, unscaled and scaled, and the largest weight over many draws.

    Attributes
    ----------
    d_k, n_keys, n_draws, seed : int
        The setting; components of query and keys are independent standard normals.
    unscaled, scaled : ndarray, shape (n_keys,)
        Weights of the first draw.
    largest_unscaled, largest_scaled : ndarray, shape (n_draws,)
        The largest weight of each draw.
    """

    d_k: int
    n_keys: int
    n_draws: int
    seed: int
    unscaled: NDArray[Any]
    scaled: NDArray[Any]
    largest_unscaled: NDArray[Any]
    largest_scaled: NDArray[Any]


def ten_keys(*, d_k: int = 512, n_keys: int = 10, n_draws: int = 1000, seed: int = 0) -> TenKeys:
    """
    Send ten keys at d_k = 512 through softmax with and without 1/√d_k, in the column convention.

    A single draw need not be near one-hot even unscaled; hence the largest weight of `n_draws` draws beside it.
    """
    rng = np.random.default_rng(seed)
    query = rng.standard_normal((n_draws, d_k, 1))
    key = rng.standard_normal((n_draws, d_k, n_keys))
    unscaled, scaled = (
        attention_weights(query, key, scale=scale, convention="columns")[..., 0] for scale in (1.0, None)
    )
    return TenKeys(d_k, n_keys, n_draws, seed, unscaled[0], scaled[0], unscaled.max(axis=-1), scaled.max(axis=-1))


def self_attention(*, n_tokens: int = 10, d_model: int = 32, seed: int = 0) -> NDArray[Any]:
    """
    Return the weights, shape (n_tokens, n_tokens), of one self-attention pass with random projections.

    Tokens x of shape (n_tokens, d_model) are standard normal; W_Q and W_K, shape (d_model, d_model), have entries of
    variance 1/d_model, so that queries x @ W_Q and keys x @ W_K have components of variance 1.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_tokens, d_model))
    w_query, w_key = rng.standard_normal((2, d_model, d_model)) / np.sqrt(d_model)
    weights: NDArray[Any] = attention_weights(x @ w_query, x @ w_key)
    return weights
