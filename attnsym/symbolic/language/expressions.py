"""Claims as text: a closed vocabulary over `read_expression`, so that nothing a user types is evaluated as code."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import sympy

from attnsym._expression import read_expression
from attnsym.symbolic.language import notation as n
from attnsym.symbolic.language.reader import MAX_BITS, MAX_EXPONENT, MAX_ROOT

NAMES: dict[str, Any] = {
    **{name: symbol for name, symbol in n.SYMBOLS.items() if name not in ("excess", "p_t", "cgf_i")},
    **{str(index): index for index in n.INDICES},
    **{str(size): size for size in n.SIZES.values()},
    **{str(symbol): symbol for symbol in (n.c, n.t, n.rho, n.scale, n.epsilon, n.H)},
    **{str(symbol): symbol for symbol in (n.mu_q, n.mu_k, n.sigma_q, n.sigma_k, n.sigma_z)},
}


def _sqrt(argument: Any) -> Any:
    return _power(argument, sympy.Rational(1, 2))


def _exp(argument: Any) -> Any:
    if not argument.has(sympy.Indexed):
        raise ValueError(f"exp is taken of one score s[i] or the difference of two only: got {argument}")
    return sympy.exp(argument)


def _log(argument: Any) -> Any:
    if argument.is_Number and not (argument.is_Rational and argument > 0 and max(argument.p, argument.q) <= MAX_ROOT):
        raise ValueError(f"log is taken of positive numbers up to {MAX_ROOT} only: got {argument}")
    return sympy.log(argument)


FUNCTIONS: dict[str, Any] = {
    "E": n.E,
    "Var": n.Var,
    "Cov": n.Cov,
    "Sum": n.Sum,
    "CentralMoment": n.CentralMoment,
    "Cumulant": n.Cumulant,
    "Dot": n.Dot,
    "Trace": n.Trace,
    "D": n.D,
    "delta": n.delta,
    "moment": n.moment,
    "WeightedMean": n.WeightedMean,
    "WeightedVar": n.WeightedVar,
    "WeightedCov": n.WeightedCov,
    "sqrt": _sqrt,
    "exp": _exp,
    "log": _log,
}


def read(text: str, own: Iterable[str] = ()) -> Any:
    """
    Read an expression of the notation, ``"Var(Sum(q[i]*k[i], i))"``; `own` names vectors of the user's.

    Raises
    ------
    ValueError
        One sentence; nothing of `text` has run, and no power was evaluated that the checker would not accept.
    """
    try:
        names = NAMES | {name: n.vector(name) for name in own}
        expression = read_expression(text, names=names, functions=FUNCTIONS, number=_number, power=_power)
    except (AttributeError, IndexError, NotImplementedError) as error:
        raise ValueError(f"cannot read {text!r} as an expression of the notation: {error}") from None
    if isinstance(expression, sympy.Basic) and expression.has(sympy.zoo, sympy.nan):  # what 1/0 and 0/0 become
        raise ValueError(f"{text!r} divides by zero")
    return expression


def _number(literal: str) -> Any:
    """Read a number from its own characters, so that no digit passes through a float."""
    mantissa, _, exponent = literal.lower().replace("_", "").partition("e")
    if len(exponent) > 5 or abs(int(exponent or 0)) > MAX_BITS // 3:
        raise ValueError(f"numbers may have at most {MAX_BITS} bits: got {literal}")
    value = Fraction(mantissa) * Fraction(10) ** int(exponent or 0)
    return sympy.Rational(value.numerator, value.denominator)


def _power(base: Any, exponent: Any) -> Any:
    if not getattr(exponent, "is_Rational", False) or abs(exponent) > MAX_EXPONENT or exponent.q not in (1, 2, 4):
        raise ValueError(f"exponents must be whole numbers or halves of size at most {MAX_EXPONENT}: got {exponent}")
    if getattr(base, "is_Rational", False):
        bits = max(int(base.p).bit_length(), int(base.q).bit_length())
        if exponent.q == 1 and bits * abs(exponent) > MAX_BITS:
            raise ValueError(
                f"a power of a number must be rational and of at most {MAX_BITS} bits: got {base}**{exponent}"
            )
        if exponent.q == 4 or (exponent.q == 2 and (base < 0 or max(base.p, base.q) > MAX_ROOT)):
            raise ValueError(f"square roots are taken of numbers from 0 to {MAX_ROOT}: got {base}**{exponent}")
    elif exponent.q != 1 and not _of_sizes(base) and not base.has(n.E, n.Var, n.Cov):
        raise ValueError(f"square roots are taken of numbers, sizes and expectations only: got {base}**{exponent}")
    return base**exponent


def _of_sizes(base: Any) -> bool:
    """Whether this is a size or a product of sizes and numbers."""
    return not base.is_Add and base.is_commutative and base.atoms(sympy.Symbol) <= set(n.SIZES.values())
