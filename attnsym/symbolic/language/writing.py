"""From the kernel's normal form back to the notation."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.trusted.moments import MOMENT
from attnsym.symbolic.trusted.polynomial import Generator, Monomial, Polynomial
from attnsym.symbolic.trusted.terms import EXPONENTIAL, INVERSE_PARTITION, LOG_PARTITION, Claim

_PARAMETERS = {name: symbol for symbol, name in n.PARAMETERS.items()}


def written(value: Polynomial, claim: Claim, names: Mapping[int, Any], below: Mapping[str, Any] | None = None) -> Any:
    """
    Return a normal form as an expression of the notation.

    Parameters
    ----------
    value : Polynomial
        As `normal_form.value` returns it: labels from 0 on are summed over, all different.
    claim : Claim
        For the sizes of indices and the symbols of the user's own.
    names : mapping of int to index
        What the free labels are called.
    below : mapping of str to expression, optional
        What the inverses of denominators are one over.
    """
    return sympy.Add(*(_term(monomial, number, claim, names, below or {}) for monomial, number in value.items()))


def _term(
    monomial: Monomial, number: Fraction | int, claim: Claim, names: Mapping[int, Any], below: Mapping[str, Any]
) -> Any:
    labels: dict[int, str] = {}
    for (name, places), _ in _flat(monomial):
        sorts = claim.sorts.get(name, ())
        labels |= {at: sort for at, sort in zip(places, sorts, strict=False) if isinstance(at, int) and at >= 0}
    free = [index for index in n.INDICES if index not in names.values()]
    if len(labels) > len(free):
        raise ValueError("the closed form needs more indices than the notation has")
    called = dict(names) | dict(zip(labels, free, strict=False))
    exact = sympy.Rational(Fraction(number).numerator, Fraction(number).denominator)
    body = sympy.Mul(exact, *(_factor(own, called, claim, below) ** power for own, power in monomial))
    bound = [called[label] for label in labels]
    others = [index for label, index in names.items() if claim.free[label] in labels.values()]
    for position, index in enumerate(bound):
        body = sympy.Mul(body, *(1 - n.delta(index, other) for other in (*others, *bound[:position])))
    for label, index in zip(labels, bound, strict=True):
        body = sympy.Sum(body, (index, 1, n.SIZES[labels[label]]))
    return body


def _flat(monomial: Monomial) -> list[tuple[Generator, int]]:
    found: list[tuple[Generator, int]] = []
    for (name, places), power in monomial:
        found += _flat(places) if name == MOMENT else [((name, places), power)]  # type: ignore[arg-type]
    return found


def _factor(generator: Generator, called: Mapping[Any, Any], claim: Claim, below: Mapping[str, Any]) -> Any:
    name, places = generator
    if name == MOMENT:
        parts: Any = places
        return n.E(sympy.Mul(*(_factor(own, called, claim, below) ** power for own, power in parts)))
    if name in below:
        return 1 / below[name]
    if name.startswith("⁴√"):
        return sympy.root(n.SIZES[name[2:]], 4)
    if name.startswith("√"):
        return sympy.sqrt(n.SIZES[name[1:]] if name[1:] in n.SIZES else int(name[1:]))
    if name == "π":
        return sympy.pi
    if name.startswith("log "):
        return sympy.log(sympy.Integer(int(name[4:])) if name[4:].isdecimal() else n.n_keys)
    if name.startswith("'"):
        return claim.symbols[name]
    if name in _PARAMETERS:
        return _PARAMETERS[name]
    if name.startswith("m_"):
        return sympy.Symbol(name, real=True)
    if name == EXPONENTIAL:
        return sympy.exp(n.s[called[places[0]]])
    if name in (INVERSE_PARTITION, LOG_PARTITION):
        partition = n.KeySum(sympy.exp(n.s[n.b]), n.b)
        return 1 / partition if name == INVERSE_PARTITION else sympy.log(partition)
    symbol = n.SYMBOLS[name] if name in n.SYMBOLS else n.vector(name)
    indices = tuple(called.get(place, n.a) for place in places)
    return symbol[indices if len(indices) > 1 else indices[0]] if indices else _component(symbol)


def _component(symbol: Any) -> Any:
    """A scalar, or any component of a vector whose components are all alike."""
    return symbol[n.a] if isinstance(symbol, sympy.IndexedBase) else symbol


def lacking(value: Polynomial, names: Mapping[int, Any]) -> tuple[str, ...]:
    """Name the expectations that no fact determined, each with the assumptions that would."""
    found: dict[str, None] = {}
    for monomial in value:
        for (name, places), _ in monomial:
            if name == MOMENT:
                found[_lack(places, names)] = None
    return tuple(found)


def _lack(block: Any, names: Mapping[int, Any]) -> str:
    families = sorted({name for (name, _), _ in block})
    indices = dict(zip(dict.fromkeys(place for (_, places), _ in block for place in places), n.INDICES, strict=False))
    indices |= {place: names[place] for place in indices if place in names}
    factors = [
        f"{name}[{', '.join(str(indices.get(place, n.a)) for place in places)}]" * bool(places)
        + name * (not places)
        + f"**{power}" * (power > 1)
        for (name, places), power in block
    ]
    order = sum(power for _, power in block)
    if len(families) > 1:
        hint = f"independent({', '.join(families)})"
    elif len(block) > 1:
        hint = f"independent_components({families[0]})"
    else:
        small = {1: f"zero_mean({families[0]})", 2: f"unit_variance({families[0]})"}
        hint = small.get(order, f"gaussian({families[0]}), moment({families[0]}, {order}, its value)")
    return f"E({'*'.join(factors)}) ({hint})"
