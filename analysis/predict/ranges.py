"""What an expectation cannot exceed: rounding is not let past it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = float | NDArray[np.float64]


def kept(name: str, values: Values, n_keys: Any, *, has_sink: bool = False) -> Values:
    """
    Return the values, each within the range of its quantity.

    Parameters
    ----------
    name : str
        As for `routes.expectation`; one without a range is returned as it is.
    values : float or ndarray
    n_keys : array_like of int
        Broadcasts with the values.
    has_sink : bool, optional
        Then weights need not add up to 1, and entropy is that of one weight more.
    """
    n = np.asarray(n_keys, dtype=np.float64)
    if name == "key_weight":
        low, high = 0.0 * n, 1.0 + 0.0 * n
    elif name == "entropy":
        low, high = 0.0 * n, _logs(n + has_sink)
    elif name in ("power_sum_2", "power_sum_3", "max_weight"):
        order = {"power_sum_2": 1, "power_sum_3": 2, "max_weight": 1}[name]
        low, high = (0.0 if has_sink else 1.0) * n**-order, 1.0 + 0.0 * n
    elif name == "jacobian_trace":
        low, high = 0.0 * n, 1.0 - 1.0 / (n + has_sink)
    elif name == "jacobian_frobenius_squared":
        low, high = 0.0 * n, 0.25 + 0.0 * n
    else:
        return values
    inside = np.minimum(np.maximum(values, low), high)
    return float(inside) if np.ndim(values) == 0 else inside


def _logs(n: NDArray[np.float64]) -> NDArray[np.float64]:
    """Take logarithms as `math.log` does, whose last digit may not be NumPy's."""
    return np.array([math.log(x) for x in n.ravel().tolist()]).reshape(n.shape)
