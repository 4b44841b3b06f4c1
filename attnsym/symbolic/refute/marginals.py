"""Laws of one component on a few rational values."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import isqrt
from typing import Any, TypeAlias

from attnsym.symbolic.refute.variables import CONSTANT, SIGNS, Poly, variable

# Values with their probabilities; a value may be a variable of a law that is no list.
Marginal: TypeAlias = tuple[tuple[Any, Fraction], ...]


def _marginal(**weights: str) -> Marginal:
    """Read values and probabilities: ``_marginal(v1="-1 1/2", ...)``."""
    pairs = (text.split() for text in weights.values())
    return tuple((Fraction(value), Fraction(weight)) for value, weight in pairs)


SIGN: Marginal = SIGNS
MEAN_ONE = _marginal(a="0 1/2", b="2 1/2")
WIDE = _marginal(a="2 1/2", b="-2 1/2")
SKEW = _marginal(a="2 1/5", b="-1/2 4/5")
PEAKED = _marginal(a="2 1/8", b="-2 1/8", c="0 3/4")
LENGTH = _marginal(a="1/5 1/2", b="7/5 1/2")
AGREE = _marginal(a="1 3/4", b="-1 1/4")


def _as_marginal(value: Poly) -> Marginal:
    return ((value, Fraction(1)),)


def source(marginal: Marginal) -> Poly:
    """One variable with this marginal law."""
    return marginal[0][0] if isinstance(marginal[0][0], Poly) else variable(marginal)


NORMAL, UNIFORM, LAPLACE, EXPONENTIAL = (
    _as_marginal(variable(law)) for law in ("normal", "uniform", "laplace", "exponential")
)
NORMAL_MEAN_ONE = _as_marginal(variable("normal") + 1)
NORMAL_WIDE = _as_marginal(2 * variable("normal"))


def normal(mean: Fraction, variance: Fraction) -> Marginal | None:
    """A normal law; the deviation need not be rational, since every number is the sum of four squares."""
    whole, bottom = variance.numerator * variance.denominator, variance.denominator
    if not 0 < whole <= 10_000:
        return None
    parts = next(four for four in _four_squares(whole))
    deviations = [Fraction(part, bottom) for part in parts if part]
    value = Poly({(): mean})
    for number, deviation in enumerate(deviations):
        value = value + deviation * variable("normal").renamed(number)
    return _as_marginal(value)


def _four_squares(whole: int) -> Iterator[tuple[int, int, int, int]]:
    for a in range(isqrt(whole), -1, -1):
        for b in range(min(a, isqrt(whole - a * a)), -1, -1):
            left = whole - a * a - b * b
            for c in range(min(b, isqrt(left)), -1, -1):
                d = isqrt(left - c * c)
                if a * a + b * b + c * c + d * d == whole:
                    yield a, b, c, d


WORDS = {
    SIGN: "random signs ±1",
    MEAN_ONE: "0 or 2 with mean 1",
    WIDE: "±2",
    SKEW: "2 with probability 1/5 and −1/2 otherwise",
    PEAKED: "±2 with probability 1/8 each and 0 otherwise",
    NORMAL: "standard normal",
    NORMAL_MEAN_ONE: "normal with mean 1 and variance 1",
    NORMAL_WIDE: "normal with mean 0 and variance 4",
    UNIFORM: "uniform with mean 0 and variance 1",
    LAPLACE: "Laplace with mean 0 and variance 1",
    EXPONENTIAL: "exponential, moved to mean 0 (variance 1)",
}
LAWS = {"sign": SIGN, "normal": NORMAL, "uniform": UNIFORM, "laplace": LAPLACE, "exponential": EXPONENTIAL}
# What a component may be when nothing more is known of it, and when it is normal: the first is the plainest.
ANY = (SIGN, MEAN_ONE, WIDE, SKEW, PEAKED)
NORMALS = (NORMAL, NORMAL_MEAN_ONE, NORMAL_WIDE)


def words(marginal: Marginal) -> str:
    """A marginal law in words."""
    if marginal in WORDS:
        return WORDS[marginal]
    if isinstance(marginal[0][0], Poly):
        linear = marginal[0][0].linear() or {}
        variance = sum((value**2 for place, value in linear.items() if place != CONSTANT), Fraction(0))
        return f"normal with mean {linear.get(CONSTANT, 0)} and variance {variance}"
    return " or ".join(f"{value} with probability {weight}" for value, weight in marginal)


def with_moments(mean: Fraction, second: Fraction, fourth: Fraction | None) -> Marginal | None:
    """A law on few values with these moments, by symmetric values ±a, ±b and 0 moved to the mean; None if none fits."""
    if mean:
        spread = second - mean**2
        around = with_moments(Fraction(0), spread, None) if fourth is None and spread > 0 else None
        return around and tuple((value + mean, weight) for value, weight in around)
    root = exact_root(second)
    if fourth is None and root is not None and root > 0:
        return ((root, Fraction(1, 2)), (-root, Fraction(1, 2)))
    fourth = 2 * second**2 if fourth is None else fourth
    if second <= 0 or fourth < second**2:
        return None
    ratio = fourth / second
    low = Fraction(isqrt(int(256 * ratio)), 16)
    high = low + Fraction(1, 16)
    if low**2 == ratio:
        weights = {low: second / ratio}
    else:
        difference = high**2 - low**2
        weights = {high: (fourth - second * low**2) / (high**2 * difference)}
        if low:
            weights[low] = (second * high**2 - fourth) / (low**2 * difference)
        elif weights[high] * high**2 != second:
            return None
    zero = 1 - sum(weights.values())
    if zero < 0 or min(weights.values()) < 0:
        return None
    pairs: list[tuple[Any, Fraction]] = [
        (sign * value, weight / 2) for value, weight in weights.items() if weight for sign in (1, -1)
    ]
    return (*pairs, *[(Fraction(0), Fraction(zero))] * (zero > 0))


def one_sided(second: Fraction) -> Marginal | None:
    """A law of this second moment whose mean is not 0: a whole number, or 0."""
    if second <= 0:
        return None
    value = Fraction(isqrt(int(second)) + (exact_root(second) is None or second.denominator > 1))
    chance = second / value**2
    return ((value, chance), *([(Fraction(0), 1 - chance)] * (chance < 1)))


def exact_root(value: Fraction) -> Fraction | None:
    """The square root where it is rational."""
    if value < 0:
        return None
    above, below = isqrt(value.numerator), isqrt(value.denominator)
    return Fraction(above, below) if above**2 == value.numerator and below**2 == value.denominator else None
