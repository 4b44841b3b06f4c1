"""Which scores are meant: n_keys with either sigma, or d_k and a scale; checked once, broadcast, and grouped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.vocabulary.scale import ScaleLike, resolve_scale

# Whole numbers above are not all float64 numbers.
LARGEST_WHOLE = 2**53
# Products of two score densities must not underflow.
LARGEST_SIGMA = 1e100

# Numbers of keys that share one table at a time: bounds the memory.
LARGEST_BATCH = 2048

BySigma = Callable[[float, tuple[int, ...]], Any]
ByDimension = Callable[[int, float, tuple[int, ...]], Any]


def evaluate(
    n_keys: ArrayLike,
    sigma: ArrayLike | None,
    d_k: ArrayLike | None,
    scale: ScaleLike | ArrayLike,
    by_sigma: BySigma,
    by_dimension: ByDimension,
) -> float | NDArray[np.float64]:
    """
    Broadcast the arguments of an exact expectation, and evaluate it once for all n_keys at one σ or one (d_k, scale).

    Parameters
    ----------
    n_keys, sigma, d_k, scale
        As the caller's user passed them.
    by_sigma : callable (sigma, n_keys) -> array_like
        Values at one σ >= 0 for a tuple of n_keys.
    by_dimension : callable (d_k, scale, n_keys) -> array_like
        Values at one d_k and one scale >= 0 (Gaussian vectors do not tell the sign of a scale) for a tuple of n_keys.

    Returns
    -------
    float or ndarray
        A float where every argument is a scalar, else an array of the broadcast shape.

    Raises
    ------
    ValueError
        One sentence naming the argument.
    """
    n = whole_numbers(n_keys, "n_keys")
    if (sigma is None) == (d_k is None):
        given = "neither" if sigma is None else "both"
        raise ValueError(f"give either sigma (standard deviation of the scores) or d_k: got {given}")
    if sigma is not None:
        if scale is not None:
            raise ValueError("scale applies to d_k; sigma is already the standard deviation of what enters softmax")
        n, sigmas = broadcast(n_keys=n, sigma=standard_deviations(sigma))
        return grouped(n, [sigmas], lambda key, group: by_sigma(key[0], group))
    dimension = whole_numbers(d_k, "d_k")
    n, dimension, factor = scales(n, dimension, scale)
    return grouped(n, [dimension, np.abs(factor)], lambda key, group: by_dimension(key[0], key[1], group))


def whole_numbers(value: Any, name: str) -> NDArray[np.int64]:
    """Check whole numbers >= 1 (integer-valued floats pass); ValueError shows the first that is not."""
    wanted = "a whole number, at least 1"
    numbers = _numbers(value, name, wanted)
    bad = ~((numbers >= 1) & (numbers == np.floor(numbers)) & (numbers <= LARGEST_WHOLE))
    if np.any(bad):
        limit = f" and at most 2**53 = {LARGEST_WHOLE}" if numbers[bad].flat[0] > LARGEST_WHOLE else ""
        raise ValueError(f"{name} must be {wanted}{limit}: got {np.asarray(value)[bad].flat[0]}")
    return numbers.astype(np.int64)


def standard_deviations(sigma: ArrayLike) -> NDArray[np.float64]:
    """Check numbers in [0, 1e100]; ValueError shows the first that is not."""
    wanted = f"a finite number >= 0 (at most {LARGEST_SIGMA:g})"
    numbers = _numbers(sigma, "sigma", wanted)
    bad = ~((numbers >= 0) & (numbers <= LARGEST_SIGMA))
    if np.any(bad):
        raise ValueError(f"sigma must be {wanted}: got {np.asarray(sigma)[bad].flat[0]}")
    return numbers


def _numbers(value: Any, name: str, wanted: str) -> NDArray[np.float64]:
    """Convert integers and floats, and what Python holds as such, but no booleans, strings or complex numbers."""
    try:
        array = np.asarray(value)
        if array.size and array.dtype.kind not in "iufO":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be {wanted}: got {value!r}") from None


def scales(n_keys: NDArray[Any], d_k: NDArray[Any], scale: ScaleLike | ArrayLike) -> tuple[NDArray[Any], ...]:
    """Broadcast n_keys, d_k and the scale, or array of scales, evaluated at each d_k and n_keys."""
    given = np.asarray(scale, dtype=object)
    functions = np.array([resolve_scale(part) for part in given.flat], dtype=object).reshape(given.shape)
    n_keys, d_k, functions = broadcast(n_keys=n_keys, d_k=d_k, scale=functions)
    values = [f(int(d), int(n)) for f, d, n in zip(functions.flat, d_k.flat, n_keys.flat, strict=True)]
    factor = np.array(values, dtype=np.float64).reshape(d_k.shape)
    if np.any(np.abs(factor) > LARGEST_SIGMA / 100 / np.sqrt(d_k)):
        raise ValueError(f"scale * sqrt(d_k) must be at most {LARGEST_SIGMA / 100:g}: got scale {np.max(factor):g}")
    return n_keys, d_k, factor


def broadcast(**arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Broadcast by name, so that a misfit can be told by name."""
    try:
        return np.broadcast_arrays(*arrays.values())
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"shapes must broadcast together: got {shapes}") from None


def grouped(
    n_keys: NDArray[Any], parameters: Sequence[NDArray[Any]], values: Callable[[tuple[Any, ...], tuple[int, ...]], Any]
) -> float | NDArray[np.float64]:
    """Call `values` once for each distinct tuple of parameters, with all the n_keys that go with it."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, key in enumerate(zip(*(parameter.ravel().tolist() for parameter in parameters), strict=True)):
        groups.setdefault(key, []).append(index)
    flat, result = n_keys.ravel().tolist(), np.empty(n_keys.size)
    for key, members in groups.items():
        for start in range(0, len(members), LARGEST_BATCH):
            batch = members[start : start + LARGEST_BATCH]
            result[batch] = values(key, tuple(flat[i] for i in batch))
    return float(result[0]) if n_keys.ndim == 0 else result.reshape(n_keys.shape)
