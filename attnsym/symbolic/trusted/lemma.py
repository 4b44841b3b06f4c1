"""
How many sizes decide: the bounds of the completeness lemma, read off a term.

Group the bound indices of a closed term by which of them are equal. A product of components that touches s distinct
indices then carries a coefficient that is a polynomial in the size, of degree at most D - s, where D counts nested
sums and powers of the size (products add, sums take the maximum), less the powers in denominators. Expectations send
monomials to monomials in moments and keep the bound. So two terms with f free indices that agree at sizes
1 … D + 1 + f agree at every size. The lemma needs symmetry under renumbering the components; the grammar gate refuses
what has none (literal indices, other limits).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil, floor

from attnsym.symbolic.trusted.facts import Facts
from attnsym.symbolic.trusted.families import SORTS
from attnsym.symbolic.trusted.terms import (
    INVERSE_PARTITION,
    WEIGHT_SORT,
    Add,
    Component,
    Mean,
    Mul,
    Parameter,
    Power,
    Size,
    Sum,
    Term,
    denominator_power,
    quarter_root,
)

Denominators = Mapping[str, Term]


def points(term: Term, sort: str, free: int, facts: Facts, denominators: Denominators) -> int:
    """How many sizes of this sort decide: the lemma's D + 1 + f."""
    high, low = degrees(term, sort, facts)
    # Clearing 1/Z multiplies by sums over the keys, one for each power of 1/Z.
    cleared = inverse_power(term) if sort == WEIGHT_SORT else 0
    for name, below in denominators.items():  # and clearing a denominator by the denominator
        above, under = degrees(below, sort, facts)
        more = inverse_power(below) if sort == WEIGHT_SORT else 0
        cleared += denominator_power(term, name) * (max(above, 0) - min(under, 0) + more)
    return max(high - low, 0) + cleared + 1 + free


def degrees(term: Term, sort: str, facts: Facts) -> tuple[int, int]:
    """Bounds (highest, lowest) on the powers of a size that sums, explicit powers and moments can produce."""
    match term:
        case Size(own, half_power) if own == sort:
            return -(-half_power // 2), half_power // 2
        case Parameter(name, power):
            quarters = Fraction(power, 4) if quarter_root(name) == sort else Fraction(0)
            up, down = (abs(power) * own for own in _hidden(name, sort, facts))
            up, down = (up, down) if power >= 0 else (down, up)
            return ceil(quarters + up), floor(quarters - down)
        case Component(family) if family.startswith("C_"):
            up, down = facts.rates(family[2:], sort)
            return ceil(2 * up), floor(-2 * down)
        case Add(terms):
            bounds = [degrees(part, sort, facts) for part in terms]
            return max((high for high, _ in bounds), default=0), min((low for _, low in bounds), default=0)
        case Mul(factors):
            bounds = [degrees(factor, sort, facts) for factor in factors]
            return sum(high for high, _ in bounds), sum(low for _, low in bounds)
        case Power(base, exponent):
            high, low = degrees(base, sort, facts)
            return (high * exponent, low * exponent) if exponent >= 0 else (low * exponent, high * exponent)
        case Sum(_, own, body):
            high, low = degrees(body, sort, facts)
            return high + (own == sort), low
        case Mean(body):
            high, low = degrees(body, sort, facts)
            # A known moment may bring in the size itself (isotropic direction 1/d_k, hypothesis d_k).
            up = _degree(body, lambda part: _rate(part, sort, facts, 0))
            down = _degree(body, lambda part: _rate(part, sort, facts, 1))
            return high + ceil(up), low - ceil(down)
        case _:
            return 0, 0


def _rate(part: Term, sort: str, facts: Facts, way: int) -> Fraction:
    return facts.rates(part.family, sort)[way] if isinstance(part, Component) else Fraction(0)


def _hidden(name: str, sort: str, facts: Facts) -> tuple[Fraction, Fraction]:
    """How many powers of a size, up and down, a parameter may stand for: m₂(û) is 1/d_k for an isotropic û."""
    factors: list[tuple[int, str]] = []
    if name.startswith(("μ_", "σ_")):
        factors = [(1, name[2:])]
    elif name.startswith("m_"):
        order, family = name[2:-1].split("(")
        factors = [(int(order), family)]
    elif name == "ρ":
        factors = [(1, family) for pair in facts.aligned for family in pair]
    rates = [(count * up, count * down) for count, family in factors for up, down in [facts.rates(family, sort)]]
    return sum((up for up, _ in rates), Fraction(0)), sum((down for _, down in rates), Fraction(0))


def inverse_power(term: Term) -> int:
    """Highest power of 1/Z in a term."""
    return int(_degree(term, lambda part: Fraction(isinstance(part, Component) and part.family == INVERSE_PARTITION)))


def _degree(term: Term, weight: Callable[[Term], Fraction]) -> Fraction:
    """Highest total weight of the factors of one product."""
    match term:
        case Add(terms):
            return max((_degree(part, weight) for part in terms), default=Fraction(0))
        case Mul(factors):
            return sum((_degree(factor, weight) for factor in factors), Fraction(0))
        case Power(base, exponent):
            return abs(exponent) * _degree(base, weight)
        case Sum(_, _, body) | Mean(body):
            return _degree(body, weight)
        case _:
            return weight(term)


def sorts(term: Term, facts: Facts) -> set[str]:
    """The sizes on which the value of a term may depend."""
    match term:
        case Size(sort):
            return {sort}
        case Add(parts) | Mul(parts):
            return set().union(*(sorts(part, facts) for part in parts))
        case Power(base, _):
            return sorts(base, facts)
        case Sum(_, sort, body):
            return {sort} | sorts(body, facts)
        case Mean(body):
            return sorts(body, facts)
        case Parameter(name):
            hidden = {sort for sort in SORTS if any(_hidden(name, sort, facts))}
            root = quarter_root(name)
            return hidden | {root} if root else hidden
        case Component(family):
            return {sort for sort in SORTS if any(facts.rates(family.removeprefix("C_"), sort))}
        case _:
            return set()
