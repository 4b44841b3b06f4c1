"""Draw the replicates of a cell: through the attention core, or by the exact conditional law of the scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.cells import Cell
from analysis.laws import Law
from analysis.quantities import FROM_WEIGHTS, Row, norms
from attnsym.attention import attention_scores, attention_weights
from attnsym.softmax import softmax_vjp

Array = NDArray[Any]
Generator = np.random.Generator

_DTYPE: dict[str, Any] = {"double": np.float64, "single": np.float32}


def draw(cell: Cell, sequence: np.random.SeedSequence, replicates: int) -> NDArray[np.float64]:
    """
    Return that many independent values of the cell's quantity.

    Whole chunks are drawn and the last one is cut, so that n values are the first n of any larger number.
    """
    rng = np.random.Generator(np.random.PCG64(sequence))
    chunks: list[Array] = []
    for done in range(0, replicates, cell.chunk):
        values = _one_chunk(cell, rng)[: replicates - done]
        if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            raise ValueError(f"{cell.name!r} is not a finite number in every replicate at {cell.where}")
        chunks.append(values.astype(np.float64))
    return np.concatenate(chunks)


def _one_chunk(cell: Cell, rng: Generator) -> Array:
    if cell.sampler == "conditional":
        return _conditional(cell, rng)
    query, key = _vectors(cell, rng)
    return _direct(cell, query, key, rng)


# Direct: vectors, then the core.


def _direct(cell: Cell, query: Array, key: Array, rng: Generator) -> Array:
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
    dtype = _DTYPE[cell.precision]
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
    dtype = _DTYPE[cell.precision]
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


# Conditional: given q, the scores of Gaussian keys are independent N(0, (scale·‖q‖)²).


def _conditional(cell: Cell, rng: Generator) -> Array:
    dtype = _DTYPE[cell.precision]
    length = _query_lengths(cell, rng)
    # What the keys share shifts all scores of a row alike, which softmax does not see: √(1 − ρ) is left.
    spread = cell.scale * math.sqrt(1.0 - cell.key_correlation)
    along = rng.standard_normal((cell.chunk, cell.keys_drawn), dtype=dtype)
    if cell.quantity == "score":
        return _conditional_scores(cell, length, along[:, 0])
    scores = along * (spread * length).astype(dtype)[:, None]
    slope = None
    if cell.softcap is not None:
        np.tanh(scores / dtype(cell.softcap), out=scores)
        slope = 1 - scores * scores
        scores *= dtype(cell.softcap)
    row = Row(scores)
    if cell.quantity not in ("score_gradient_norm", "query_gradient_norm"):
        return np.asarray(getattr(row, str(cell.quantity))())
    gradient = row.times_jacobian(rng.standard_normal(scores.shape, dtype=dtype))
    if cell.quantity == "score_gradient_norm":
        return norms(gradient)
    if slope is not None:
        gradient *= slope
    # Kᵀ J g: along q̂ it is the same normals as the scores; across, d_k − 1 fresh ones of size ‖J g‖.
    parallel = np.einsum("ij,ij->i", along, gradient, dtype=np.float64)
    across = rng.chisquare(cell.d_k - 1, cell.chunk) if cell.d_k > 1 else np.zeros(cell.chunk)
    return np.asarray(abs(spread) * np.sqrt(parallel**2 + across * norms(gradient) ** 2))


def _conditional_scores(cell: Cell, length: Array, along: Array) -> Array:
    a = cell.alignment
    scores = cell.scale * (a * length**2 + math.sqrt(1.0 - a * a) * length * along)
    return scores if cell.softcap is None else cell.softcap * np.tanh(scores / cell.softcap)


def _query_lengths(cell: Cell, rng: Generator) -> Array:
    query_law = cell.component_laws[0]
    if query_law.name == "normal":
        return np.sqrt(rng.chisquare(cell.d_k, cell.chunk))
    return norms(query_law.sample(rng, (cell.chunk, cell.d_k), _DTYPE[cell.precision]))
