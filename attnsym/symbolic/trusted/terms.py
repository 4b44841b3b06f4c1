"""The kernel's own terms: no SymPy, exact rationals, and indices that are numbers, so that nothing is captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Number:
    """An exact rational."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Parameter:
    """A commuting real constant; `half_power` of a size counts √d_k once and d_k twice."""

    name: str
    power: int = 1


@dataclass(frozen=True, slots=True)
class Size:
    """A size (``"d_k"``, ``"n_keys"``) to the power ``half_power`` / 2."""

    sort: str
    half_power: int = 2


@dataclass(frozen=True, slots=True)
class Component:
    """One entry of a vector, an array or (without indices) a scalar random variable."""

    family: str
    indices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """Kronecker's δ of two indices of one sort."""

    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Add:
    """A sum of terms."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Mul:
    """A product of terms."""

    factors: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Power:
    """A power of a term; negative ones of e^{s_i} only."""

    base: Term
    exponent: int


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of `body` over all values 1..size of the index, which is bound here and nowhere else."""

    index: int
    sort: str
    body: Term


@dataclass(frozen=True, slots=True)
class Mean:
    """The expectation of `body`, given the vectors named."""

    body: Term
    given: tuple[str, ...] = ()


Term: TypeAlias = Number | Parameter | Size | Component | Delta | Add | Mul | Power | Sum | Mean


@dataclass(frozen=True)
class Claim:
    """
    An equation as the kernel sees it.

    Attributes
    ----------
    difference : Term
        Left side minus right side.
    free : mapping of int to str
        The free indices and their sorts; the equation is claimed for every value of them.
    random : frozenset of str
        Families of components that `Mean` acts on; everything else passes through it.
    sorts : mapping of str to tuple of str
        For each family, the sort of each of its indices.
    denominators : mapping of str to Term
        What the parameter called ``1/[n]`` is one over.
    roots : mapping of str to Term
        What the parameter called ``√[n]`` is the root of.
    given : frozenset of str
        What expectations hold fixed although it moves with the query or the keys.
    symbols : mapping of str to object
        The user's own symbols, by the kernel's name of each.
    indices : mapping of object to int
        The user's free indices, and the kernel's number of each.
    """

    difference: Term
    free: Mapping[int, str]
    random: frozenset[str]
    sorts: Mapping[str, tuple[str, ...]]
    denominators: Mapping[str, Term] = field(default_factory=dict)
    roots: Mapping[str, Term] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    symbols: Mapping[str, object] = field(default_factory=dict)
    indices: Mapping[object, int] = field(default_factory=dict)


ZERO = Number(Fraction(0))
ONE = Number(Fraction(1))

# Softmax lives on four generators: s_i, e^{s_i}, 1/Z and log Z, where Z is the sum of all e^{s_i}.
SCORE, EXPONENTIAL, INVERSE_PARTITION, LOG_PARTITION = "s", "exp s", "1/Z", "log Z"
WEIGHT_SORT = "n_keys"


def subtract(left: Term, right: Term) -> Term:
    """Return left - right, uncombined."""
    return Add((left, Mul((Number(Fraction(-1)), right))))


def differentiate(term: Term, family: str, indices: tuple[int, ...]) -> Term:
    """
    Return the partial derivative of `term` by the component `family[indices]`.

    The indices are numbers that no `Sum` inside `term` binds, so that summing and differentiating never meet.
    Expectations are not differentiated.
    """
    match term:
        case Number() | Parameter() | Size() | Delta():
            return ZERO
        case Component(name, own):
            return _differentiate_component(name, own, family, indices)
        case Add(terms):
            return Add(tuple(differentiate(part, family, indices) for part in terms))
        case Mul(factors):
            return Add(
                tuple(
                    Mul((*factors[:n], differentiate(factor, family, indices), *factors[n + 1 :]))
                    for n, factor in enumerate(factors)
                )
            )
        case Power(base, exponent):
            inner = differentiate(base, family, indices)
            return Mul((Number(Fraction(exponent)), Power(base, exponent - 1), inner)) if exponent else ZERO
        case Sum(index, sort, body):
            assert index not in indices
            return Sum(index, sort, differentiate(body, family, indices))
        case Mean():
            raise ValueError("an expectation cannot be differentiated here: write the derivative inside it")


def weight(term: Term) -> int:
    """How many nodes the term has when it is written out, shared parts counted each time they occur."""
    known: dict[int, int] = {}

    def of(node: Term) -> int:
        if id(node) not in known:
            known[id(node)] = 1 + sum(of(part) for part in parts(node))
        return known[id(node)]

    return of(term)


def parts(term: Term) -> tuple[Term, ...]:
    """The terms directly inside a term."""
    match term:
        case Add(inside) | Mul(inside):
            return inside
        case Power(base, _):
            return (base,)
        case Sum(_, _, body) | Mean(body):
            return (body,)
        case _:
            return ()


def denominator_power(term: Term, name: str) -> int:
    """Highest power of the parameter that stands for a denominator."""
    match term:
        case Parameter(own, power):
            return power if own == name else 0
        case Mul(inside):
            return sum(denominator_power(part, name) for part in inside)
        case Power(base, exponent):
            return abs(exponent) * denominator_power(base, name)
        case _:
            return max((denominator_power(part, name) for part in parts(term)), default=0)


def quarter_root(name: str) -> str:
    """The size whose fourth root a parameter is, or ""."""
    return name[2:] if name.startswith("⁴√") else ""


def _differentiate_component(name: str, own: tuple[int, ...], family: str, indices: tuple[int, ...]) -> Term:
    if name == family:
        return Mul(tuple(Delta(a, b) for a, b in zip(own, indices, strict=True)))
    if family != SCORE:
        return ZERO
    weight = Mul((Component(EXPONENTIAL, indices), Component(INVERSE_PARTITION)))
    if name == EXPONENTIAL:
        return Mul((Delta(own[0], indices[0]), Component(EXPONENTIAL, own)))
    if name == INVERSE_PARTITION:
        return Mul((Number(Fraction(-1)), Component(INVERSE_PARTITION), weight))
    return weight if name == LOG_PARTITION else ZERO
