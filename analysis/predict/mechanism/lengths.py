"""One row of keys that may all differ, or rows of several lengths whose keys are alike but for a needle."""

from __future__ import annotations

import numpy as np

from analysis.predict.mechanism.grid import Group
from analysis.predict.mechanism.key_law import Array
from analysis.predict.mechanism.largest import max_weights
from analysis.predict.mechanism.row import expectations
from analysis.predict.mechanism.setting import Mechanism, Place, row_groups


def one_row(name: str, groups: list[Group]) -> float:
    """Evaluate a row that has the groups' own counts."""
    counts = np.array([[group.size] for group in groups])
    return float(max_weights(groups, counts)[0] if name == "max_weight" else expectations(name, groups, counts)[0])


def alike_rows(
    name: str, mechanism: Mechanism, place: Place, n_keys: Array, sigma: float, dimension: int, *, needle: bool = True
) -> Array:
    """Evaluate rows of several lengths, whose keys are alike but for the needle, if they have it."""
    groups, _ = row_groups(mechanism, place, 2, sigma, dimension)
    counts = np.ones((len(groups), n_keys.size))
    if place.needle != 0:
        counts[0] = float(needle)
        counts[1] = n_keys - counts[0]
    else:
        counts[0] = n_keys
    present = counts.max(axis=1) > 0
    groups = [group for group, there in zip(groups, present, strict=True) if there]
    return max_weights(groups, counts[present]) if name == "max_weight" else expectations(name, groups, counts[present])


def group_of(key: int, groups: list[Group], of_key: list[int]) -> int:
    """Return the index of the group of a key, or of the sink for -1."""
    return len(groups) - 1 if key < 0 else of_key[min(key, len(of_key) - 1)]
