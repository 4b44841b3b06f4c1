"""Laws of one component on a few rational values."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

Marginal: TypeAlias = tuple[tuple[Fraction, Fraction], ...]


def _marginal(**weights: str) -> Marginal:
    """Read values and probabilities: ``_marginal(v1="-1 1/2", ...)``."""
    pairs = (text.split() for text in weights.values())
    return tuple((Fraction(value), Fraction(weight)) for value, weight in pairs)


SIGN = _marginal(a="1 1/2", b="-1 1/2")
MEAN_ONE = _marginal(a="0 1/2", b="2 1/2")
WIDE = _marginal(a="2 1/2", b="-2 1/2")
SKEW = _marginal(a="2 1/5", b="-1/2 4/5")
PEAKED = _marginal(a="2 1/8", b="-2 1/8", c="0 3/4")
# Mean 0, variance 1, third moment 0, fourth moment 3: normal as far as fourth moments can see.
NORMAL_TO_4 = _marginal(a="2 1/12", b="-2 1/12", c="1 1/6", d="-1 1/6", e="0 1/2")
LENGTH = _marginal(a="1/5 1/2", b="7/5 1/2")
AGREE = _marginal(a="1 3/4", b="-1 1/4")

NORMAL_MEAN_ONE = tuple((value + 1, weight) for value, weight in NORMAL_TO_4)
NORMAL_WIDE = tuple((2 * value, weight) for value, weight in NORMAL_TO_4)

WORDS = {
    SIGN: "random signs ±1",
    MEAN_ONE: "0 or 2 with mean 1",
    WIDE: "±2",
    SKEW: "2 with probability 1/5 and −1/2 otherwise",
    PEAKED: "±2 with probability 1/8 each and 0 otherwise",
    NORMAL_TO_4: "a five-point law with normal moments up to the fourth",
    NORMAL_MEAN_ONE: "that law moved to mean 1",
    NORMAL_WIDE: "that law doubled",
}
