"""Hand-written vector-Jacobian product of scaled dot-product attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from attnsym._activations import slopes
from attnsym._backward_blocks import gradients_in_blocks
from attnsym._blocks import Heads, as_problem, block
from attnsym._plain import masked_scores, weigh, with_sink
from attnsym._scores import Inputs, read_inputs, score_matrix, times_scale
from attnsym._settings import Settings, is_large, read_settings
from attnsym._validate import Array, real_array
from attnsym.masks import Window
from attnsym.norms import unit_vectors
from attnsym.softmax import softmax_in_place, whole_rows_vjp


def scaled_dot_product_attention_vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    upstream: npt.ArrayLike,
    attn_mask: npt.ArrayLike | None = None,
    is_causal: bool = False,
    scale: npt.ArrayLike | None = None,
    enable_gqa: bool = False,
    *,
    score: str = "dot",
    softcap: float | None = None,
    window: Window = None,
    causal_alignment: str = "top_left",
    convention: str = "rows",
    sink: npt.ArrayLike | None = None,
    normalizer: str = "softmax",
    normalizer_bias: npt.ArrayLike | None = None,
) -> tuple[Array, Array, Array]:
    """
    Return the gradients of Σ upstream · attention(query, key, value) with respect to query, key and value.

    With P the weights, G the upstream gradient and s the scale (vectors as rows):
    dV = Pᵀ G, dS = P ∘ (G Vᵀ − rowsum(P ∘ G Vᵀ)), dQ = s dS K, dK = s dSᵀ Q; a soft-cap multiplies dS by
    1 − tanh²(score / cap), the cosine score projects dQ and dK off the vectors' own directions. With a sink the rows
    of P sum to less than 1, and the same formula holds; sigmoid has dS = P(1 − P) ∘ G Vᵀ, and ReLU passes G Vᵀ / n_keys
    on where its argument is positive.

    Parameters
    ----------
    query, key, value, attn_mask, is_causal, scale, enable_gqa, score, softcap, window, causal_alignment, \
    convention, sink, normalizer, normalizer_bias
        As in `scaled_dot_product_attention`, without dropout.
    upstream : array_like, of the output's shape
        The gradient with respect to the output: (..., n_queries, d_v), or (..., d_v, n_queries) for columns.

    Returns
    -------
    d_query, d_key, d_value : ndarray
        Of the shapes of query, key and value: summed over axes that were broadcast and over query heads that share a
        key head. Exact up to rounding.

    Raises
    ------
    ValueError
        As `scaled_dot_product_attention`; if `upstream` has not the output's shape; for a callable score, whose
        derivative is not known.

    Notes
    -----
    A masked pair passes nothing on, whatever NaN or infinity stands on either side; a fully masked query has gradient
    0. At a zero vector, where the cosine has no derivative, and at the corner of ReLU the gradient is 0 by choice.

    Examples
    --------
    >>> import numpy as np
    >>> d_query, d_key, d_value = scaled_dot_product_attention_vjp(
    ...     [[1.0]], [[0.0], [np.log(3.0)]], [[2.0], [6.0]], [[1.0]], scale=1)
    >>> d_value.ravel()
    array([0.25, 0.75])
    >>> bool(np.isclose(d_query.item(), 0.75 * np.log(3.0)))
    True
    """
    if callable(score):
        raise ValueError("score must be 'dot' or 'cosine' here: the derivative of a callable is not known")
    settings = read_settings(
        scale=scale,
        score=score,
        softcap=softcap,
        enable_gqa=enable_gqa,
        is_causal=is_causal,
        window=window,
        causal_alignment=causal_alignment,
        convention=convention,
        sink=sink,
        normalizer=normalizer,
        normalizer_bias=normalizer_bias,
    )
    return _vjp(query, key, value, upstream, attn_mask, settings)


@np.errstate(all="ignore")  # NaN and ±inf of the input go where they are visible
def _vjp(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    upstream: npt.ArrayLike,
    attn_mask: npt.ArrayLike | None,
    settings: Settings,
) -> tuple[Array, Array, Array]:
    x = read_inputs(query, key, value, settings, attn_mask)
    g = _read_upstream(x, upstream)
    large = is_large(x.scores_shape, x.query.dtype, settings)
    gradients = _in_blocks(x, settings, g) if large else _gradients(x, settings, g)
    named = zip(gradients, (x.query, x.key, x.value), strict=True)
    shaped = (_sum_to_shape(gradient, given.shape) for gradient, given in named)
    d_query, d_key, d_value = (x.to_caller(d).astype(x.output_dtype, copy=False) for d in shaped)
    return d_query, d_key, d_value


def _in_blocks(x: Inputs, settings: Settings, g: Array) -> tuple[Array, Array, Array]:
    """Return the gradients, one for each head of the scores, without the whole score matrix."""
    unit = replace(x, query=unit_vectors(x.query), key=unit_vectors(x.key)) if settings.score == "cosine" else x
    problem = as_problem(unit, replace(settings, score="dot"))
    upstream = Heads(g.reshape(-1, *g.shape[-2:]), np.arange(problem.n_heads))

    def plain(heads: slice, queries: slice) -> tuple[Array, Array, Array]:
        return _gradients(*block(problem, heads, queries), upstream[heads][:, queries])

    d_query, d_key, d_value = (
        d.reshape(*problem.lead, *d.shape[1:]) for d in gradients_in_blocks(problem, upstream, plain)
    )
    if settings.score == "cosine":
        d_query, d_key = _through_unit(x.query, d_query), _through_unit(_per_query_head(x, x.key), d_key)
    return d_query, d_key, d_value


def _read_upstream(x: Inputs, upstream: npt.ArrayLike) -> Array:
    lead = np.broadcast_shapes(x.scores_shape[:-2], _per_query_head(x, x.value).shape[:-2])
    wanted = (*lead, x.query.shape[-2], x.value.shape[-1])
    g = x.to_caller(real_array(upstream, "upstream"))
    if g.shape != wanted:
        asked = (*wanted[:-2], wanted[-1], wanted[-2]) if x.columns else wanted
        raise ValueError(f"upstream must have the output's shape {asked}: got {np.shape(upstream)}")
    return g.astype(x.query.dtype, copy=False)


def _gradients(x: Inputs, settings: Settings, g: Array) -> tuple[Array, Array, Array]:
    scores = masked_scores(x, settings)
    visible = scores != -np.inf
    q, k, v = x.query, _per_query_head(x, x.key), _per_query_head(x, x.value)
    d_weights = np.where(visible, g @ v.swapaxes(-1, -2), g.dtype.type(0))
    weights, d_scores = (
        np.where(visible, part, scores.dtype.type(0)) for part in _through_weights(scores, d_weights, x, settings)
    )
    d_value = _over_visible(weights.swapaxes(-1, -2), g, visible.swapaxes(-1, -2))
    if settings.softcap is not None:
        raw = score_matrix(x, settings.score, None)
        d_scores *= np.where(visible, np.cosh(raw / settings.softcap) ** -2, raw.dtype.type(0))
    d_scores = times_scale(d_scores, x.scale)
    if settings.score == "dot":
        return (*_through_product(d_scores, q, k, visible), d_value)
    d_unit_q, d_unit_k = _through_product(d_scores, unit_vectors(q), unit_vectors(k), visible)
    return _through_unit(q, d_unit_q), _through_unit(k, d_unit_k), d_value


def _through_weights(scores: Array, d_weights: Array, x: Inputs, settings: Settings) -> tuple[Array, Array]:
    """Return the weights, and the gradient with respect to the masked scores, which it may overwrite."""
    if settings.normalizer != "softmax":
        slope = slopes(scores, settings.normalizer, x.offset)
        return weigh(scores, x, settings), d_weights * slope
    if x.offset is None:
        weights = softmax_in_place(scores)
        return weights, whole_rows_vjp(weights, d_weights)
    weights = softmax_in_place(with_sink(scores, x.offset))
    return weights[..., :-1], whole_rows_vjp(weights, with_sink(d_weights, weights.dtype.type(0)))[..., :-1]


def _through_product(d_scores: Array, q: Array, k: Array, visible: Array) -> tuple[Array, Array]:
    transposed, seen = d_scores.swapaxes(-1, -2), visible.swapaxes(-1, -2)
    return _over_visible(d_scores, k, visible), _over_visible(transposed, q, seen)


def _through_unit(x: Array, d_unit: Array) -> Array:
    """Pull a gradient back through x / ‖x‖."""
    unit = unit_vectors(x)
    largest = np.max(np.abs(x), axis=-1, keepdims=True, initial=0)
    zero = largest == 0
    shrunk = x / np.where(zero, x.dtype.type(1), largest)
    along = np.sum(d_unit * unit, axis=-1, keepdims=True)
    length = np.where(zero, x.dtype.type(1), np.sqrt(np.sum(shrunk * shrunk, axis=-1, keepdims=True)))
    return np.asarray(np.where(zero, x.dtype.type(0), (d_unit - along * unit) / length / np.where(zero, 1, largest)))


def _over_visible(coefficients: Array, vectors: Array, visible: Array) -> Array:
    """Return coefficients @ vectors where what is not finite in `vectors` reaches only the rows that see it."""
    product = coefficients @ vectors
    if np.isfinite(product).all() or np.isfinite(vectors).all():
        return np.asarray(product)
    finite = np.isfinite(vectors)
    product = coefficients @ np.where(finite, vectors, vectors.dtype.type(0))
    reached = visible.astype(product.dtype) @ (~finite).astype(product.dtype) > 0
    return np.where(reached, product.dtype.type(np.nan), product)


def _per_query_head(x: Inputs, of_key: Array) -> Array:
    """Repeat the heads of key or value so that every query head has its own."""
    return np.repeat(of_key, x.query.shape[-3] // of_key.shape[-3], axis=-3) if x.grouped else of_key


def _sum_to_shape(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes along which an input of this shape was broadcast or its heads were shared."""
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    if len(shape) >= 3 and gradient.shape[-3] != shape[-3]:
        *lead, heads, rows, width = gradient.shape
        gradient = gradient.reshape(*lead, shape[-3], heads // shape[-3], rows, width).sum(axis=-3)
    stretched = tuple(i for i, n in enumerate(shape) if n == 1 and gradient.shape[i] != 1)
    return np.asarray(gradient.sum(axis=stretched, keepdims=True))
