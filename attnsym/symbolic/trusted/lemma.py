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

from collections.abc import Callable

from attnsym.symbolic.trusted.terms import (
    INVERSE_PARTITION,
    WEIGHT_SORT,
    Add,
    Component,
    Mean,
    Mul,
    Power,
    Size,
    Sum,
    Term,
)

_SIZED = frozenset({"u", "S"})


def points(term: Term, sort: str, free: int) -> int:
    """How many sizes of this sort decide: the lemma's D + 1 + f."""
    high, low = degrees(term, sort)
    # Clearing 1/Z multiplies by sums over the keys, one for each power of 1/Z.
    cleared = inverse_power(term) if sort == WEIGHT_SORT else 0
    return max(high - low, 0) + cleared + 1 + free


def degrees(term: Term, sort: str) -> tuple[int, int]:
    """Bounds (highest, lowest) on the powers of a size that sums and explicit powers can produce."""
    match term:
        case Size(own, half_power) if own == sort:
            return -(-half_power // 2), half_power // 2
        case Add(terms):
            bounds = [degrees(part, sort) for part in terms]
            return max((high for high, _ in bounds), default=0), min((low for _, low in bounds), default=0)
        case Mul(factors):
            bounds = [degrees(factor, sort) for factor in factors]
            return sum(high for high, _ in bounds), sum(low for _, low in bounds)
        case Power(base, exponent):
            high, low = degrees(base, sort)
            return high * exponent, low * exponent
        case Sum(_, own, body):
            high, low = degrees(body, sort)
            return high + (own == sort), low
        case Mean(body):
            high, low = degrees(body, sort)
            # A known second moment may bring in the size itself (isotropic direction 1/d_k, hypothesis d_k).
            weight = component_degree(body) if sort == "d_k" else 0
            return high + weight, low - weight
        case _:
            return 0, 0


def component_degree(term: Term) -> int:
    """Highest total degree in components whose second moment is a power of d_k, divided by two."""
    return _degree(term, lambda part: isinstance(part, Component) and part.family in _SIZED) // 2


def inverse_power(term: Term) -> int:
    """Highest power of 1/Z in a term."""
    return _degree(term, lambda part: isinstance(part, Component) and part.family == INVERSE_PARTITION)


def _degree(term: Term, counts: Callable[[Term], bool]) -> int:
    match term:
        case Add(terms):
            return max((_degree(part, counts) for part in terms), default=0)
        case Mul(factors):
            return sum(_degree(factor, counts) for factor in factors)
        case Power(base, exponent):
            return exponent * _degree(base, counts)
        case Sum(_, _, body) | Mean(body):
            return _degree(body, counts)
        case _:
            return int(counts(term))


def sorts(term: Term) -> set[str]:
    match term:
        case Size(sort):
            return {sort}
        case Add(parts) | Mul(parts):
            return set().union(*(sorts(part) for part in parts))
        case Power(base, _):
            return sorts(base)
        case Sum(_, sort, body):
            return {sort} | sorts(body)
        case Mean(body):
            return sorts(body) | ({"d_k"} if component_degree(body) else set())
        case _:
            return set()
