"""The inverse of the exact expectations: which scale gives the entropy (or another quantity) that is wanted."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from analysis.predict.arguments import broadcast, whole_numbers
from analysis.predict.crossing import crossing
from analysis.predict.mechanism.setting import MechanismArguments, read_mechanism
from analysis.predict.of_quantity import exact_of, value_of
from analysis.predict.routes import Values
from analysis.predict.shares import check_arguments, find_predictable
from analysis.vocabulary.names import SolvableName
from analysis.vocabulary.quantity import Quantity
from analysis.vocabulary.row_shares import ROW_SHARES

# Where the search for a bracket gives up, as a standard deviation of the scores, and its first step in the logarithm.
LARGEST = 1e30
SMALLEST = 1e-12
FIRST_STRIDE = math.log(4)
TINY = 1e-300


def scale_for(
    quantity: SolvableName,
    target: ArrayLike,
    n_keys: ArrayLike,
    *,
    d_k: ArrayLike | None = None,
    **mechanism: Unpack[MechanismArguments],
) -> Values:
    """
    Return the scale (or, without d_k, the standard deviation of the scores) whose exact expectation is `target`.

    Parameters
    ----------
    quantity : str
        "entropy" (nats), "entropy_fraction" (entropy / log n_keys), "jacobian_trace", "max_weight", "logsumexp",
        "power_sum_2", "power_sum_3" or "score_variance": a quantity whose exact value is monotone in the scale.
    target : float or array_like
        Between the limits of the quantity at scale 0 (attained, by scale 0) and at infinite scale (not attained).
    n_keys : int or array_like of int
        At least 2: with one key nothing depends on the scale.
    d_k : int or array_like of int, optional
        Dimension of Gaussian query and keys. Without it the scores are iid N(0, σ²) and σ is returned.
    **mechanism
        sink, bias, softcap, score, needle, key_spread, is_causal, window: see `MechanismArguments`. With
        score="cosine" the temperature is returned. "key_weight" (of key 0, the needle) and "sink_weight" are then
        quantities too.

    Returns
    -------
    float or ndarray
        scale >= 0 of kᵀq (d_k given) or σ >= 0, of the shape to which the arguments broadcast. Relative error about
        1e-13 times the conditioning of the problem, which is bad only next to the limits.

    Raises
    ------
    ValueError
        For a target that no scale reaches, a quantity that is not monotone in the scale (E‖J‖_F² rises before it
        falls for n_keys >= 5, so that a target may have two scales), an unknown quantity, n_keys < 2. Beside a
        mechanism nothing is monotone by a theorem: a target that several scales reach is refused with the scales.

    Notes
    -----
    Brent's method on the logarithms of scale and quantity, in a bracket found by strides from 1 (or 1/√d_k): factors
    4, 16, 256, ... Exact for Gaussian scores; the quantities named are strictly monotone in the scale. Beside a
    mechanism the scale is walked along in factors of 1.6 from 0 to where the scores are thousands wide, or as wide as
    there is an exact value for, and Brent's method refines the crossing.

    Source: monotonicity of the Gibbs entropy in temperature; Brent (1973), Algorithms for Minimization without
    Derivatives, chapter 4.
    """
    record = find_predictable(quantity)
    if not exact_of(record).is_monotone:
        raise ValueError(f"{quantity} is not monotone in the scale, so that a target does not determine the scale")
    check_arguments(record.name, mechanism)
    targets, keys, dimensions = _arguments(target, n_keys, d_k)
    plain = read_mechanism(**mechanism).is_plain and quantity not in ROW_SHARES
    cells = zip(targets.flat, keys.flat, dimensions.flat, strict=True)
    with np.errstate(all="ignore"):
        found = [_solve(record, *cell) if plain else crossing(record, *cell, mechanism) for cell in cells]
    return found[0] if targets.ndim == 0 else np.reshape(found, targets.shape)


def _arguments(target: Any, n_keys: Any, d_k: Any) -> tuple[np.ndarray[Any, Any], ...]:
    try:
        targets = np.asarray(target)
        if targets.dtype.kind not in "iuf":
            raise TypeError
    except (TypeError, ValueError):
        raise ValueError(f"target must be a number: got {target!r}") from None
    keys = whole_numbers(n_keys, "n_keys")
    if np.any(keys == 1):
        raise ValueError("n_keys must be at least 2 here: with one key nothing depends on the scale")
    dimensions = np.zeros((), dtype=np.int64) if d_k is None else whole_numbers(d_k, "d_k")
    targets, keys, dimensions = broadcast(target=targets.astype(np.float64), n_keys=keys, d_k=dimensions)
    return targets, keys, dimensions


def _solve(quantity: Quantity, target: float, n_keys: int, d_k: int) -> float:
    """Solve for one cell; d_k = 0 stands for scores of given standard deviation."""
    value_at, n = value_of(quantity), int(n_keys)
    start, limit = quantity.at_equal(n), quantity.at_one_hot
    if target == start:
        return 0.0
    if not min(start, limit) < target < max(start, limit):
        raise ValueError(
            f"no scale gives {quantity.name} {target:g} with n_keys {n}: it goes from {start:.6g} at scale 0 "
            f"to {limit:g}"
        )
    rising = 1.0 if limit > start else -1.0

    @cache
    def excess(log_scale: float) -> float:
        """Return log(value/target), with its sign: towards both limits it is nearly straight in log_scale."""
        where = {"d_k": int(d_k), "scale": math.exp(log_scale)} if d_k else {"sigma": math.exp(log_scale)}
        value = float(value_at(n, **where))
        near = abs(value - target) < target / 2
        return rising * (math.log1p((value - target) / target) if near else math.log(max(value, TINY) / target))

    bracket = _bracket(excess, -math.log(d_k) / 2 if d_k else 0.0)
    if bracket is None:
        raise ValueError(
            f"{quantity.name} {target:g} is within rounding of its limit at n_keys {n}: no scale is determined"
        )
    return math.exp(
        bracket[0] if bracket[0] == bracket[1] else optimize.brentq(excess, *bracket, xtol=1e-14, rtol=1e-14)
    )


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float] | None:
    """Stride away from the start, twice as far each time, until the excess changes its sign; None if it never does."""
    side = -math.copysign(1.0, excess(start))
    end = start + math.log(LARGEST if side > 0 else SMALLEST)
    near, stride = start, side * FIRST_STRIDE
    while near != end:
        far = side * min(side * (near + stride), side * end)
        if excess(far) * side >= 0:
            return near, far
        near, stride = far, 2 * stride
    return None
