"""Softmax along an axis, its logarithm, entropy, Jacobian and vector-Jacobian product."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attnsym._rows import row_max, row_sum
from attnsym._validate import Array, compute_dtype, real_array


@np.errstate(all="ignore")
def softmax(scores: npt.ArrayLike, axis: int = -1) -> Array:
    """
    Turn scores into weights: non-negative, summing to one along an axis.

    wᵢ = exp(sᵢ) / Σⱼ exp(sⱼ), computed after subtracting the maximum, so that no finite score overflows.

    Parameters
    ----------
    scores : array_like, (..., n)
        Real numbers. 16-bit floats compute in and return float32; integers become float64.
    axis : int, default -1
        The axis that sums to one (there is no "whole array" default).

    Returns
    -------
    ndarray
        Weights of the shape of `scores`. Exact up to rounding: |Σw − 1| ≤ n·eps.

    Raises
    ------
    ValueError
        If `scores` is not an array of real numbers or has no such axis.

    Notes
    -----
    The limits are taken where arithmetic alone would give NaN: scores of −inf weigh 0, a row that is −inf throughout
    (fully masked) weighs 0 throughout, and scores of +inf share the weight equally. A NaN makes its row NaN.

    Examples
    --------
    >>> import numpy as np
    >>> softmax([0.0, np.log(3.0)])
    array([0.25, 0.75])
    """
    x, axis = _along(scores, axis, "scores")
    weights = softmax_in_place(np.array(np.moveaxis(x, axis, -1), order="C"))
    return np.moveaxis(weights, -1, axis)


def softmax_in_place(x: Array) -> Array:
    """Overwrite the C-contiguous floating `x` by its softmax along the last axis, and return it."""
    if x.size == 0:
        return x
    peak = row_max(x)
    if not np.isfinite(peak).all():
        peak = _tame_infinite_rows(x, peak)
    np.subtract(x, peak, out=x)  # a difference beyond the range of the type is −inf, whose exponential is 0
    np.exp(x, out=x)
    total = row_sum(x)
    if not total.all():
        total[total == 0] = 1  # a fully masked row: 0/1
    return np.divide(x, total, out=x)


def _tame_infinite_rows(x: Array, peak: Array) -> Array:
    # The limit of a row with k scores of +inf is that of k zeros among −inf; return what is left to subtract.
    zero = x.dtype.type(0)
    np.copyto(x, np.where(x == np.inf, zero, -np.inf), where=peak == np.inf)
    return np.where(np.isinf(peak), zero, peak)


@np.errstate(all="ignore")
def log_softmax(scores: npt.ArrayLike, axis: int = -1) -> Array:
    """
    Return the logarithm of the softmax weights, to full precision where a weight is near 1 or underflows.

    log wᵢ = (sᵢ − m) − log1p(Σ' exp(sⱼ − m)), m the maximum and Σ' over all entries but one that attains it. The
    entry of weight nearly 1 therefore keeps its small negative logarithm instead of rounding to 0.

    Parameters
    ----------
    scores : array_like, (..., n)
        Real numbers, types as in `softmax`.
    axis : int, default -1
        The axis along which the weights sum to one.

    Returns
    -------
    ndarray
        Of the shape of `scores`. Rows with ±inf follow the weights of `softmax`: log 0 is −inf, a fully masked row is
        −inf throughout, k scores of +inf have −log k each. A NaN makes its row NaN.

    Raises
    ------
    ValueError
        As `softmax`.

    Examples
    --------
    >>> print(f"{log_softmax([40.0, 0.0])[0]:.6e}")
    -4.248354e-18
    """
    x, axis = _along(scores, axis, "scores")
    x = np.array(np.moveaxis(x, axis, -1), order="C")
    if x.size == 0:
        return np.moveaxis(x, -1, axis)
    top = np.argmax(x, axis=-1)[..., None]  # argmax stops at a NaN, which makes the row NaN below
    peak = np.take_along_axis(x, top, axis=-1)
    x -= _tame_infinite_rows(x, peak)
    others = np.exp(x)
    np.put_along_axis(others, top, 0, axis=-1)
    x -= np.log1p(others.sum(axis=-1, keepdims=True))
    return np.moveaxis(x, -1, axis)


@np.errstate(all="ignore")
def entropy(weights: npt.ArrayLike, axis: int = -1) -> Array:
    """
    Return the Shannon entropy of weights, −Σ wᵢ log wᵢ, in nats.

    Parameters
    ----------
    weights : array_like, (..., n)
        Non-negative. A row that is all zero is fully masked and has entropy 0; any other sums to 1, up to n times the
        machine epsilon of its dtype.
    axis : int, default -1
        The axis along which the weights sum to one.

    Returns
    -------
    ndarray or scalar
        `weights` without that axis, between 0 and log n; 0·log 0 = 0, and a row with a NaN has entropy NaN. An empty
        row counts as fully masked. float32 for 16-bit and float32 weights, else float64.

    Raises
    ------
    ValueError
        For a negative weight, or a row whose sum is neither 1 nor, all zero, 0.

    Examples
    --------
    >>> print(f"{entropy([0.5, 0.5]):.6f}")
    0.693147
    """
    given = real_array(weights, "weights")
    eps = _eps(given)
    p, axis = _along(given, axis, "weights")
    p = np.moveaxis(p, axis, -1)
    if p.shape[-1] == 0:
        return np.zeros(p.shape[:-1], p.dtype)[()]
    p = np.ascontiguousarray(p)
    _check_weights(p, row_sum(p)[..., 0], p.shape[-1] * eps)
    logs = np.log(np.where(p > 0, p, p.dtype.type(1)))  # no tiny number stands in for 0: it may be flushed to 0
    logs *= p
    return np.asarray(np.maximum(0 - row_sum(logs)[..., 0], 0))[()]  # 0 − x, so that a one-hot row gives 0 and not −0


def _check_weights(p: Array, total: Array, tolerance: float) -> None:
    wrong = np.abs(total - 1) > tolerance  # False for NaN
    wrong &= (total != 0) | np.any(p, axis=-1) if wrong.any() else wrong
    if wrong.any():
        raise ValueError(
            f"weights must sum to 1 along the axis (within {tolerance:.2g}), or be all zero: got a sum of "
            f"{float(total[wrong].flat[0])!r}"
        )
    if (p < 0).any():
        raise ValueError(f"weights must not be negative: got {float(np.nanmin(p)):.9g}")


@np.errstate(all="ignore")
def softmax_jacobian(weights: npt.ArrayLike) -> Array:
    """
    Return the Jacobian of softmax at the given weights, J = diag(w) − w wᵀ.

    Parameters
    ----------
    weights : array_like, (..., n)
        Softmax weights along the last axis, or the weights of the keys beside a sink, whose sum is below 1; a fully
        masked row of zeros has J = 0. Weights of a sigmoid or of ReLU have another Jacobian, which is diagonal.

    Returns
    -------
    ndarray, (..., n, n)
        J[i, j] = ∂wᵢ/∂sⱼ = wᵢ(δᵢⱼ − wⱼ), symmetric; rows and columns sum to 0 up to rounding, beside a sink of weight
        w₀ to wᵢw₀. The diagonal is computed as wᵢ(1 − wᵢ), which does not cancel as wᵢ → 1. Unit: weight per score.

    Raises
    ------
    ValueError
        If `weights` is not an array of real numbers with at least one axis.

    Examples
    --------
    >>> softmax_jacobian([0.25, 0.75])
    array([[ 0.1875, -0.1875],
           [-0.1875,  0.1875]])
    """
    p, _ = _along(weights, -1, "weights")
    jacobian = -p[..., :, None] * p[..., None, :]
    diagonal = np.arange(p.shape[-1])
    jacobian[..., diagonal, diagonal] = p * (1 - p)
    return jacobian


@np.errstate(all="ignore")
def softmax_vjp(weights: npt.ArrayLike, upstream: npt.ArrayLike) -> Array:
    """
    Return the vector-Jacobian product of softmax, Jᵀg, without building J.

    (Jᵀg)ᵢ = wᵢ(gᵢ − Σⱼ wⱼ gⱼ). Softmax's Jacobian is blind to a constant c added to g, so g is measured from its entry
    at the largest weight: a saturated row keeps its small gradient instead of cancelling to 0.

    Parameters
    ----------
    weights : array_like, (..., n)
        Softmax weights along the last axis, or the weights of the keys beside a sink: where they do not sum to 1
        (within n times the machine epsilon of their dtype, as in `entropy`), the rest 1 − Σw is the sink's, and
        −c·wᵢ(1 − Σw) makes up for the constant. Weights of a sigmoid or of ReLU have another Jacobian, which
        `scaled_dot_product_attention_vjp` knows.
    upstream : array_like, (..., n)
        g, the gradient with respect to the weights; broadcasts against `weights`.

    Returns
    -------
    ndarray, (..., n)
        The gradient with respect to the scores. 0 throughout for a fully masked row.

    Raises
    ------
    ValueError
        If the two do not broadcast, or are not arrays of real numbers with at least one axis.

    Examples
    --------
    >>> softmax_vjp([0.25, 0.75], [2.0, 6.0])
    array([-0.75,  0.75])
    """
    p, g = real_array(weights, "weights"), real_array(upstream, "upstream")
    dtype, eps = compute_dtype(p, g), _eps(p)
    try:
        p, g = np.broadcast_arrays(p.astype(dtype, copy=False), g.astype(dtype, copy=False))
    except ValueError:
        raise ValueError(f"upstream must broadcast against weights: got {g.shape} and {p.shape}") from None
    if p.ndim == 0:
        raise ValueError("weights must have at least one axis: got a number")
    rest = 1 - np.add.reduce(p, axis=-1, keepdims=True)
    return whole_rows_vjp(p, g, np.where(np.abs(rest) <= p.shape[-1] * eps, dtype.type(0), rest))


def whole_rows_vjp(p: Array, g: Array, rest: Array | None = None) -> Array:
    """Return p·(g − Σ p·g) along the last axis, for rows whose sum lacks `rest` of 1; None for nothing."""
    if p.size == 0:
        return np.zeros(p.shape, p.dtype)
    constant = np.take_along_axis(g, np.argmax(p, axis=-1)[..., None], axis=-1)
    shifted = g - constant
    shifted -= np.einsum("...i,...i->...", shifted, p)[..., None]
    if rest is not None and rest.any():
        shifted += np.where(rest == 0, 0, constant * rest)
    shifted *= p
    return np.asarray(shifted)


def _along(x: npt.ArrayLike, axis: int, name: str) -> tuple[Array, int]:
    array = real_array(x, name)
    if isinstance(axis, (bool, np.bool_)) or not isinstance(axis, (int, np.integer)):
        raise ValueError(f"axis must be one whole number: got {axis!r}")
    if not -array.ndim <= axis < array.ndim:
        raise ValueError(f"{name} has no axis {axis}: got shape {array.shape}")
    return array.astype(compute_dtype(array), copy=False), int(axis)


def _eps(x: Array) -> float:
    if x.dtype.name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(x.dtype).eps)
