"""Reading exponentials, logarithms, derivatives and moments under the weights."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.language.read_powers import is_partition
from attnsym.symbolic.language.reader import MAX_EXPONENT, MAX_ROOT, GrammarError, Reader, shown
from attnsym.symbolic.trusted.families import KEY
from attnsym.symbolic.trusted.terms import (
    EXPONENTIAL,
    INVERSE_PARTITION,
    LOG_PARTITION,
    SCORE,
    Add,
    Component,
    Mul,
    Number,
    Parameter,
    Power,
    Sum,
    Term,
    differentiate,
    subtract,
)


def read_exp(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    powers: dict[Any, int] = {}
    for part in sympy.Add.make_args(node.args[0]):
        number, score = part.as_coeff_Mul()
        if not (isinstance(score, sympy.Indexed) and score.base == n.s and number.is_Integer and abs(number) <= 8):
            raise GrammarError(f"exp is taken of one score s[i] or the difference of two only: got {shown(node)}")
        powers[score] = int(number)
    if len(powers) > 1 and sorted(powers.values()) != [-1, 1]:
        raise GrammarError(f"exp is taken of one score s[i] or the difference of two only: got {shown(node)}")
    reader.speaks = True
    return Mul(
        tuple(
            Power(Component(EXPONENTIAL, (reader.index(score.indices[0], KEY, scope),)), power)
            for score, power in powers.items()
        )
    )


def read_log(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    """The logarithm of a product of what is positive: numbers, sizes, weights, exponentials and their sum."""
    return Add(tuple(read_log_factor(reader, factor, node, scope) for factor in sympy.Mul.make_args(node.args[0])))


def read_log_factor(reader: Reader, factor: Any, node: Any, scope: Mapping[Any, int]) -> Term:
    inside, power = factor.as_base_exp() if not isinstance(factor, sympy.exp) else (factor, sympy.Integer(1))
    if not power.is_Integer or abs(power) > MAX_EXPONENT:
        raise GrammarError(f"log is taken of whole powers only: got {shown(node)}")
    times = Number(Fraction(int(power)))
    if inside == n.n_keys:
        reader.speaks = True
        return Mul((times, Parameter("log n_keys")))
    if isinstance(inside, sympy.Indexed) and inside.base == n.p:
        reader.speaks = True
        number = reader.index(inside.indices[0], KEY, scope)
        return Mul((times, subtract(Component(SCORE, (number,)), Component(LOG_PARTITION))))
    if isinstance(inside, sympy.Integer) and 0 < inside <= MAX_ROOT:
        reader.irrational = True
        primes = sympy.factorint(int(inside)).items()
        return Add(tuple(Mul((times, Number(Fraction(e)), Parameter(f"log {prime}"))) for prime, e in primes))
    if isinstance(inside, (sympy.Sum, sympy.exp)):
        value = reader.read(inside, scope)
        if is_partition(value):
            return Mul((times, Component(LOG_PARTITION)))
        if isinstance(inside, sympy.exp):
            return Mul((times, reader.read(inside.args[0], scope)))
    raise GrammarError(
        "log is taken of products of p[i], n_keys, numbers, exponentials and their sum only: got " + shown(node)
    )


def read_derivative(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    function, variable = node.args
    inside, target = reader.read(function, scope), reader.read(variable, scope)
    if not isinstance(target, Component) or not target.indices or target.family.startswith("C_"):
        raise GrammarError(f"derivatives are taken by one component of a vector or matrix: got {shown(node)}")
    reader.bounded(Mul((inside,) * 8))
    direct = differentiate(inside, target.family, target.indices)
    # A score depends on query and keys through s_l = scale · Σ_r q_r K_lr.
    if target.family == "q":
        number = next(reader.numbers)
        slope = Mul((Parameter("scale"), Component("K", (number, *target.indices))))
        return Add((direct, Sum(number, KEY, Mul((differentiate(inside, SCORE, (number,)), slope)))))
    if target.family == "K":
        key, place = target.indices
        slope = Mul((Parameter("scale"), Component("q", (place,))))
        return Add((direct, Mul((differentiate(inside, SCORE, (key,)), slope))))
    return direct


def read_weighted(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    *functions, index = node.args
    if index not in n.INDICES or index in scope:
        raise GrammarError(f"the index of a weighted mean must be an index of its own: got {shown(node)}")
    number = next(reader.numbers)
    reader.sorts[number] = KEY
    weight = Mul((Component(EXPONENTIAL, (number,)), Component(INVERSE_PARTITION)))
    values = [reader.read(function, {**scope, index: number}) for function in functions]

    def mean(*factors: Term) -> Term:
        return Sum(number, KEY, Mul((weight, *factors)))

    if isinstance(node, n.WeightedMean):
        return mean(*values)
    first, second = values[0], values[-1]
    return subtract(mean(first, second), Mul((mean(first), mean(second))))
