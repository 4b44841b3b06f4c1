"""Draw the replicates of a cell; the direct sampler, which draws vectors and calls the attention core."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.cells import Cell
from analysis.conditional import ConditionalSampler
from analysis.laws import Law
from analysis.quantities import FROM_WEIGHTS, norms
from attnsym.attention import attention_scores, attention_weights
from attnsym.softmax import softmax_vjp

Array = NDArray[Any]
Generator = np.random.Generator


def draw(cell: Cell, sequence: np.random.SeedSequence, replicates: int) -> NDArray[np.float64]:
    """
    Return that many independent values of the cell's quantity.

    Whole chunks are drawn and the last one is cut, so that n values are the first n of any larger number.
    """
    rng = np.random.Generator(np.random.PCG64(sequence))
    chunk = ConditionalSampler(cell) if cell.sampler == "conditional" else partial(_direct, cell)
    chunks: list[Array] = []
    for done in range(0, replicates, cell.chunk):
        values = chunk(rng)[: replicates - done]
        if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            raise ValueError(f"{cell.name!r} is not a finite number in every replicate at {cell.where}")
        chunks.append(values.astype(np.float64))
    return np.concatenate(chunks)


def _direct(cell: Cell, rng: Generator) -> Array:
    query, key = _vectors(cell, rng)
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


def _vectors(cell: Cell, rng: Generator) -> tuple[Array, Array]:
    """Return query (replicates, n_queries, d_k) and key (replicates, n_keys, d_k)."""
    if callable(cell.law):
        return _called_law(cell, rng)
    query_law, key_law = cell.component_laws
    dtype = cell.dtype
    query = query_law.sample(rng, (cell.chunk, cell.queries_drawn, cell.d_k), dtype)
    key = key_law.sample(rng, (cell.chunk, cell.keys_drawn, cell.d_k), dtype)
    if cell.alignment or cell.key_correlation:
        key = _correlate(cell, query, key, query_law, key_law)
    return query, key


def common_part(alignment: float, key_correlation: float, n_keys: int) -> float:
    """
    Return √(1 − ρ + n(ρ − a²)), NaN where no such vectors exist.

    With e₁, …, eₙ independent and standardised and s = √(1 − ρ), kⱼ = a q + s eⱼ + (√(s² + n(ρ − a²)) − s) ē has
    variance 1, correlation a with q and ρ with the other keys. The root is real exactly where the correlation matrix
    of (q, k₁, …, kₙ) is positive semidefinite.
    """
    square = 1.0 - key_correlation + n_keys * (key_correlation - alignment**2)
    return math.sqrt(max(square, 0.0)) if square > -1e-12 else math.nan


def _correlate(cell: Cell, query: Array, key: Array, query_law: Law, key_law: Law) -> Array:
    spread = math.sqrt(1.0 - cell.key_correlation)
    common = common_part(cell.alignment, cell.key_correlation, cell.keys_drawn) - spread
    q_sd, k_sd = math.sqrt(query_law.variance), math.sqrt(key_law.variance)
    noise = (key - key.dtype.type(key_law.mean)) / key.dtype.type(k_sd)
    mixed = noise * noise.dtype.type(spread)
    mixed += noise.dtype.type(common) * noise.mean(axis=-2, keepdims=True)
    if cell.alignment:
        mixed += (query - query.dtype.type(query_law.mean)) * query.dtype.type(cell.alignment / q_sd)
    return np.asarray(mixed * mixed.dtype.type(k_sd) + mixed.dtype.type(key_law.mean))


def _called_law(cell: Cell, rng: Generator) -> tuple[Array, Array]:
    dtype = cell.dtype
    queries = np.empty((cell.chunk, cell.queries_drawn, cell.d_k), dtype)
    keys = np.empty((cell.chunk, cell.keys_drawn, cell.d_k), dtype)
    for row in range(cell.chunk):
        query, key = (np.asarray(part) for part in cell.law(rng, cell.d_k, cell.keys_drawn))
        single = query[None, :] if query.ndim == 1 else query
        if single.shape != queries.shape[1:] or key.shape != keys.shape[1:]:
            raise ValueError(
                f"law {cell.law_name!r} must return query ({cell.queries_drawn}, {cell.d_k}) and key "
                f"({cell.keys_drawn}, {cell.d_k}): got {query.shape} and {key.shape}"
            )
        queries[row], keys[row] = single, key
    return queries, keys
