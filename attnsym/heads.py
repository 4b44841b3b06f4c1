"""Heads: splitting a model's width into heads, merging them, and attention with projections around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._plain import drop_out
from attnsym._settings import read_settings
from attnsym._validate import (
    Array,
    as_array,
    compute_dtype,
    length,
    output_dtype,
    probability,
    random_generator,
    real_array,
)
from attnsym.attention import attend
from attnsym.masks import Window


def split_heads(x: npt.ArrayLike, num_heads: int) -> Array:
    """
    Cut every token's vector into consecutive pieces, one for each head.

    Parameters
    ----------
    x : array_like, (..., length, d_model)
        Tokens as rows; any dtype, which stays.
    num_heads : int
        Number of heads; must divide d_model.

    Returns
    -------
    ndarray, (..., num_heads, length, d_model / num_heads)
        Head h of token t is x[..., t, h·d : (h + 1)·d] with d = d_model / num_heads. A view where possible.

    Raises
    ------
    ValueError
        If `x` has fewer than two axes or `num_heads` does not divide d_model.

    Notes
    -----
    A reshape alone to (..., num_heads, length, d) has the same shape and is wrong: it deals tokens, not components,
    to heads.

    Examples
    --------
    >>> import numpy as np
    >>> split_heads(np.arange(12).reshape(1, 3, 4), 2)[0, 0]
    array([[0, 1],
           [4, 5],
           [8, 9]])
    """
    array = as_array(x, "x")
    heads = length(num_heads, "num_heads", 1)
    if array.ndim < 2:
        raise ValueError(f"x must have at least the axes (length, d_model): got shape {array.shape}")
    if heads == 0 or array.shape[-1] % heads:
        raise ValueError(f"num_heads must divide d_model: got num_heads {heads} and d_model {array.shape[-1]}")
    return array.reshape(*array.shape[:-1], heads, array.shape[-1] // heads).swapaxes(-2, -3)


def merge_heads(x: npt.ArrayLike) -> Array:
    """
    Undo `split_heads`: put every token's pieces side by side again.

    Parameters
    ----------
    x : array_like, (..., num_heads, length, d)
        One matrix of tokens for each head; any dtype, which stays.

    Returns
    -------
    ndarray, (..., length, num_heads·d)
        ``merge_heads(split_heads(x, h))`` equals ``x`` for every h.

    Raises
    ------
    ValueError
        If `x` has fewer than three axes.
    """
    array = as_array(x, "x")
    if array.ndim < 3:
        raise ValueError(f"x must have at least the axes (num_heads, length, d): got shape {array.shape}")
    tokens = array.swapaxes(-2, -3)
    return tokens.reshape(*tokens.shape[:-2], tokens.shape[-2] * tokens.shape[-1])


@np.errstate(all="ignore")
def multi_head_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    *,
    num_heads: int,
    w_query: npt.ArrayLike,
    w_key: npt.ArrayLike,
    w_value: npt.ArrayLike,
    w_output: npt.ArrayLike | None = None,
    num_key_value_heads: int | None = None,
    dropout_p: float = 0.0,
    output_dropout_p: float = 0.0,
    rng: Any = None,
    attn_mask: npt.ArrayLike | None = None,
    is_causal: bool = False,
    scale: npt.ArrayLike | None = None,
    softcap: float | None = None,
    window: Window = None,
    causal_alignment: str = "top_left",
    sink: npt.ArrayLike | None = None,
    normalizer: str = "softmax",
    normalizer_bias: npt.ArrayLike | None = None,
) -> Array:
    """
    Project, attend in every head, merge, project back.

    merge(softmax(scale · Q Kᵀ + mask) V) W_O with Q, K, V = split(query W_Q), split(key W_K), split(value W_V).
    Self-attention passes the same tokens three times, cross-attention passes other tokens as key and value.

    Parameters
    ----------
    query : array_like, (..., n_queries, d_model)
        Tokens that ask.
    key, value : array_like, (..., n_keys, d_model)
        Tokens that answer; their width may differ from the query's, as their projections have their own rows.
    num_heads : int
        Number of query heads.
    w_query : array_like, (d_model, num_heads·d_k)
        Applied as ``query @ w_query``: the transpose of a torch ``Linear.weight``.
    w_key : array_like, (d_model, num_key_value_heads·d_k)
    w_value : array_like, (d_model, num_key_value_heads·d_v)
    w_output : array_like, (num_heads·d_v, d_out), optional
        None returns the merged heads.
    num_key_value_heads : int, optional
        Fewer key and value heads than query heads (grouped-query attention); must divide `num_heads`.
    dropout_p, output_dropout_p : float in [0, 1]
        Probability of dropping each weight, and each component of the result. There is no training mode to forget:
        0, the default, drops nothing.
    rng : None, int or numpy.random.Generator
        Source of the dropout. An int repeats; a Generator advances from call to call; None draws fresh entropy.
    attn_mask, is_causal, scale, softcap, window, causal_alignment, sink, normalizer, normalizer_bias
        As in `scaled_dot_product_attention`, for scores (..., num_heads, n_queries, n_keys). The default scale is
        1/√d_k with d_k the width of one head, not of the model.

    Returns
    -------
    ndarray, (..., n_queries, d_out)
        In the common type of all arrays; 16-bit floats compute in float32 and return to their type.

    Raises
    ------
    ValueError
        If a projection is not a matrix, does not fit its tokens or heads, or heads are not divisible.

    References
    ----------
    Vaswani et al., "Attention Is All You Need" (2017), section 3.2.2.
    """
    heads = length(num_heads, "num_heads", 1)
    kv_heads = heads if num_key_value_heads is None else length(num_key_value_heads, "num_key_value_heads", 1)
    settings = read_settings(
        scale=scale,
        softcap=softcap,
        enable_gqa=kv_heads != heads,
        is_causal=is_causal,
        window=window,
        causal_alignment=causal_alignment,
        sink=sink,
        normalizer=normalizer,
        normalizer_bias=normalizer_bias,
    )
    weight_p, output_p = probability(dropout_p, "dropout_p"), probability(output_dropout_p, "output_dropout_p")
    generator = random_generator(rng) if weight_p or output_p else None
    given = [
        real_array(x, name)
        for x, name in ((query, "query"), (key, "key"), (value, "value"))
        + ((w_query, "w_query"), (w_key, "w_key"), (w_value, "w_value"))
        + (() if w_output is None else ((w_output, "w_output"),))
    ]
    dtype = compute_dtype(*given)
    tokens_q, tokens_k, tokens_v, *matrices = (x.astype(dtype, copy=False) for x in given)
    attended = attend(
        split_heads(_project(tokens_q, matrices[0], "query"), _dividing(heads, matrices[0], "num_heads", "w_query")),
        split_heads(_project(tokens_k, matrices[1], "key"), _dividing(kv_heads, matrices[1], "heads of key", "w_key")),
        split_heads(
            _project(tokens_v, matrices[2], "value"), _dividing(kv_heads, matrices[2], "heads of value", "w_value")
        ),
        attn_mask,
        settings,
        weight_p,
        generator,
    )
    result = merge_heads(attended)
    if w_output is not None:
        result = _project(result, matrices[3], "output")
    drop_out(result, output_p, generator)
    return result.astype(output_dtype(*given), copy=False)


def _project(x: Array, w: Array, name: str) -> Array:
    what = "the merged heads" if name == "output" else name
    if x.ndim < 2:
        raise ValueError(f"{what} must have at least the axes (length, d_model): got shape {x.shape}")
    if w.ndim != 2 or w.shape[0] != x.shape[-1]:
        raise ValueError(f"w_{name} must be a matrix with {x.shape[-1]} rows, the width of {what}: got shape {w.shape}")
    return np.asarray(x @ w)


def _dividing(heads: int, w: Array, heads_name: str, name: str) -> int:
    if heads == 0 or w.shape[1] % heads:
        raise ValueError(f"{heads_name} must divide the columns of {name}: got {heads} and shape {w.shape}")
    return heads
