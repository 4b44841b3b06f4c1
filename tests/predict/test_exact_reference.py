"""
Exact expectations against reference/exact.json: digits from ball arithmetic, other formulas, two settings agreeing.

The tolerances are the accuracy promised, 1e-13 by sigma and 1e-12 by d_k (1e-10 for the gradient of the query), widened
only where fewer reference digits are known.
"""

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import analysis
from analysis.predict.average import gaussian_attention
from analysis.predict.quadrature import gaussian_softmax

TABLE = json.loads((Path(__file__).parent.parent / "reference" / "exact.json").read_text(encoding="utf-8"))
NAMES = TABLE["names"]
BY_SIGMA, BY_DIMENSION = 1e-13, 1e-12
BEYOND = 10**6


def digits(text):
    return len(text.split("e")[0].replace(".", "").replace("-", "").lstrip("0"))


def known(text):
    """The relative error of a printed reference value: one unit of its last digit."""
    return 10.0 ** (1 - digits(text))


def grouped(rows, width):
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[:1] + row[2:width])].append((row[1], row[width:]))
    return groups.items()


def worst(cells, actual, tolerance):
    """The largest error in units of what is allowed, with the place where it occurs."""
    found = []
    for index, (n_keys, texts) in enumerate(cells):
        for name, text in zip(NAMES, texts, strict=True):
            allowed = max(tolerance(name), 2 * known(text))
            error = abs(getattr(actual, name)[index] / float(text) - 1)
            found.append((error / allowed, name, n_keys))
    return max(found)


def by_sigma(name):
    # ‖J z‖²/σ² enters the gradient of the query alone.
    return 1e-10 if name == "jacobian_radial_squared" else BY_SIGMA


def by_dimension(name):
    return 1e-10 if name == "jacobian_radial_squared" else BY_DIMENSION


@pytest.mark.parametrize(("key", "cells"), grouped(TABLE["by_sigma"], 2), ids=lambda value: str(value)[:8])
def test_by_sigma(key, cells):
    n_keys = np.array([n for n, _ in cells], dtype=float)
    ratio, *where = worst(cells, gaussian_softmax(key[0], n_keys), by_sigma)
    assert ratio < 1, where
    for single, _ in cells[::3]:  # a table shared by many n_keys, or made for one of them
        alone = analysis.expected_entropy(single, sigma=key[0])
        np.testing.assert_allclose(
            alone, gaussian_softmax(key[0], n_keys).entropy[n_keys == single][0], rtol=2e-14, atol=0
        )


def test_max_weight_by_sigma():
    for sigma, n_keys, text in TABLE["max_weight"]:
        actual = analysis.expected_max_weight(n_keys, sigma=sigma)
        np.testing.assert_allclose(actual, float(text), rtol=max(BY_SIGMA, 2 * known(text)), atol=0)


@pytest.mark.parametrize(("key", "cells"), grouped(TABLE["by_dimension"], 3), ids=lambda value: str(value)[:16])
def test_by_dimension(key, cells):
    d_k, scale = key
    factor = 1 / math.sqrt(d_k) if scale == "sqrt" else 1.0
    for part in ([c for c in cells if c[0] <= BEYOND], [c for c in cells if c[0] > BEYOND]):  # their rules differ
        ratio, *where = worst(part, gaussian_attention(d_k, factor, tuple(n for n, _ in part)), by_dimension)
        assert ratio < 1, where


@pytest.mark.parametrize("d_k", [1, 2, 8])
@pytest.mark.parametrize("n_keys", [1024, 10**6, 10**12])
def test_rare_long_queries_are_not_cut_off(d_k, n_keys):
    """For many keys E Σp² and E Σp³ come from the far tail of ‖q‖: a plain composite rule out to 26 holds all of it."""
    x, w = np.polynomial.legendre.leggauss(30)
    r = np.concatenate([1.3 * i + 0.65 * (x + 1) for i in range(20)])
    weight = np.tile(w, 20) * np.exp((d_k - 1) * np.log(r) - r**2 / 2)
    values = np.array([np.ravel(gaussian_softmax(radius / math.sqrt(d_k), np.array([float(n_keys)]))) for radius in r])
    actual = np.ravel(gaussian_attention(d_k, 1 / math.sqrt(d_k), (n_keys,)))
    np.testing.assert_allclose(actual, weight @ values / weight.sum(), rtol=BY_DIMENSION, atol=0)


def test_the_table_spans_what_is_promised():
    sigmas, keys = ({row[i] for row in TABLE["by_sigma"]} for i in (0, 1))
    assert min(sigmas) <= 1e-3
    assert max(sigmas) >= 200
    assert max(keys) >= BEYOND
    assert {row[0] for row in TABLE["by_dimension"]} >= {1, 4096, BEYOND}
    sharp = [digits(text) >= 15 for row in TABLE["by_sigma"] for name, text in zip(NAMES, row[2:], strict=True)
             if name != "jacobian_radial_squared"]  # fmt: skip
    assert np.mean(sharp) > 0.99
