"""Norms of queries and keys before their product: unit length, or unit mean square with a gain."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._validate import Array, choice, compute_dtype, finite_number, fits_shape, real_array

_KINDS = ("l2", "rms")


@np.errstate(all="ignore")
def qk_norm(x: npt.ArrayLike, *, kind: str = "l2", gain: Any = None, eps: float = 0.0) -> Array:
    """
    Divide every vector by its length, or by the root of its mean square, and multiply by a gain.

    x / √(Σx² + eps) for "l2" and x / √(Σx²/d + eps) for "rms", times `gain`.

    Parameters
    ----------
    x : array_like, (..., d)
        Queries or keys, vectors as rows.
    kind : {"l2", "rms"}
        Scores of "l2" vectors are cosines, between −1 and 1 at scale 1; those of "rms" vectors lie between −√d and √d
        at the default scale 1/√d.
    gain : array_like, optional
        A number, or an array that broadcasts to `x`, such as (d,) or (num_heads, 1, d).
    eps : float ≥ 0
        Added under the root. With 0, the default, the result does not depend on the length of the vector; a zero
        vector stays zero.

    Returns
    -------
    ndarray, of the shape of `x`
        Exact up to rounding for vectors of any length, 1e-200 and 1e200 included. 16-bit floats compute in float32 and
        return to their type; integers become float64. A vector that is not finite becomes NaN where it is so.

    Raises
    ------
    ValueError
        For an unknown kind, a negative or infinite eps, a gain that does not broadcast to `x`, or a number for `x`.

    References
    ----------
    Henry et al., "Query-Key Normalization for Transformers" (2020). Zhang and Sennrich, "Root Mean Square Layer
    Normalization" (2019).

    Examples
    --------
    >>> qk_norm([3.0, 4.0])
    array([0.6, 0.8])
    """
    choice(kind, "kind", _KINDS)
    smoothing = finite_number(eps, "eps")
    if smoothing < 0:
        raise ValueError(f"eps must be 0 or more: got {eps!r}")
    given = real_array(x, "x")
    if given.ndim == 0:
        raise ValueError("x must have at least one axis, the components of a vector: got a number")
    vectors = given.astype(compute_dtype(given), copy=False)
    normed = _normed(vectors, float(given.shape[-1]) if kind == "rms" else 1.0, smoothing)
    if gain is not None:
        factors = real_array(gain, "gain")
        if not fits_shape(factors, given.shape):
            raise ValueError(f"gain must broadcast to the shape of x, {given.shape}: got {factors.shape}")
        normed = normed * factors.astype(vectors.dtype)
    return np.asarray(normed.astype(given.dtype, copy=False))


def unit_vectors(x: Array) -> Array:
    """Return `x` with every vector of its last axis divided by its length; zero vectors stay zero."""
    return _normed(x, 1.0, 0.0)


def _normed(x: Array, count: float, eps: float) -> Array:
    """Return x / √(Σx²/count + eps), formed from x / max|x|, whose squares neither overflow nor vanish."""
    if x.shape[-1] == 0:
        return x
    largest = np.max(np.abs(x), axis=-1, keepdims=True)
    if eps:
        largest = np.maximum(largest, x.dtype.type(eps**0.5))
    largest = np.where(largest == 0, x.dtype.type(1), largest)
    unit = x / largest  # inf/inf: a vector with an infinite component has no direction
    square = np.sum(unit * unit, axis=-1, keepdims=True)
    if count != 1:
        square /= count
    if eps:
        square += np.square(x.dtype.type(eps**0.5) / largest)
    length = np.sqrt(square)
    unit /= np.where(length == 0, x.dtype.type(1), length)
    return np.asarray(unit)
