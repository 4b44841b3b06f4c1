"""The expected largest weight of cosines in one dimension: every score is one of two, with even chances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from analysis.predict.mechanism.grid import Group
from analysis.predict.mechanism.key_law import Array

# So many ways of sharing the keys between their two scores are added up at most.
MOST_WAYS = 200_000


def two_point_max_weight(groups: Sequence[Group], counts: Array) -> float:
    """
    Add up the largest weight over the numbers of keys of each group that have the upper of their two scores.

    Parameters
    ----------
    groups : sequence of Group
        Of cosines of dimension 1, constants and a sink.
    counts : ndarray of float, shape (len(groups),)

    Returns
    -------
    float

    Raises
    ------
    ValueError
        Where the ways are too many.
    """
    kept = [(group, int(count)) for group, count in zip(groups, counts, strict=True) if count > 0]
    ways = math.prod(1 if group.law.is_constant else count + 1 for group, count in kept)
    if ways > MOST_WAYS:
        raise ValueError(f"max_weight of one-dimensional cosines has no quick exact value here: {ways:.3g} cases")
    choices: list[list[tuple[float, tuple[tuple[float, int, bool], ...]]]] = []
    for group, count in kept:
        if group.law.is_constant:
            choices.append([(0.0, ((group.shift + group.law.constant, count, group.is_sink),))])
            continue
        low, high = (group.law.score(group.law.nodes()[0]) + group.shift).tolist()
        log_ways = math.lgamma(count + 1) - count * math.log(2)
        choices.append(
            [
                (
                    log_ways - math.lgamma(k + 1) - math.lgamma(count - k + 1),
                    ((high, k, False), (low, count - k, False)),
                )
                for k in range(count + 1)
            ]
        )
    total = 0.0
    for way in product(*choices):
        scores = [one for _, part in way for one in part if one[1] > 0]
        largest = max(score for score, _, is_sink in scores if not is_sink)
        mass = sum(number * math.exp(min(score - largest, 700.0)) for score, number, _ in scores)
        total += math.exp(sum(log_chance for log_chance, _ in way)) / mass
    return total
