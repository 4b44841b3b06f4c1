"""Draw the replicates of a cell directly: vectors, then the attention core."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.measure.cell import Cell
from analysis.measure.draw.softmax_rows import FROM_WEIGHTS, norms
from analysis.measure.draw.vectors import Vectors, called_law
from attnsym.attention import attention_scores, attention_weights
from attnsym.softmax import softmax_vjp

Array = NDArray[Any]
Generator = np.random.Generator


class DirectSampler:
    """Chunks of replicates: vectors by their laws, and the quantity by `attnsym`'s attention."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.draw_vectors = partial(called_law, cell) if callable(cell.law) else Vectors(cell)

    def __call__(self, rng: Generator) -> Array:
        """Return the values of one chunk."""
        return _quantity(self.cell, *self.draw_vectors(rng), rng)


def _quantity(cell: Cell, query: Array, key: Array, rng: Generator) -> Array:
    if callable(cell.quantity):
        return _called_quantity(cell, query, key)
    how: dict[str, Any] = {"scale": cell.scale, "score": cell.score, "softcap": cell.softcap}
    if cell.quantity == "score":
        return attention_scores(query, key, **how)[:, 0, 0]
    if cell.quantity == "query_gradient_norm":
        return _query_gradient_norm(cell, query, key, how, rng)
    weights = attention_weights(query, key, is_causal=cell.is_causal, **how)
    if cell.quantity == "score_gradient_norm":
        upstream = rng.standard_normal(weights.shape, dtype=weights.dtype)
        return np.asarray(norms(softmax_vjp(weights, upstream)).mean(axis=-1))
    return np.asarray(FROM_WEIGHTS[cell.quantity](weights).mean(axis=-1))


def _query_gradient_norm(cell: Cell, query: Array, key: Array, how: dict[str, Any], rng: Generator) -> Array:
    from attnsym.backward import scaled_dot_product_attention_vjp

    # The output for values g is g·p, hence its gradient with respect to q is that of the contrast g of the weights.
    contrast = rng.standard_normal((*key.shape[:-1], 1), dtype=key.dtype)
    upstream = np.ones((*query.shape[:-1], 1), dtype=query.dtype)
    d_query = scaled_dot_product_attention_vjp(query, key, contrast, upstream, is_causal=cell.is_causal, **how)[0]
    return np.asarray(norms(d_query).mean(axis=-1))


def _called_quantity(cell: Cell, query: Array, key: Array) -> Array:
    assert callable(cell.quantity)
    values = np.asarray(cell.quantity(query, key, cell.scale))
    if values.shape != (len(query),):
        raise ValueError(
            f"quantity {cell.name!r} must return one value per replicate, shape ({len(query)},) for query "
            f"{query.shape} and key {key.shape}: got shape {values.shape}"
        )
    return values
