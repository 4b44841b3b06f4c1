"""What longer contexts do to a needle and to the entropy, at a fixed scale and at scales that grow with the length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from scipy import optimize

from analysis.predict.exact import expected_entropy, expected_key_weight
from analysis.vocabulary.numbers import number, positive, positive_integer

# What multiplies the scores of n keys, relative to those of the first length.
FORMULAS: dict[str, Callable[[int, int], float]] = {
    "fixed": lambda n, first: 1.0,
    "log n": lambda n, first: math.log(n) / math.log(first),
    "√log n": lambda n, first: math.sqrt(math.log(n) / math.log(first)),
    "log² n": lambda n, first: (math.log(n) / math.log(first)) ** 2,
    "YaRN": lambda n, first: (0.1 * math.log(n / first) + 1) ** 2,
}
# The largest factor that is looked at for one that keeps what the first length has, and the first step up to it.
LARGEST_FACTOR = 64.0
STRIDE = 1.1


@dataclass(frozen=True)
class LengthRow:
    """One formula at one length: the factor on the scores, the needle's weight, and the entropy without a needle."""

    formula: str
    n_keys: int
    factor: float
    needle_weight: float
    entropy_fraction: float
    effective_keys: float


def over_lengths(n_keys: Sequence[int], *, sigma: float = 1.0, needle: float = 8.0) -> list[LengthRow]:
    """
    Follow a needle and the entropy over lengths of context, exactly.

    Parameters
    ----------
    n_keys : sequence of int
        Rising, at least 2; the first is where every formula has the factor 1.
    sigma : float, optional
        Deviation of the Gaussian scores at the first length.
    needle : float, optional
        Mean of the needle's score above the others' there.

    Returns
    -------
    list of LengthRow
        By formula: "fixed", "log n" (also SSMax's, and LongRoPE's on q and k together), "√log n" and "log² n" relative
        to the first length, and YaRN's (0.1 log(n/first) + 1)², its temperature standing on q and on k. Then the exact
        answers, "keeps the needle", "keeps entropy / log n" and "keeps effective keys": the smallest factor >= 1 with
        which a row has what the first has. Rows that no factor up to 64 keeps are left out.

    Raises
    ------
    ValueError
        For lengths that do not rise from at least 2, a sigma that is not positive, a needle that is no number.

    Notes
    -----
    A factor f takes σ to fσ and the needle to f·needle: `expected_key_weight` and `expected_entropy` at those.

    Source: the exact expectations; Su (2021) and Nakanishi (2025) for log n; Karakida and Hayase (2026) for the powers
    of log n; Peng et al. (2023), YaRN, for its temperature.
    """
    lengths = [positive_integer("n_keys", n) for n in n_keys]
    if not lengths or lengths[0] < 2 or sorted(set(lengths)) != lengths:
        raise ValueError(f"n_keys must rise from at least 2: got {lengths}")
    sigma, needle = positive("sigma", sigma), number("needle", needle)
    rows = []
    for formula, factor_of in FORMULAS.items():
        rows += [_row(formula, n, factor_of(n, lengths[0]), sigma, needle) for n in lengths]
    kept: dict[str, Callable[[LengthRow], float]] = {
        "keeps the needle": lambda row: row.needle_weight,
        "keeps entropy / log n": lambda row: row.entropy_fraction,
        "keeps effective keys": lambda row: row.effective_keys,
    }
    for formula, wanted in kept.items():
        for n in lengths:
            factor = _keeping(partial(_value, wanted, n, sigma, needle), wanted(rows[0]))
            if factor is not None:
                rows.append(_row(formula, n, factor, sigma, needle))
    return rows


def _row(formula: str, n: int, factor: float, sigma: float, needle: float) -> LengthRow:
    weight = float(expected_key_weight(n, sigma=factor * sigma, needle=factor * needle))
    entropy = float(expected_entropy(n, sigma=factor * sigma))
    return LengthRow(formula, n, factor, weight, entropy / math.log(n), math.exp(entropy))


def _value(wanted: Callable[[LengthRow], float], n: int, sigma: float, needle: float, factor: float) -> float:
    return wanted(_row("", n, factor, sigma, needle))


def _keeping(value: Callable[[float], float], target: float) -> float | None:
    """Return the smallest factor from 1 on that gives the target, walking up in growing steps; None if none does."""
    at, side = 1.0, value(1.0) - target
    if abs(side) <= 4e-16 * abs(target):
        return at
    step = STRIDE
    while at < LARGEST_FACTOR:
        further = min(at * step, LARGEST_FACTOR)
        if (value(further) - target) * side <= 0:
            return float(optimize.brentq(lambda factor: value(factor) - target, at, further, xtol=1e-13, rtol=1e-13))
        at, step = further, step * STRIDE
    return None
