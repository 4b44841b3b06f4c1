"""What longer contexts do to a needle and to the entropy, at a fixed scale and at scales that grow with the length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.predict.exact import expected_entropy, expected_key_weight
from analysis.vocabulary.numbers import number, positive, positive_integer

# What multiplies the scores of n keys, relative to those of the first length.
FORMULAS: dict[str, Callable[[int, int], float]] = {
    "fixed": lambda n, first: 1.0,
    "log n": lambda n, first: math.log(n) / math.log(first),
    "√log n": lambda n, first: math.sqrt(math.log(n) / math.log(first)),
    "YaRN": lambda n, first: (0.1 * math.log(n / first) + 1) ** 2,
}


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
        By formula: "fixed", "log n" and "√log n" relative to the first length, and YaRN's (0.1 log(n/first) + 1)².

    Raises
    ------
    ValueError
        For lengths that do not rise from at least 2, a sigma that is not positive, a needle that is no number.

    Notes
    -----
    A factor f takes σ to fσ and the needle to f·needle: `expected_key_weight` and `expected_entropy` at those.

    Source: the exact expectations; YaRN, Peng et al. (2023), for its temperature.
    """
    lengths = [positive_integer("n_keys", n) for n in n_keys]
    if not lengths or lengths[0] < 2 or sorted(set(lengths)) != lengths:
        raise ValueError(f"n_keys must rise from at least 2: got {lengths}")
    sigma, needle = positive("sigma", sigma), number("needle", needle)
    rows = []
    for formula, factor_of in FORMULAS.items():
        for n in lengths:
            factor = factor_of(n, lengths[0])
            weight = float(expected_key_weight(n, sigma=factor * sigma, needle=factor * needle))
            entropy = float(expected_entropy(n, sigma=factor * sigma))
            rows.append(LengthRow(formula, n, factor, weight, entropy / math.log(n), math.exp(entropy)))
    return rows
