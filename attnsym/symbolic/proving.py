"""The two questions that people ask: how does this follow, and does this hold?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attnsym.symbolic.catalogue import DERIVATIONS
from attnsym.symbolic.deciding import decide
from attnsym.symbolic.derivation.derivation import Derivation
from attnsym.symbolic.language.expressions import read
from attnsym.symbolic.refute.witness import find_witness
from attnsym.symbolic.trusted.assumptions import Assumption, assumption
from attnsym.symbolic.typeset.moments import named_moments
from attnsym.symbolic.verdict import Truth, Verdict


def derive(key: str) -> Derivation:
    """
    Return the derivation called `key`.

    Raises
    ------
    ValueError
        Listing the keys there are.
    """
    if key not in DERIVATIONS:
        raise ValueError(f"unknown derivation {key!r}: known are {', '.join(DERIVATIONS)}")
    return DERIVATIONS[key]


def prove(lhs: Any, rhs: Any, assuming: Iterable[str | Assumption] = ()) -> Verdict:
    """
    Decide an equality of your own, at every size, under the assumptions given.

    Parameters
    ----------
    lhs, rhs : expression or str
        In the notation of this module: ``Var(Sum(q[i]*k[i], i))``, ``d_k``. A string is read over the same
        vocabulary and never evaluated as code.
    assuming : iterable of str or Assumption
        ``"independent(q, k)"``, ``"zero_mean(q)"``, ...; see `KINDS`.

    Returns
    -------
    Verdict
        TRUE with the moments that must be finite; FALSE with a finite law that satisfies the assumptions and the two
        different values; UNKNOWN when the kernel finds no proof and the search finds no such law.

    Raises
    ------
    GrammarError
        If an expression is outside what the checker can decide. It never guesses.
    """
    if isinstance(assuming, (str, Assumption)):
        assuming = (assuming,)
    lhs, rhs = (read(side) if isinstance(side, str) else side for side in (lhs, rhs))
    given = tuple(assumption(item) for item in assuming)
    decision = decide(lhs, rhs, given)
    if decision.holds:
        return Verdict(Truth.TRUE, "both procedures prove it at every size", moments=named_moments(decision.moments))
    witness = find_witness(lhs, rhs, given, decision.highest())
    if witness:
        return Verdict(Truth.FALSE, "a finite case that satisfies the assumptions contradicts it", witness)
    return Verdict(Truth.UNKNOWN, "it does not follow from the assumptions given, and no finite case contradicts it")
