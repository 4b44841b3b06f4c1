"""The mean over the rows under a causal mask, with or without a window."""

from __future__ import annotations

import numpy as np

from analysis.predict.mechanism.grid import Group
from analysis.predict.mechanism.key_law import Array
from analysis.predict.mechanism.largest import prefix_max_weights, summed_max_weight
from analysis.predict.mechanism.lengths import alike_rows, group_of, one_row
from analysis.predict.mechanism.row import key_weights, prefix_expectations
from analysis.predict.mechanism.setting import Mechanism, Place, row_groups

# Rows that are tabulated together: bounds the memory.
ROWS_AT_ONCE = 256


def causal(name: str, mechanism: Mechanism, place: Place, n_keys: int, sigma: float, dimension: int) -> float:
    """
    Average a quantity over the rows of 1 ... n_keys keys, or of as many as the window leaves.

    Parameters
    ----------
    name : str
    mechanism : Mechanism
    place : Place
    n_keys : int
    sigma : float
    dimension : int

    Returns
    -------
    float
    """
    if not mechanism.has_vectors:
        if name == "max_weight":
            return _largest(mechanism, place, n_keys, sigma, dimension)
        values, times = _alike(name, mechanism, place, n_keys, sigma, dimension)
        return float(times @ values / times.sum())
    groups = by_key(mechanism, place, n_keys, sigma, dimension)
    sink = groups[n_keys:]
    if name == "max_weight":
        if any(group.law.is_constant or group.law.dimension == 1 for group in groups[:n_keys]):
            return float(np.mean([one_row(name, [*groups[: i + 1], *sink]) for i in range(n_keys)]))
        return prefix_max_weights(groups[:n_keys], sink) / n_keys
    return float(np.mean(prefix_expectations(name, groups[:n_keys], sink)))


def _alike(
    name: str, mechanism: Mechanism, place: Place, n_keys: int, sigma: float, dimension: int
) -> tuple[Array, Array]:
    """Return the values and numbers of the different rows; a window hides the needle from the last of them."""
    window = min(mechanism.window or n_keys, n_keys)
    lengths, times = np.arange(1.0, window + 1), np.ones(window)
    values = np.concatenate(
        [
            alike_rows(name, mechanism, place, lengths[start : start + ROWS_AT_ONCE], sigma, dimension)
            for start in range(0, window, ROWS_AT_ONCE)
        ]
    )
    if window < n_keys:
        without = alike_rows(name, mechanism, place, lengths[-1:], sigma, dimension, needle=False)
        values, times = np.append(values, without), np.append(times, n_keys - window)
    return values, times


def _largest(mechanism: Mechanism, place: Place, n_keys: int, sigma: float, dimension: int) -> float:
    """Average the largest weight: the growing rows in one integral, and the full ones of a window."""
    window = min(mechanism.window or n_keys, n_keys)
    has_needle = place.needle != 0
    groups, _ = row_groups(mechanism, place, 2, sigma, dimension)
    total = summed_max_weight(groups, window, needle=has_needle)
    if window < n_keys:
        length = np.array([float(window)])
        full = alike_rows("max_weight", mechanism, place, length, sigma, dimension, needle=False)
        total += (n_keys - window) * float(full[0])
    return total / n_keys


def causal_weight(mechanism: Mechanism, place: Place, n_keys: int, key: int, sigma: float, dimension: int) -> float:
    """Average the weight of a key (-1: of the sink) over the rows, 0 in those that do not see it."""
    if mechanism.has_vectors:
        groups = by_key(mechanism, place, n_keys, sigma, dimension)
        if key < 0:
            return 1.0 - causal("own_mass", mechanism, place, n_keys, sigma, dimension)
        return float(np.mean(prefix_expectations(f"key_weight:{key}", groups[:n_keys], groups[n_keys:])))
    window = min(mechanism.window or n_keys, n_keys)
    total = 0.0
    for row in range(max(key, 0) + 1, (n_keys if key < 0 else min(n_keys, key + window)) + 1):
        sees_needle = row <= window
        groups, of_key = row_groups(mechanism, place, min(row, window), sigma, dimension)
        if place.needle and not sees_needle:
            ordinary = row_groups(mechanism, Place(place.sink, place.softcap, 0.0), window, sigma, dimension)
            groups, of_key = ordinary
        shown = key if sees_needle or key <= 0 else 1
        total += float(key_weights(groups, [group_of(shown, groups, of_key)])[0])
    return total / n_keys


def by_key(mechanism: Mechanism, place: Place, n_keys: int, sigma: float, dimension: int) -> list[Group]:
    """Return a group for each key in order, and the sink's."""
    groups, of_key = row_groups(mechanism, place, n_keys, sigma, dimension)
    return [groups[index]._replace(size=1.0) for index in of_key] + [group for group in groups if group.is_sink]
