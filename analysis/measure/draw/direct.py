"""Draw the replicates of a cell directly: vectors, then the attention core."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.measure.draw.cell import StudyCell
from analysis.measure.draw.vectors import Vectors, called_law
from analysis.vocabulary.mechanism import cosine_factor
from attnsym.attention import attention_scores, attention_weights
from attnsym.masks import causal_mask
from attnsym.norms import qk_norm
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
    record, what = cell.record, cell.mechanism
    assert record is not None
    how: dict[str, Any] = {"scale": cell.scale, "score": cell.score, "softcap": cell.softcap}
    if record.reads == "query_gradient":
        rows = _norms(_query_gradient(cell, query, key, how, rng))
        return np.asarray(record.value(rows).mean(axis=-1))
    if what.qk_norm is not None:
        query, key = (qk_norm(x, kind=what.qk_norm) for x in (query, key))
    if record.reads == "score":
        return np.asarray(record.value(attention_scores(query, key, **how)[:, 0, 0]))
    if record.reads == "scores":
        rows = _all_scores(cell, attention_scores(query, key, **how))
    else:
        rows = attention_weights(query, key, is_causal=cell.is_causal, **how, **_beside(cell))
    if record.reads == "score_gradient":
        upstream = rng.standard_normal(rows.shape, dtype=rows.dtype)
        rows = _norms(softmax_vjp(rows, upstream))
    value = record.value if what.sink is None else record.beside_sink or record.value
    return np.asarray(value(rows).mean(axis=-1))


def _beside(cell: StudyCell) -> dict[str, Any]:
    """Return the keywords of the core that a cell's mechanism stands for; none for plain softmax."""
    found = {name: value for name, value in cell.mechanism.settings.items() if name not in ("bias", "qk_norm")}
    bias = cell.mechanism.bias_of(cell.n_keys)
    return found if bias is None else {**found, "attn_mask": bias.astype(cell.dtype)}


def _all_scores(cell: StudyCell, scores: Array) -> Array:
    """Return all that enters softmax: scores with their biases, and the sink as one more."""
    bias, sink = cell.mechanism.bias_of(cell.n_keys), cell.mechanism.sink
    if bias is not None:
        scores = scores + bias.astype(scores.dtype)
    if cell.is_causal:
        scores = np.where(causal_mask(*scores.shape[-2:]), scores, -np.inf)
    if sink is None:
        return scores
    return np.concatenate([scores, np.full((*scores.shape[:-1], 1), sink, scores.dtype)], axis=-1)


def _norms(vectors: Array) -> Array:
    """Return the Euclidean norms over the last axis, accumulated in float64."""
    return np.asarray(np.sqrt(np.einsum("...i,...i->...", vectors, vectors, dtype=np.float64)))


def _query_gradient(cell: StudyCell, query: Array, key: Array, how: dict[str, Any], rng: Generator) -> Array:
    from attnsym.backward import scaled_dot_product_attention_vjp

    if cell.mechanism.qk_norm is not None:  # the product of normed vectors is a cosine, whose derivative is theirs
        how = how | {"score": "cosine", "scale": cell.scale * cosine_factor(cell.mechanism.qk_norm, cell.d_k)}
    # The output for values g is g·p, hence its gradient with respect to q is that of the contrast g of the weights.
    contrast = rng.standard_normal((*key.shape[:-1], 1), dtype=key.dtype)
    upstream = np.ones((*query.shape[:-1], 1), dtype=query.dtype)
    how = how | _beside(cell)
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
