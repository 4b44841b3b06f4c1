"""Reading powers: of sizes, of expectations in denominators and under roots."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.language.reader import MAX_EXPONENT, MAX_ROOT, GrammarError, Reader, shown
from attnsym.symbolic.trusted.families import FAMILIES, KEY, RANDOM
from attnsym.symbolic.trusted.terms import (
    EXPONENTIAL,
    INVERSE_PARTITION,
    Component,
    Mean,
    Mul,
    Number,
    Parameter,
    Power,
    Size,
    Sum,
    Term,
    parts,
)

_SIZE_OF = {symbol: sort for sort, symbol in n.SIZES.items()}


def read_pow(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    base, exponent = node.args
    quarters = 4 * exponent
    if not quarters.is_Integer or abs(int(quarters)) > 4 * MAX_EXPONENT:
        raise GrammarError(f"exponents must be whole numbers of size at most {MAX_EXPONENT}: got {shown(node)}")
    if base in _SIZE_OF:
        reader.speaks = True
        if quarters % 2:
            return Parameter(f"⁴√{_SIZE_OF[base]}", int(quarters))
        return Size(_SIZE_OF[base], int(quarters) // 2)
    if not exponent.is_Integer:
        return read_root(reader, node, scope)
    if exponent > 0:
        return Power(reader.read(base, scope), int(exponent))
    return read_quotient(reader, base, -int(exponent), node, scope)


def read_quotient(reader: Reader, base: Any, power: int, node: Any, scope: Mapping[Any, int]) -> Term:
    """1/base^power for a size, a parameter, a weight, the sum of exponentials or an expectation."""
    if isinstance(base, (n.E, n.Var, n.Cov)):
        return Parameter(named(reader, base, reader.denominators, "1/[{}]", scope), power)
    inner = reader.read(base, scope)
    if isinstance(inner, Parameter):
        return Parameter(inner.name, -inner.power * power)
    if is_partition(inner):
        return Power(Component(INVERSE_PARTITION), power)
    if isinstance(base, sympy.Indexed) and base.base == n.p:
        assert isinstance(inner, Mul)
        number = next(reader.numbers)
        reader.sorts[number] = KEY
        partition = Sum(number, KEY, Component(EXPONENTIAL, (number,)))
        return Power(Mul((partition, Power(inner.factors[0], -1))), power)
    raise GrammarError(
        "only sizes, parameters, expectations, weights and the sum of exponentials may stand in a denominator: "
        f"got {shown(node)}"
    )


def read_root(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    """A square root of a number, or of something in which nothing is random: of expectations and sizes."""
    base, exponent = node.args
    if not (2 * exponent).is_Integer:
        raise GrammarError(f"quarter powers are taken of sizes only: got {shown(node)}")
    if base.is_Rational:
        reader.irrational = True
        return root_of_number(reader, base, int(2 * exponent), node)
    if not base.has(n.E, n.Var, n.Cov):
        raise GrammarError(f"square roots are taken of numbers, sizes and expectations only: got {shown(node)}")
    return Parameter(named(reader, base, reader.roots, "√[{}]", scope), int(2 * exponent))


def root_of_number(reader: Reader, base: Any, halves: int, node: Any) -> Term:
    if base < 0 or max(base.p, base.q) > MAX_ROOT:
        raise GrammarError(f"roots are taken of numbers from 0 to {MAX_ROOT}: got {shown(node)}")
    factors: list[Term] = []
    for whole, sign in ((int(base.p), 1), (int(base.q), -1)):
        for prime, power in sympy.factorint(whole).items():
            total = power * halves * sign
            factors.append(Number(Fraction(int(prime)) ** (total // 2)))
            factors += [Parameter(f"√{prime}")] * (total % 2)
    return Mul(tuple(factors))


def named(reader: Reader, node: Any, where: dict[str, Term], pattern: str, scope: Mapping[Any, int]) -> str:
    """Give a name to what the kernel divides by, or takes the root of; it must be one number."""
    if node in reader.below:
        return reader.below[node]
    inner = reader.read(node, {})
    if any(node.has(index) and index in scope for index in n.INDICES):
        raise GrammarError(f"a root or denominator may not depend on an index summed over: got {shown(node)}")
    if is_open(inner) or any(part.startswith(("1/[", "√[")) for part in parameters(inner)):
        raise GrammarError(f"a root or denominator must be one number, made of expectations: got {shown(node)}")
    reader.below[node] = pattern.format(len(reader.below))
    where[reader.below[node]] = inner
    return reader.below[node]


def is_partition(term: Term) -> bool:
    """Whether a term is Z = Σ_l e^{s_l}."""
    match term:
        case Sum(index, sort, body):
            if isinstance(body, Mul) and len(body.factors) == 1:
                body = body.factors[0]
            if isinstance(body, Power) and body.exponent == 1:
                body = body.base
            return sort == KEY and body == Component(EXPONENTIAL, (index,))
    return False


def is_open(term: Term) -> bool:
    """Whether something random stands outside every expectation."""
    if isinstance(term, Mean):
        return False
    own = isinstance(term, Component) and (term.family not in FAMILIES or term.family in RANDOM | {EXPONENTIAL})
    return own or any(map(is_open, parts(term)))


def parameters(term: Term) -> set[str]:
    """The names of the parameters in a term."""
    return {term.name} if isinstance(term, Parameter) else set().union(*map(parameters, parts(term)))
