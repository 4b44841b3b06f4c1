"""What the page illustrates, computed through the attention core: ten keys, and heads of a trained model."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
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


EXAMPLE_SENTENCE = "Why do some recipes ask you to rest the dough overnight before baking?"
EXAMPLE_TOKENS = ("[CLS]", *EXAMPLE_SENTENCE[:-1].lower().split(), "?", "[SEP]")
EXAMPLE_MODEL = "sentence-transformers/all-MiniLM-L6-v2 (Apache License 2.0)"


def example_weights(layer: int, head: int) -> NDArray[Any]:
    """
    Return the weights, shape (16, 16), of one head of the packaged example: a trained encoder reads one sentence.

    Queries and keys are those of `EXAMPLE_TOKENS`; padding is left out. `analysis/data/README.md` has the provenance.
    """
    with as_file(files("analysis") / "data" / "minilm_example.npz") as path, np.load(path) as stored:
        length = len(EXAMPLE_TOKENS)
        query, key = (stored[f"layer{layer}.{side}"][0, head, :length].astype(np.float64) for side in "qk")
    weights: NDArray[Any] = attention_weights(query, key)
    return weights
