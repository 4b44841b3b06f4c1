"""Draw the replicates of a cell directly: vectors, then the attention core."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.measure.draw.cell import StudyCell
from analysis.measure.draw.vectors import Vectors, called_law
from attnsym.attention import attention_scores, attention_weights
from attnsym.masks import causal_mask
from attnsym.softmax import softmax_vjp

Array = NDArray[Any]
Generator = np.random.Generator


class DirectSampler:
    """Chunks of replicates: vectors by their laws, and the quantity by `attnsym`'s attention."""

    def __init__(self, cell: StudyCell) -> None:
        self.cell = cell
        self.draw_vectors = partial(called_law, cell, cell.laws) if callable(cell.laws) else Vectors(cell)

    def __call__(self, rng: Generator) -> Array:
        """Return the values of one chunk."""
        return _quantity(self.cell, *self.draw_vectors(rng), rng)


def _quantity(cell: StudyCell, query: Array, key: Array, rng: Generator) -> Array:
    if callable(cell.quantity):
        return _called_quantity(cell, query, key)
    record = cell.record
    assert record is not None
    how: dict[str, Any] = {"scale": cell.scale, "score": cell.score, "softcap": cell.softcap}
    if record.reads == "score":
        return np.asarray(record.value(attention_scores(query, key, **how)[:, 0, 0]))
    if record.reads == "scores":
        scores = attention_scores(query, key, **how)
        rows = np.where(causal_mask(*scores.shape[-2:]), scores, -np.inf) if cell.is_causal else scores
    elif record.reads == "query_gradient":
        rows = _norms(_query_gradient(cell, query, key, how, rng))
    else:
        rows = attention_weights(query, key, is_causal=cell.is_causal, **how)
    if record.reads == "score_gradient":
        rows = _norms(softmax_vjp(rows, rng.standard_normal(rows.shape, dtype=rows.dtype)))
    return np.asarray(record.value(rows).mean(axis=-1))


def _norms(vectors: Array) -> Array:
    """Return the Euclidean norms over the last axis, accumulated in float64."""
    return np.asarray(np.sqrt(np.einsum("...i,...i->...", vectors, vectors, dtype=np.float64)))


def _query_gradient(cell: StudyCell, query: Array, key: Array, how: dict[str, Any], rng: Generator) -> Array:
    from attnsym.backward import scaled_dot_product_attention_vjp

    # The output for values g is g·p, hence its gradient with respect to q is that of the contrast g of the weights.
    contrast = rng.standard_normal((*key.shape[:-1], 1), dtype=key.dtype)
    upstream = np.ones((*query.shape[:-1], 1), dtype=query.dtype)
    return scaled_dot_product_attention_vjp(query, key, contrast, upstream, is_causal=cell.is_causal, **how)[0]


def _called_quantity(cell: StudyCell, query: Array, key: Array) -> Array:
    assert callable(cell.quantity)
    values = np.asarray(cell.quantity(query, key, cell.scale))
    if values.shape != (len(query),):
        raise ValueError(
            f"quantity {cell.name!r} must return one value per replicate, shape ({len(query)},) for query "
            f"{query.shape} and key {key.shape}: got shape {values.shape}"
        )
    return values
