"""What the page's explorer shows: one draw of many keys, and exact curves, at every width of the slider."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from attnsym._threads import one_blas_thread

WIDTHS = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048, 2896, 4096)
LENGTHS = (2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
FIRST_WIDTH, FIRST_LENGTH = 512, 10
SEED = 0
# Name, words, the factor on kᵀq; what divides by √d_k stands first, since the page starts there.
SCALES: tuple[tuple[str, str, Any], ...] = (
    ("sqrt", "÷ √d_k", lambda d_k: 1 / math.sqrt(d_k)),
    ("unscaled", "unscaled", lambda d_k: 1.0),
    ("1/d_k", "÷ d_k", lambda d_k: 1 / d_k),
)


@cache  # constant: a second report costs only its own results
def explorer_data() -> dict[str, Any]:
    """
    Return what the explorer's script reads, as plain lists and numbers.

    Returns
    -------
    dict
        ``widths``, ``lengths``; ``scores``, shape (widths, keys): kᵀq of one query with components ~ N(0, 1) and its
        keys, each width the first d_k components of the same vectors; ``scales``: for each its name, words, factors
        (widths,) and the exact curves ``entropy``, ``weight`` and ``trace``, each of shape (lengths, widths).
    """
    from analysis.predict.curves import softmax_curves

    rng = np.random.default_rng(SEED)
    query = rng.standard_normal(WIDTHS[-1])
    products = rng.standard_normal((LENGTHS[-1], WIDTHS[-1])) * query
    scores = np.cumsum(products, axis=1)[:, np.array(WIDTHS) - 1].T
    scales = []
    for name, words, factor in SCALES:
        with one_blas_thread():  # the products are small: a second thread would only wait
            curves = softmax_curves(WIDTHS, LENGTHS, factor)
        scales.append(
            {
                "name": name,
                "words": words,
                "factors": [factor(width) for width in WIDTHS],
                "entropy": _rounded(curves.entropy),
                "weight": _rounded(curves.largest_weight),
                "trace": _rounded(curves.jacobian_trace),
            }
        )
    return {
        "widths": list(WIDTHS),
        "lengths": list(LENGTHS),
        "first": {"width": WIDTHS.index(FIRST_WIDTH), "length": LENGTHS.index(FIRST_LENGTH)},
        "scores": _rounded(scores),
        "scales": scales,
    }


def explorer_table() -> tuple[list[str], list[list[str]]]:
    """Return the explorer's curves at ten keys and a few widths, for a reader without script."""
    data = explorer_data()
    at = LENGTHS.index(FIRST_LENGTH)
    head = ["d_k", *(f"{what}, {scale['words']}" for scale in data["scales"][:2] for what in _WORDS.values())]
    rows = []
    for i, width in enumerate(WIDTHS):
        if math.log2(width) % 3 == 0:
            cells = [f"{scale[key][at][i]:.3f}" for scale in data["scales"][:2] for key in _WORDS]
            rows.append([str(width), *cells])
    return head, rows


_WORDS = {"entropy": "entropy (nats)", "weight": "largest weight", "trace": "tr J"}


def _rounded(values: Any) -> list[list[float]]:
    """Five digits are finer than a line on the page, and a fifth of the bytes."""
    return [[float(f"{value:.5g}") for value in row] for row in values]
