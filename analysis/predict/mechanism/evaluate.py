"""From checked arguments to values: cells that share their numbers at once, lengths of the query and rows averaged."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.predict import arguments
from analysis.predict.mechanism.causal import causal, causal_weight
from analysis.predict.mechanism.grid import Group
from analysis.predict.mechanism.key_law import Array
from analysis.predict.mechanism.lengths import alike_rows, group_of, one_row
from analysis.predict.mechanism.query import few_query_lengths, query_lengths
from analysis.predict.mechanism.row import key_weights
from analysis.predict.mechanism.second_route import direct_key_weight, direct_row
from analysis.predict.mechanism.setting import Mechanism, Place, row_groups
from analysis.predict.second_route import tanh_sinh_lengths

# (quantity, mechanism, place, n_keys of the cells, σ or temperature, d or 0) -> a value a cell.
OneQuery = Callable[[str, Mechanism, Place, tuple[int, ...], float, int], Array]
# Wider scores have no exact value beside a mechanism: its score is then next to nothing.
WIDEST = 1e6


def evaluate(
    name: str,
    n_keys: Any,
    sigma: Any,
    d_k: Any,
    scale: Any,
    mechanism: Mechanism,
    *,
    key: Any = None,
    method: str = "quadrature",
) -> float | Array:
    """
    Broadcast the arguments and evaluate an expectation.

    Parameters
    ----------
    name : str
        A quantity of `row.TERMS`, "max_weight", "query_gradient" or "key_weight".
    n_keys, sigma, d_k, scale
        As the public functions take them.
    mechanism : Mechanism
    key : int or array_like of int, optional
        For "key_weight": which, from 0, or -1 for the sink.
    method : {"quadrature", "direct", "few lengths"}, optional
        "direct" is the second route, "few lengths" the first to six digits: see `few_query_lengths`.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        One sentence naming the argument.
    """
    n, parameters = _cells(n_keys, sigma, d_k, scale, mechanism)
    route, lengths = ROUTES[method]
    if key is not None:
        n, *parameters = _with_key(n, parameters, key)

    def values(shared: tuple[Any, ...], group: tuple[Any, ...]) -> Array:
        dimension, factor, *numbers = shared
        place = Place(*numbers)
        if name == "query_gradient" and not dimension:
            raise ValueError("the gradient with respect to the query needs d_k: got None")
        if mechanism.is_cosine or not dimension:
            if name == "query_gradient":
                return _cosine_gradient(route, mechanism, place, group, factor, dimension)
            return route(name, mechanism, place, group, factor, dimension)
        r, weight = np.zeros(1), np.ones(1)
        if factor:
            known = {"is_odd": name == "max_weight", "is_singular": name == "query_gradient" and place.needle != 0}
            r, weight = lengths(dimension, factor, max(np.ravel(group).tolist()), **known)
        if name == "query_gradient":
            return _gradient(route, mechanism, place, group, factor, dimension, r, weight)
        averaged: Array = weight @ np.array([route(name, mechanism, place, group, factor * float(x), 0) for x in r])
        return averaged

    return arguments.grouped(n, parameters, values)


def _cells(
    n_keys: Any, sigma: Any, d_k: Any, scale: Any, mechanism: Mechanism
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Check what the plain functions check, with the mechanism's numbers: n_keys, and (d_k or 0, σ or scale, ...)."""
    n: NDArray[Any] = arguments.whole_numbers(n_keys, "n_keys")
    if mechanism.is_cosine:
        if d_k is None or sigma is not None:
            raise ValueError("score='cosine' takes d_k and scale, its temperature, and no sigma")
        scale = 1.0 if scale is None else scale
    elif (sigma is None) == (d_k is None):
        given = "neither" if sigma is None else "both"
        raise ValueError(f"give either sigma (standard deviation of the scores) or d_k: got {given}")
    if sigma is not None:
        if scale is not None:
            raise ValueError("scale applies to d_k; sigma is already the standard deviation of what enters softmax")
        factor: NDArray[Any] = arguments.standard_deviations(sigma)
        dimension: NDArray[Any] = np.zeros((), dtype=np.int64)
    else:
        n, dimension, factor = arguments.scales(n, arguments.whole_numbers(d_k, "d_k"), scale)
        factor = np.abs(factor)  # of Gaussian and of isotropic vectors nothing tells the sign
    named = dict(zip(("sink", "softcap", "needle"), mechanism.numbers, strict=True))
    n, dimension, factor, *numbers = arguments.broadcast(
        n_keys=n, d_k=dimension, **{"sigma" if sigma is not None else "scale": factor}, **named
    )
    if np.any(factor * np.sqrt(np.maximum(dimension, 1)) > WIDEST):
        raise ValueError(f"sigma, or scale * sqrt(d_k), must be at most {WIDEST:g} here: got {float(np.max(factor)):g}")
    return n, [dimension, factor, *numbers]


def _with_key(n: NDArray[Any], parameters: list[NDArray[Any]], key: Any) -> list[NDArray[Any]]:
    """Pair n_keys with the key, and broadcast."""
    keys = np.asarray(key)
    if keys.dtype.kind not in "iu" or np.any(keys < -1):
        raise ValueError(f"key must be a whole number >= 0: got {key!r}")
    n, keys, *parameters = arguments.broadcast(n_keys=n, key=keys, **{str(i): p for i, p in enumerate(parameters)})
    if np.any(keys >= n):
        raise ValueError(f"key must be below n_keys (keys count from 0): got {np.max(keys)} for n_keys {np.min(n)}")
    pairs = np.empty(n.shape, dtype=object)
    pairs[...] = np.frompyfunc(lambda length, place: (int(length), int(place)), 2, 1)(n, keys)
    return [pairs, *parameters]


def quadrature(
    name: str, mechanism: Mechanism, place: Place, cells: tuple[Any, ...], sigma: float, dimension: int
) -> Array:
    """
    Evaluate at one deviation (or temperature).

    Parameters
    ----------
    name : str
    mechanism : Mechanism
    place : Place
    cells : tuple
        Numbers of keys; for "key_weight" pairs of it and a key, or -1 for the sink.
    sigma : float
    dimension : int
        Of a cosine, else 0.

    Returns
    -------
    ndarray, shape (len(cells),)
    """
    if name == "key_weight":
        return _key_weights(mechanism, place, cells, sigma, dimension)
    if mechanism.is_causal:
        return np.array([causal(name, mechanism, place, n, sigma, dimension) for n in cells])
    if mechanism.has_vectors:
        return np.array([one_row(name, *row_groups(mechanism, place, n, sigma, dimension)[:1]) for n in cells])
    return alike_rows(name, mechanism, place, np.array(cells, dtype=np.float64), sigma, dimension)


def _key_weights(mechanism: Mechanism, place: Place, cells: tuple[Any, ...], sigma: float, dimension: int) -> Array:
    """Evaluate the weights of keys, those of one row together."""
    result = np.empty(len(cells))
    for n in dict.fromkeys(n for n, _ in cells):
        members = [i for i, (length, _) in enumerate(cells) if length == n]
        keys = [cells[i][1] for i in members]
        if mechanism.is_causal:
            result[members] = [causal_weight(mechanism, place, n, key, sigma, dimension) for key in keys]
            continue
        groups, of_key = row_groups(mechanism, place, n, sigma, dimension)
        result[members] = key_weights(groups, [group_of(key, groups, of_key) for key in keys])
    return result


def _gradient(
    route: OneQuery,
    mechanism: Mechanism,
    place: Place,
    n_keys: tuple[int, ...],
    scale: float,
    d_k: int,
    r: Array,
    weight: Array,
) -> Array:
    """Split the gradient into the d_k - 1 directions of the keys across the query, and the one along it."""
    if scale**2 == 0:
        return np.zeros(len(n_keys))
    if place.needle and d_k < 3:
        raise ValueError("the gradient with respect to the query has an infinite mean for a needle and d_k below 3")
    total = np.zeros(len(n_keys))
    for x, part in zip(r.tolist(), weight, strict=True):
        across = route("across", mechanism, place, n_keys, scale * x, 0)
        along = route("along", mechanism, place, n_keys, scale * x, 0) / (scale * x) ** 2
        total += part * ((d_k - 1) * across + along)
    return scale**2 * total


def _cosine_gradient(
    route: OneQuery, mechanism: Mechanism, place: Place, n_keys: tuple[int, ...], temperature: float, d_k: int
) -> Array:
    """Of a cosine only the part across the query moves, as 1/‖q‖: E 1/‖q‖² = 1/(d_k - 2)."""
    if d_k < 3:
        raise ValueError("the gradient of cosine scores with respect to the query has an infinite mean for d_k below 3")
    return temperature**2 / (d_k - 2) * route("across", mechanism, place, n_keys, temperature, d_k)


def direct(
    name: str, mechanism: Mechanism, place: Place, cells: tuple[Any, ...], sigma: float, dimension: int
) -> Array:
    """Evaluate what `quadrature` does, row by row on the second route."""
    result = []
    for cell in cells:
        n, key = cell if name == "key_weight" else (cell, 0)
        rows = range(1, n + 1) if mechanism.is_causal else [n]
        values = [_direct(name, key, *_visible(mechanism, place, n, row, sigma, dimension)) for row in rows]
        result.append(math.fsum(values) / len(values))
    return np.array(result)


def _visible(
    mechanism: Mechanism, place: Place, n_keys: int, row: int, sigma: float, dimension: int
) -> tuple[list[Group], list[int]]:
    """Return a group for each key that the row of `row` keys sees, and a sink's, and which keys those are."""
    groups, of_key = row_groups(mechanism, place, n_keys, sigma, dimension)
    first = max(0, row - (mechanism.window or row)) if mechanism.is_causal else 0
    keys = list(range(first, row))
    own = [groups[of_key[min(key, len(of_key) - 1)]]._replace(size=1.0) for key in keys]
    return own + [group for group in groups if group.is_sink], keys


def _direct(name: str, key: int, groups: list[Group], keys: list[int]) -> float:
    """Join keys that are alike, and evaluate."""
    counts: dict[Group, float] = {}
    for group in groups:
        counts[group] = counts.get(group, 0.0) + 1.0
    joined = [group._replace(size=count) for group, count in counts.items()]
    if name != "key_weight":
        return direct_row(name, joined)
    if key < 0:
        return direct_key_weight(joined, len(joined) - 1)
    return direct_key_weight(joined, list(counts).index(groups[keys.index(key)])) if key in keys else 0.0


ROUTES: dict[str, tuple[OneQuery, Callable[..., tuple[Array, Array]]]] = {
    "quadrature": (quadrature, query_lengths),
    "few lengths": (quadrature, few_query_lengths),
    "direct": (direct, lambda d_k, _scale, n_keys, **_known: tanh_sinh_lengths(d_k, n_keys)),
}
