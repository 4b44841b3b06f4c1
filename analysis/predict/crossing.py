"""The scale that gives a wanted expectation beside a mechanism, where nothing is monotone by a theorem."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import optimize

from analysis.predict.of_quantity import value_of
from analysis.vocabulary.quantity import Quantity

# The deviations of the scores (temperatures of cosines) that are walked along, the factor of a step, and how much wider
# than its soft-cap a score need not be.
SMALLEST, LARGEST, FACTOR = 1e-3, 5e3, 1.6
SATURATED = 30.0


def crossing(quantity: Quantity, target: float, n_keys: int, d_k: int, mechanism: Mapping[str, Any]) -> float:
    """
    Return the one scale at which a quantity is the target.

    Parameters
    ----------
    quantity : Quantity
    target : float
    n_keys : int
    d_k : int
        0 stands for scores of given standard deviation.
    mechanism : mapping
        Keyword arguments of the expectation.

    Returns
    -------
    float
        0 where scale 0 gives the target to rounding.

    Raises
    ------
    ValueError
        Where none or several do.
    """
    function = value_of(quantity)
    is_cosine = mechanism.get("score") == "cosine"

    def at(scale: float) -> float:
        where = {"d_k": int(d_k), "scale": scale} if d_k else {"sigma": scale}
        return float(function(int(n_keys), **where, **mechanism))

    @cache
    def excess(log_scale: float) -> float:
        return at(math.exp(log_scale)) - target

    first = at(0.0)
    if abs(first - target) <= 4e-16 * abs(target):
        return 0.0
    unit = math.sqrt(d_k) if d_k and not is_cosine else 1.0
    softcap = mechanism.get("softcap")
    widest = LARGEST if softcap is None else min(LARGEST, SATURATED * float(np.max(np.asarray(softcap, dtype=float))))
    walked = _walk(excess, math.log(SMALLEST / unit), math.log(widest / unit))
    values = [first, *(excess(x) + target for x in walked)]
    signs = [value > target for value in values]
    brackets = [pair for pair, (a, b) in zip(pairwise([None, *walked]), pairwise(signs), strict=True) if a != b]
    where = f"with n_keys {n_keys}"
    if not brackets:
        low, high, last = min(values), max(values), math.exp(walked[-1]) if walked else 0.0
        stays = f"it stays between {low:.6g} and {high:.6g} from scale 0 to {last:.3g}"
        raise ValueError(f"no scale gives {quantity.name} {target:g} {where}: {stays}")
    if len(brackets) > 1:
        near = ", ".join(f"{math.exp(right or 0.0):.3g}" for _, right in brackets)
        raise ValueError(f"{quantity.name} {target:g} {where} does not determine the scale: those near {near} give it")
    left, right = brackets[0]
    assert right is not None
    if left is None:
        raise ValueError(f"{quantity.name} {target:g} {where} takes a scale too near to 0 to be determined")
    return math.exp(optimize.brentq(excess, left, right, xtol=1e-14, rtol=1e-14))


def _walk(excess: Callable[[float], float], low: float, high: float) -> list[float]:
    """Return the logarithms of the scales at which there is an exact value, upwards until there is none."""
    walked: list[float] = []
    count = math.ceil((high - low) / math.log(FACTOR))
    for step in range(count + 1):
        place = low + step * (high - low) / count
        try:
            excess(place)
        except ValueError:
            if not walked:
                raise
            break
        walked.append(place)
    return walked
