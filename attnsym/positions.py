"""Positions in attention: ALiBi's biases on the scores, and rotary embeddings of queries and keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attnsym._validate import Array, compute_dtype, finite_number, fits_shape, length, real_array
from attnsym.masks import query_positions


@np.errstate(all="ignore")
def alibi_bias(num_heads: int, n_queries: int, n_keys: int, *, alignment: str = "top_left") -> npt.NDArray[np.float64]:
    """
    Return ALiBi's bias, −slope · |i − j| for query position i and key j: an `attn_mask` that is added to the scores.

    Head h of H = 2^m has the slope 2^(−8h/H), h = 1 … H. Other numbers of heads take those of the power of two below,
    and between them every second one of the power above, as the authors' code does.

    Parameters
    ----------
    num_heads : int
        Number of query heads, at least 1.
    n_queries, n_keys : int
        Numbers of queries and of keys.
    alignment : {"top_left", "bottom_right"}
        Where query i stands among the keys, as in `causal_mask`. Under a causal mask it makes no difference to the
        weights: a row's bias changes by a constant.

    Returns
    -------
    ndarray of float64, (num_heads, n_queries, n_keys)
        0 at the query's own position and negative elsewhere, on both sides; exact up to rounding.

    Raises
    ------
    ValueError
        For numbers that are not whole or too small, or an unknown alignment.

    References
    ----------
    Press, Smith and Lewis, "Train Short, Test Long: Attention with Linear Biases" (2022), section 3.

    Examples
    --------
    >>> alibi_bias(2, 2, 3)[0]
    array([[ 0.    , -0.0625, -0.125 ],
           [-0.0625,  0.    , -0.0625]])
    """
    heads = length(num_heads, "num_heads", 1)
    distance = np.abs(query_positions(n_queries, n_keys, alignment)[:, None] - np.arange(n_keys))
    return np.asarray(-_slopes(heads)[:, None, None] * distance) + 0.0  # no −0 at the query's own position


def _slopes(heads: int) -> npt.NDArray[np.float64]:
    below = 1 << heads.bit_length() - 1
    slopes = np.exp2(-8.0 * np.arange(1, below + 1) / below)
    between = np.exp2(-4.0 * np.arange(1, 2 * below, 2) / below)
    return np.concatenate([slopes, between[: heads - below]])


@np.errstate(all="ignore")
def rotary(x: npt.ArrayLike, positions: npt.ArrayLike, *, base: float = 10000.0) -> Array:
    """
    Rotate every pair of components (2i, 2i + 1) by the angle position · base^(−2i/d).

    Read as a complex number, a pair is multiplied by exp(√−1 · position · base^(−2i/d)). A rotated query and a rotated
    key have a product that depends on their positions through the difference only, and lengths do not change.

    Parameters
    ----------
    x : array_like, (..., length, d)
        Queries or keys, vectors as rows, before any scaling; d even.
    positions : array_like
        Real numbers, (length,) or any shape that broadcasts to the shape of `x` without its last axis.
    base : float > 0
        Larger bases turn more slowly.

    Returns
    -------
    ndarray, of the shape of `x`
        Angles are computed in float64. 16-bit floats compute in float32 and return to their type; integers become
        float64.

    Raises
    ------
    ValueError
        For an odd d, positions that do not fit or are not finite, or a base that is not positive and finite.

    Notes
    -----
    Libraries that pair component i with i + d/2 apply the same rotations to the components in another order: scores
    are the same where query and key are permuted alike.

    References
    ----------
    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021), equation 34.

    Examples
    --------
    >>> rotary([[1.0, 0.0], [1.0, 0.0]], [0, 1]).round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    given, places = real_array(x, "x"), real_array(positions, "positions").astype(np.float64)
    turn = finite_number(base, "base")
    if turn <= 0:
        raise ValueError(f"base must be positive: got {base!r}")
    if given.ndim < 2 or given.shape[-1] % 2:
        raise ValueError(f"x must have the axes (length, d) with an even d: got shape {given.shape}")
    if not np.isfinite(places).all():
        raise ValueError("positions must be finite: got NaN or infinity")
    if not fits_shape(places, given.shape[:-1]):
        raise ValueError(f"positions must broadcast to {given.shape[:-1]}: got shape {places.shape}")
    d = given.shape[-1]
    angles = places[..., None] * turn ** (-np.arange(0, d, 2) / max(d, 1))
    dtype = compute_dtype(given)
    cosine, sine = (turned.astype(dtype, copy=False) for turned in (np.cos(angles), np.sin(angles)))
    even, odd = (given[..., start::2].astype(dtype, copy=False) for start in (0, 1))
    rotated = np.empty(given.shape, dtype)
    rotated[..., 0::2] = even * cosine - odd * sine
    rotated[..., 1::2] = even * sine + odd * cosine
    return rotated.astype(given.dtype, copy=False)
