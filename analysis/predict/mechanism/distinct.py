"""
Sums over distinct keys, Σ f_i g_j h_k with i, j, k all different: what independence leaves of a product of weights.

A row is a dict from sorted tuples of column names to such sums. Two rows side by side make one by a product rule; every
term is positive where the columns are, so that nothing cancels however uneven the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations

import numpy as np

from analysis.predict.mechanism.key_law import Array

Term = tuple[str, ...]
Row = dict[Term, Array]
# The key under which a row holds Σ log φ.
PRODUCT: Term = ()


def closure(terms: Iterable[Term]) -> list[Term]:
    """Return the terms and all that they are made of, shortest first."""
    parts = {
        tuple(sorted(part)) for term in terms for size in range(1, len(term) + 1) for part in combinations(term, size)
    }
    return sorted(parts, key=lambda part: (len(part), part))


def alike(columns: dict[str, Array], count: Array | float, terms: list[Term]) -> Row:
    """Return the row of `count` keys that have the same columns."""
    row: Row = {PRODUCT: count * columns["log_phi"]}
    for term in terms:
        ways = np.prod([np.maximum(count - i, 0.0) for i in range(len(term))], axis=0)
        row[term] = ways * math.prod(columns[name] for name in term)
    return row


def beside(one: Row, other: Row, terms: list[Term]) -> Row:
    """Return the row that has the keys of both."""
    joined: Row = {PRODUCT: one[PRODUCT] + other[PRODUCT]}
    for term in terms:
        total = one[term] + other[term]
        for size in range(1, len(term)):
            for chosen in combinations(range(len(term)), size):
                rest = tuple(name for place, name in enumerate(term) if place not in chosen)
                total = total + one[tuple(term[place] for place in chosen)] * other[rest]
        joined[term] = total
    return joined


def together(row: Row, terms: list[Term]) -> Row:
    """Join the keys along the first axis of a row's arrays into one row."""
    while (size := len(row[PRODUCT])) > 1:
        half = size // 2
        ends = {term: values[2 * half :] for term, values in row.items()}
        row = beside(
            {term: values[0 : 2 * half : 2] for term, values in row.items()},
            {term: values[1 : 2 * half : 2] for term, values in row.items()},
            terms,
        )
        if size % 2:
            row = {term: np.concatenate([values, ends[term]]) for term, values in row.items()}
    return {term: values[0] for term, values in row.items()}
