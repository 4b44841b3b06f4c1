"""Scaled dot-product attention: scores, weights, and values mixed by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._blocks import as_problem
from attnsym._plain import masked_scores, output_in_blocks, plain_output, plain_weights
from attnsym._scores import read_inputs
from attnsym._settings import Settings, is_large, read_settings
from attnsym._validate import Array, ScoreFunction, probability
from attnsym.masks import Window
from attnsym.tiling import tiled_attention


def attention_scores(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    *,
    scale: npt.ArrayLike | None = None,
    score: str | ScoreFunction = "dot",
    softcap: float | None = None,
    enable_gqa: bool = False,
    convention: str = "rows",
    sink: npt.ArrayLike | None = None,
    normalizer: str = "softmax",
    normalizer_bias: npt.ArrayLike | None = None,
) -> Array:
    """
    Return the scores, which enter softmax: scale · kᵀq for every query and key.

    Parameters
    ----------
    query : array_like, (..., n_queries, d_k)
        Vectors as rows; (..., d_k, n_queries) with ``convention="columns"``.
    key : array_like, (..., n_keys, d_k)
        Likewise. Leading axes broadcast.
    scale : float or array_like, optional
        The factor on kᵀq. None is 1/√d_k for dot products and 1 for other scores; 0 is 0. An array gives every query
        its own: (n_queries,), (num_heads, n_queries), or any shape that broadcasts to the scores' without n_keys.
    score : {"dot", "cosine"} or callable
        kᵀq; kᵀq / (‖k‖‖q‖), between −1 and 1, and 0 for a zero vector; or a score function (query, key) -> scores
        that receives the arrays in the caller's convention (each query head with its own key head), returns scores
        in it, and is not scaled unless `scale` is given.
    softcap : float > 0, optional
        Scores become softcap · tanh(score / softcap).
    enable_gqa : bool
        Axis −3 of `query` may be a multiple of that of `key`: consecutive query heads share a key head.
    convention : {"rows", "columns"}
        Whether vectors are rows (scores QKᵀ) or columns (scores KᵀQ).
    sink, normalizer, normalizer_bias
        As in `attention_weights`: checked, and without effect on the scores, after which they come.

    Returns
    -------
    ndarray, (..., n_queries, n_keys), or (..., n_keys, n_queries) for columns
        Exact up to rounding, |error| ≤ d_k·eps·scale·Σ|kᵢqᵢ|. 16-bit floats compute in and return float32, integers
        float64. Finite wherever the scaled score lies in the range of the type, even if kᵀq itself overflows.

    Raises
    ------
    ValueError
        One sentence naming the argument, for shapes that do not fit, types that are not real numbers, a scale that is
        not finite or does not fit the queries, a soft-cap that is not positive, or a score function that returns
        another shape.

    Notes
    -----
    With independent components of mean 0 and variance 1, E[kᵀq] = 0 and Var[kᵀq] = d_k: the scale 1/√d_k keeps the
    variance of a score at 1 for every d_k.

    References
    ----------
    Vaswani et al., "Attention Is All You Need" (2017), section 3.2.1 and footnote 4.

    Examples
    --------
    >>> attention_scores([[1.0, 2.0]], [[3.0, 4.0], [0.0, 1.0]], scale=1)
    array([[11.,  2.]])
    """
    settings = read_settings(
        scale=scale,
        score=score,
        softcap=softcap,
        enable_gqa=enable_gqa,
        convention=convention,
        sink=sink,
        normalizer=normalizer,
        normalizer_bias=normalizer_bias,
    )
    with np.errstate(all="ignore"):
        x = read_inputs(query, key, None, settings)
        return x.to_caller(masked_scores(x, settings))


def attention_weights(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    attn_mask: npt.ArrayLike | None = None,
    is_causal: bool = False,
    scale: npt.ArrayLike | None = None,
    enable_gqa: bool = False,
    *,
    score: str | ScoreFunction = "dot",
    softcap: float | None = None,
    window: Window = None,
    causal_alignment: str = "top_left",
    convention: str = "rows",
    sink: npt.ArrayLike | None = None,
    normalizer: str = "softmax",
    normalizer_bias: npt.ArrayLike | None = None,
) -> Array:
    """
    Return the weights, which leave softmax: for each query, shares over the keys that sum to one.

    Parameters
    ----------
    query, key, scale, score, softcap, enable_gqa, convention
        As in `attention_scores`.
    attn_mask : array_like, optional
        Boolean, True = may attend; or floating, added to the scores after the soft-cap. Broadcasts to the scores'
        shape from the right, so that three axes are (num_heads, n_queries, n_keys); (..., n_keys, n_queries) for
        columns. Only False and −inf mask: a finite bias, however large, is a bias. A 0/1 integer mask is refused.
    is_causal : bool
        Allow query i the keys up to its own position only.
    window : int or (left, right), optional
        Allow keys at distance < window; or from position − left to position + right, None leaving a side open.
        Masks, causality and window intersect.
    causal_alignment : {"top_left", "bottom_right"}
        Where query i stands when the numbers of queries and keys differ: at position i, or at
        i + n_keys − n_queries. Applies to causality and to the window.
    sink : float or array_like, optional
        A logit, or one for each head, whose exponential is added to the denominator only, after scale, soft-cap and
        mask: wⱼ = exp(sⱼ) / (exp(sink) + Σ exp(s)). 0 is "softmax-off-by-one", −inf is no sink.
    normalizer : {"softmax", "sigmoid", "relu"}
        Other than softmax, every key is weighed by itself: 1 / (1 + exp(−s − bias)), or max(s + bias, 0) / n_keys,
        with n_keys all keys, masked ones too.
    normalizer_bias : float or array_like, optional
        A number, or one for each head, for sigmoid (default −log n_keys) and ReLU (default 0).

    Returns
    -------
    ndarray, (..., n_queries, n_keys), or (..., n_keys, n_queries) for columns
        Non-negative; a query's weights sum to 1 within n_keys·eps, or are all 0 where it may attend to no key. With a
        sink they sum to 1 less what the sink takes; sigmoid and ReLU fix no sum. Types as in `attention_scores`.

    Raises
    ------
    ValueError
        As `attention_scores`; also for a mask of another type or shape, a bad window or alignment, a sink or bias that
        is not one number for each head, a sink without softmax, or a bias with it.

    Notes
    -----
    A masked key counts as if it were not there, even if it is NaN. A NaN in a query or in a key that it sees makes
    that query's row NaN. Scores of +inf share the weight of their row.

    `entropy` wants all the shares of a row: with a sink, append what is missing to 1.

    References
    ----------
    Xiao et al., "Efficient Streaming Language Models with Attention Sinks" (2024), for the sink. Ramapuram et al.,
    "Theory, Analysis, and Best Practices for Sigmoid Self-Attention" (2025), for the bias −log n. Wortsman et al.,
    "Replacing softmax with ReLU in Vision Transformers" (2023), for the division by n.

    Examples
    --------
    >>> import numpy as np
    >>> attention_weights([[1.0]], [[0.0], [np.log(3.0)]], scale=1)
    array([[0.25, 0.75]])
    """
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
    with np.errstate(all="ignore"):
        x = read_inputs(query, key, None, settings, attn_mask)
        return x.to_caller(plain_weights(x, settings))


def scaled_dot_product_attention(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    attn_mask: npt.ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: npt.ArrayLike | None = None,
    enable_gqa: bool = False,
    *,
    score: str | ScoreFunction = "dot",
    softcap: float | None = None,
    window: Window = None,
    causal_alignment: str = "top_left",
    convention: str = "rows",
    sink: npt.ArrayLike | None = None,
    normalizer: str = "softmax",
    normalizer_bias: npt.ArrayLike | None = None,
    rng: Any = None,
) -> Array:
    """
    Mix the values by the attention weights: softmax(scale · QKᵀ + mask) V, or V softmax(scale · KᵀQ + mask).

    The positional arguments are those of ``torch.nn.functional.scaled_dot_product_attention``.

    Parameters
    ----------
    query, key, attn_mask, is_causal, scale, enable_gqa, score, softcap, window, causal_alignment, convention, \
    sink, normalizer, normalizer_bias
        As in `attention_weights`.
    value : array_like, (..., n_keys, d_v), or (..., d_v, n_keys) for columns
        With as many heads as `key`.
    dropout_p : float in [0, 1]
        Probability with which each weight is set to 0; the others are divided by 1 − dropout_p. There is no training
        mode: 0, the default, drops nothing, and 1 gives zeros.
    rng : None, int or numpy.random.Generator
        Source of the dropout. An int repeats; a Generator advances from call to call; None draws fresh entropy.

    Returns
    -------
    ndarray, (..., n_queries, d_v), or (..., d_v, n_queries) for columns
        In the type of the inputs: 16-bit floats compute in float32 and return to their type, integers become float64.
        A query that may attend to no key (or with no key at all) gets zeros; d_k = 0 gives the mean of the values.

    Raises
    ------
    ValueError
        As `attention_weights`; also for a value that does not fit or a dropout_p outside [0, 1].

    Notes
    -----
    A large score matrix is never held whole: it is computed in tiles on as many threads as BLAS has, equal to the
    whole up to rounding. A score function of the caller's own is the exception.

    A NaN or infinite value reaches exactly the queries that may attend to its key.

    References
    ----------
    Vaswani et al., "Attention Is All You Need" (2017), equation 1. Milakov and Gimelshein, "Online normalizer
    calculation for softmax" (2018), for the running maximum and sum.

    Examples
    --------
    >>> import numpy as np
    >>> scaled_dot_product_attention([[1.0]], [[0.0], [np.log(3.0)]], [[2.0], [6.0]], scale=1)
    array([[5.]])
    """
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
    return attend(query, key, value, attn_mask, settings, dropout_p, rng)


@np.errstate(all="ignore")  # NaN and ±inf of the input go where they are visible
def attend(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike,
    attn_mask: npt.ArrayLike | None,
    settings: Settings,
    dropout_p: float,
    rng: Any,
) -> Array:
    """Return `scaled_dot_product_attention` under settings that have been read."""
    p = probability(dropout_p, "dropout_p")
    x = read_inputs(query, key, value, settings, attn_mask)
    if not is_large(x.scores_shape, x.query.dtype, settings):
        return x.to_caller(plain_output(x, settings, p, rng))
    problem = as_problem(x, settings)
    if p > 0:
        everything = slice(0, problem.n_heads), slice(0, problem.n_queries)
        dropped = output_in_blocks(problem, *everything, p, rng)
        return x.to_caller(dropped.reshape(*problem.lead, *dropped.shape[1:]))
    return x.to_caller(tiled_attention(problem, lambda heads, queries: output_in_blocks(problem, heads, queries)))
