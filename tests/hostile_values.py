"""What nobody should pass as an argument, for the sweeps over public functions."""

import decimal
import fractions
import functools
import math
import sys

import numpy as np
from scipy import stats

NUMBERS = [
    0, 1, -1, 2, -0.0, 0.5, 1.5, math.nan, math.inf, -math.inf, 5e-324, 1e-320, 1e308, -1e308, 1e30, 2**53 + 1,
    2**60, 2**63 - 1, 2**63, 2**64, 10**400, 10**5000, 1j, np.int8(3), np.uint64(2**64 - 1), np.float32(0.5),
    np.complex64(1), decimal.Decimal("0.5"), fractions.Fraction(1, 2),
]  # fmt: skip
TEXTS = ["", " ", "normal", "mean", "none", "0", "1e400", "\x00", "é", "d_k", "student_tnan", ":memory:", ".", b"x"]
CONTAINERS = [
    [], (), [[]], [None], [1, [2]], {}, {1: 2}, {"a"}, range(3), iter([1]), ("normal", max), ["uniform"],
    np.array(3), np.array([]), np.array([[1, 2], [3, 4]]), np.array("x"),
]  # fmt: skip
CALLABLES = [
    max, len, int, Exception, lambda: None, lambda *a: None, lambda *a: 1j, lambda *a: math.nan, lambda *a: 10**400,
    lambda *a: "x", functools.partial(np.mean, axis=7), stats.norm,
]  # fmt: skip
OTHERS = [
    None, True, False, object(), sys, np.random.default_rng(0), stats.norm(), stats.norm(0, -1), stats.norm(np.nan),
    stats.norm([0, 1]), stats.norm(1j), stats.cauchy(), stats.multivariate_normal(),
]  # fmt: skip
