"""The two questions that people ask: how does this follow, and does this hold?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from attnsym._names import find_name
from attnsym.symbolic.catalogue import DERIVATIONS
from attnsym.symbolic.deciding import Decision, decide
from attnsym.symbolic.derivation.derivation import Derivation
from attnsym.symbolic.language.expressions import read
from attnsym.symbolic.refute.witness import by_size, search
from attnsym.symbolic.trusted.assumptions import Assumption, assumption
from attnsym.symbolic.trusted.families import FAMILIES
from attnsym.symbolic.typeset.moments import named_moments
from attnsym.symbolic.verdict import Truth, Verdict


def derive(key: str) -> Derivation:
    """
    Return the derivation called `key`; underscores are read as hyphens.

    Raises
    ------
    ValueError
        With the closest key, and all that there are.
    """
    return DERIVATIONS[find_name("derivation", key, DERIVATIONS)]


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
    given = told(assuming)
    lhs, rhs = (read(side, own_vectors(given)) if isinstance(side, str) else side for side in (lhs, rhs))
    decision = decide(lhs, rhs, given)
    for fewer in _weaker(given) if not (decision.holds or decision.disagree) else ():
        weaker = decide(lhs, rhs, fewer)
        if weaker.holds:  # what makes two vectors one can hide a proof that does without it
            decision = weaker
            break
    if decision.holds:
        return Verdict(Truth.TRUE, _proved(decision, given), moments=named_moments(decision.moments))
    if decision.disagree:
        return Verdict(Truth.UNKNOWN, DISAGREE)
    found = search(lhs, rhs, given)
    witness = found.witness or by_size(lhs, rhs, given, found)
    if witness:
        return Verdict(Truth.FALSE, "a case that satisfies the assumptions contradicts it", witness)
    return Verdict(Truth.UNKNOWN, f"neither procedure derives it from the assumptions given; {found.told}")


DISAGREE = "the two procedures disagree, one proves it and the other does not: a fault of the checker, please report it"


def told(assuming: Iterable[str | Assumption]) -> tuple[Assumption, ...]:
    """
    Read assumptions, as text or made by hand.

    Raises
    ------
    ValueError
        Naming what is no assumption.
    """
    if isinstance(assuming, (str, Assumption)):
        assuming = (assuming,)
    if not isinstance(assuming, Iterable):
        raise ValueError(f"assuming must be an assumption or a sequence of them: got {assuming!r}")
    return tuple(assumption(item) for item in assuming)


def own_vectors(given: Iterable[Assumption]) -> set[str]:
    """The vectors of the user's own that assumptions speak of; a claim in text may use them."""
    spoken = ((item, item.arguments[:1] if item.kind in ("moment", "law") else item.arguments) for item in given)
    names = {name for item, names in spoken if item.kind not in ("modulo", "given") for name in names}
    return {name for name in names if name not in FAMILIES}


def _weaker(given: tuple[Assumption, ...]) -> Iterator[tuple[Assumption, ...]]:
    """The assumptions without some of those that identify one thing with another."""
    tying = [item for item in given if item.kind in ("same", "constant", "unit")][:4]
    for count in range(1, len(tying) + 1):
        for dropped in combinations(tying, count):
            yield tuple(item for item in given if item not in dropped)


def _proved(decision: Decision, given: tuple[Assumption, ...]) -> str:
    """What was proved, and with which reading."""
    held = [f", given {name}" for name in sorted(decision.given)]
    small = [f", up to O({'^'.join(item.arguments)})" for item in given if item.kind == "modulo"]
    where = [", wherever no denominator is 0"] * decision.doubtful
    return "both procedures prove it at every size" + "".join(held + small + where)
