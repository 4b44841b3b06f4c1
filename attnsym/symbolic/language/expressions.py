"""Claims as text: a closed vocabulary over `read_expression`, so that nothing a user types is evaluated as code."""

from __future__ import annotations

from typing import Any

import sympy

from attnsym._expression import read_expression
from attnsym.symbolic.language import notation as n
from attnsym.symbolic.language.gate import MAX_BITS, MAX_EXPONENT

NAMES: dict[str, Any] = {
    **{name: symbol for name, symbol in n.SYMBOLS.items() if name not in ("excess", "p_t", "cgf_i")},
    **{str(index): index for index in n.INDICES},
    **{str(size): size for size in n.SIZES.values()},
    **{str(symbol): symbol for symbol in (n.c, n.t, n.rho, n.scale, n.epsilon, n.H)},
    **{str(symbol): symbol for symbol in (n.mu_q, n.mu_k, n.sigma_q, n.sigma_k, n.sigma_z)},
}


def _sqrt(argument: Any) -> Any:
    if argument not in n.SIZES.values():
        raise ValueError(f"sqrt is taken of d_k and n_keys only: got {argument}")
    return sympy.sqrt(argument)


def _exp(argument: Any) -> Any:
    if not isinstance(argument, sympy.Indexed):
        raise ValueError(f"exp is taken of one score s[i] only: got {argument}")
    return sympy.exp(argument)


def _log(argument: Any) -> Any:
    if argument != n.n_keys and not isinstance(argument, (sympy.Indexed, sympy.Sum)):
        raise ValueError(f"log is taken of p[i], n_keys and the sum of exponentials only: got {argument}")
    return sympy.log(argument)


FUNCTIONS: dict[str, Any] = {
    "E": n.E,
    "Var": n.Var,
    "Cov": n.Cov,
    "Sum": n.Sum,
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


def read(text: str) -> Any:
    """
    Read an expression of the notation, ``"Var(Sum(q[i]*k[i], i))"``.

    Raises
    ------
    ValueError
        One sentence; nothing of `text` has run, and no power was evaluated that the checker would not accept.
    """
    try:
        expression = read_expression(text, names=NAMES, functions=FUNCTIONS, number=_number, power=_power)
    except (AttributeError, IndexError, NotImplementedError) as error:
        raise ValueError(f"cannot read {text!r} as an expression of the notation: {error}") from None
    if isinstance(expression, sympy.Basic) and expression.has(sympy.zoo, sympy.nan):  # what 1/0 and 0/0 become
        raise ValueError(f"{text!r} divides by zero")
    return expression


def _number(value: int | float) -> Any:
    try:
        return sympy.Integer(value) if isinstance(value, int) else sympy.Rational(repr(value))
    except (TypeError, ValueError):
        raise ValueError(f"numbers must be finite: got {value!r}") from None


def _power(base: Any, exponent: Any) -> Any:
    if not getattr(exponent, "is_Rational", False) or abs(exponent) > MAX_EXPONENT or exponent.q > 2:
        raise ValueError(f"exponents must be whole numbers or halves of size at most {MAX_EXPONENT}: got {exponent}")
    if getattr(base, "is_Rational", False):
        if exponent.q != 1 or max(int(base.p).bit_length(), int(base.q).bit_length()) * abs(exponent) > MAX_BITS:
            raise ValueError(
                f"a power of a number must be rational and of at most {MAX_BITS} bits: got {base}**{exponent}"
            )
    elif exponent.q == 2 and base not in n.SIZES.values():
        raise ValueError(f"square roots are taken of d_k and n_keys only: got {base}**{exponent}")
    return base**exponent
