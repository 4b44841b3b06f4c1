"""The grammar gate: from SymPy notation to the kernel's terms, or a refusal that says what is outside the grammar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.language.read_expectations import read_covariance, read_mean, read_variance
from attnsym.symbolic.language.read_powers import read_pow
from attnsym.symbolic.language.read_softmax import read_derivative, read_exp, read_log, read_weighted
from attnsym.symbolic.language.read_terms import (
    read_add,
    read_delta,
    read_dot,
    read_indexed,
    read_mul,
    read_pi,
    read_rational,
    read_sum,
    read_symbol,
    read_trace,
)
from attnsym.symbolic.language.reader import GrammarError, Reader
from attnsym.symbolic.trusted.assumptions import Assumption
from attnsym.symbolic.trusted.terms import (
    Claim,
    Mul,
    Term,
    subtract,
)


def read_claim(
    left: Any, right: Any, others: tuple[tuple[Any, Any], ...] = (), assumptions: Iterable[Assumption] = ()
) -> Claim:
    """
    Translate the claim left = right, given that each ``A - B`` of `others` with its multiplier adds up.

    Both sides are translated before anything is subtracted, so that SymPy cancels nothing first.

    Raises
    ------
    GrammarError
        One sentence: what is outside the grammar.
    """
    reader = Reader(_READERS, assumptions)
    try:
        for side in (left, right, *(part for pair in others for part in pair)):
            reader.settle(side)
        difference = subtract(reader.term(left), reader.term(right))
        for known, multiplier in others:
            difference = subtract(difference, Mul((reader.term(multiplier), reader.term(known))))
        free = reader.free()
    except RecursionError:
        raise GrammarError("the expression is nested too deeply for the checker") from None
    reader.bounded(difference)
    if reader.irrational and not reader.speaks:
        raise GrammarError("an equation of irrational numbers alone says nothing of scores")
    return Claim(
        difference,
        free,
        reader.random(),
        reader.all_sorts(),
        reader.denominators,
        reader.roots,
        frozenset(reader.given),
        {f"'{name}": symbol for name, symbol in reader.names.items()},
        reader.free_indices,
    )


_READERS: dict[type, Callable[[Reader, Any, Mapping[Any, int]], Term]] = {
    sympy.Rational: read_rational,
    type(sympy.pi): read_pi,
    sympy.Symbol: read_symbol,
    sympy.Indexed: read_indexed,
    sympy.KroneckerDelta: read_delta,
    sympy.Add: read_add,
    sympy.Mul: read_mul,
    sympy.Pow: read_pow,
    sympy.Sum: read_sum,
    sympy.exp: read_exp,
    sympy.log: read_log,
    n.E: read_mean,
    n.Var: read_variance,
    n.Cov: read_covariance,
    n.Dot: read_dot,
    n.Trace: read_trace,
    n.D: read_derivative,
    n.WeightedMean: read_weighted,
    n.WeightedVar: read_weighted,
    n.WeightedCov: read_weighted,
}
