"""Whether the derivation that a claim names derives the claim: its number, in its cells, under their laws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from analysis.confront.cell import Cell
from analysis.confront.evidence import EPS
from analysis.confront.inputs import Inputs
from analysis.confront.relation import Relation, ToLeadingOrder, operations
from analysis.confront.relation_draws import AtMost, Fits

_TERMS = 8.0  # roundings per summed term, as where a relation judges draws that do not vary


@dataclass(frozen=True)
class Support:
    """
    How a claim's number is reached besides being measured.

    Attributes
    ----------
    route : str
        "derived": at every cell a proved equation gives the predicted number, and the cell's law satisfies what the
        proof assumes. "derived in part": a derivation is named, and something is missing. "predicted": by formula or
        quadrature. "measured only".
    missing : tuple of str
        What the derivation leaves out, one sentence each; empty unless "derived in part".
    """

    route: str
    missing: tuple[str, ...] = ()


def support(
    derivation: str | None,
    subject: Callable[[Cell], str | None] | None,
    inputs: Callable[[Cell], Inputs],
    assumptions: Iterable[str],
    relation: Relation,
    predictions: Iterable[tuple[Cell, Any]] | None,
) -> Support:
    """
    Hold a claim's cells against the derivation that it names.

    Parameters
    ----------
    derivation : str or None
        Key of `attnsym.symbolic.DERIVATIONS`.
    subject : callable ``(cell) -> str or None`` or None
        What is measured at a cell, in the notation of `attnsym.symbolic`. The left side of a proved equation must
        occur in it as it stands; its right side is put in its place, and what results must be the predicted number.
    inputs : callable ``(cell) -> Inputs``
        What the cell draws.
    assumptions : iterable of str
        What the claim assumes. What the proof of the equation cites must be among it, and hold for the cell's law.
    relation : Relation
        An equation supports any relation but `AtMost`, an inequality only that, a truncated series only
        `ToLeadingOrder`, and nothing supports `Fits`, whose prediction is no number.
    predictions : iterable of (Cell, number) or None
        What the claim predicts; None where it is measured only.
    """
    if derivation is None or predictions is None:
        return Support("measured only" if predictions is None else "predicted")
    from attnsym.symbolic import derive

    proof, stated = derive(derivation), implied(assumptions)
    if subject is None or isinstance(relation, Fits):
        return Support("derived in part", (_about_something_else(proof),))
    missing: dict[str, list[str]] = {}
    for cell, predicted in predictions:
        gap: str | None = _about_something_else(proof)
        if (text := subject(cell)) is not None:
            gap = _gap(proof, _Measured(text, inputs(cell), stated, relation, cell, predicted))
        if gap is not None:
            missing.setdefault(gap, []).append(str(cell))
    sentences = tuple(f"{gap} ({_where(cells)})" for gap, cells in missing.items())
    return Support("derived in part" if sentences else "derived", sentences)


def implied(assumptions: Iterable[str]) -> frozenset[str]:
    """
    Return the assumptions that the checker knows among these, with what they say at once; prose is left out.

    What is said of k alone is said of every key of a row, k2 among them.
    """
    from attnsym.symbolic import Assumption, assumption

    given = {assumption(text) for text in assumptions if is_assumption(text)}
    given |= {Assumption(item.kind, ("k2",)) for item in given if item.arguments == ("k",)}
    for item in tuple(given):
        own = item.arguments
        if item.kind == "independent":
            given |= {Assumption("independent", (a, b)) for a in own for b in own if a != b}
            given |= {Assumption("independent_of", own)}
        if item.kind == "independent_components":
            given |= {Assumption("uncorrelated", own)}
    return frozenset(map(str, given))


def is_assumption(text: str) -> bool:
    """Whether the checker reads this text as one of its assumptions."""
    from attnsym.symbolic import assumption

    try:
        assumption(text)
    except ValueError:
        return False
    return True


def in_words(text: str) -> str:
    """Return an assumption as a sentence; prose stays as it is."""
    from attnsym.symbolic import assumption

    return assumption(text).sentence if is_assumption(text) else text


def unmet(assumptions: Iterable[str], inputs: Inputs) -> tuple[str, ...]:
    """Return those of a claim's assumptions that the law of a cell does not satisfy."""
    from attnsym.symbolic import assumption

    stated = [assumption(text) for text in assumptions if is_assumption(text)]
    return tuple(str(item) for item in stated if not inputs.satisfy(item.kind, item.arguments))


@dataclass(frozen=True)
class _Measured:
    """What one cell measures, and what is claimed of it."""

    subject: str
    inputs: Inputs
    stated: frozenset[str]
    relation: Relation
    cell: Cell
    predicted: float


def _gap(proof: Any, measured: _Measured) -> str | None:
    """Return what is missing at one cell, None if nothing is: the reason of the first equation that is about it."""
    reasons = [_reason(chain, measured) for chain in proof.stated]
    if None in reasons:
        return None
    return next(filter(None, reasons), _about_something_else(proof))


def _about_something_else(proof: Any) -> str:
    return f"it proves {proof.statement}, and not the number measured here"


def _reason(chain: Any, measured: _Measured) -> str | None:
    """Return why one proved equation does not give the cell's number; None if it does, "" if it is about others."""
    equation = chain.equation
    value = _value_of(equation, chain.assumptions, measured)
    if value is None:
        return ""
    if (equation.relation == "≤") != isinstance(measured.relation, AtMost):
        return f"it proves {equation}, which is another kind of relation"
    if equation.supposing:
        return f"it proves only: {equation}"
    if equation.remainder is not None and not isinstance(measured.relation, ToLeadingOrder):
        return f"it proves {equation} only up to its remainder"
    for item in chain.assumptions:
        if not measured.inputs.satisfy(item.kind, item.arguments):
            return f"it assumes that {item.sentence}"
        if str(item) not in measured.stated and item.kind != "modulo":
            return f"it assumes {item}, which the claim does not state"
    bound = _TERMS * operations(measured.cell) * EPS * max(1.0, abs(value))
    if not abs(value - measured.predicted) <= bound:
        return "its right side is not the predicted number"
    return None


def _value_of(equation: Any, assumed: Iterable[Any], measured: _Measured) -> float | None:
    """Return the number that results where the equation's right side replaces its left side; None if none does."""
    from sympy import Float, cancel, sympify

    inputs, cell = measured.inputs, measured.cell
    expression = _read(measured.subject)
    replaced = expression.xreplace({equation.lhs: equation.rhs})
    if replaced == expression:
        return None
    parameters: dict[str, Any] = inputs.parameters({item.kind: item.arguments for item in assumed})
    parameters |= {name: value for name, value in cell.settings if name in ("d_k", "n_keys")}
    value = replaced.xreplace({trace: Float(_trace(inputs, cell)) for trace in _traces(replaced)})
    value = value.xreplace({s: sympify(parameters[str(s)]) for s in value.free_symbols if str(s) in parameters})
    if not value.is_number:
        value = cancel(value)
    return float(value) if value.is_number and value.is_real else None


@lru_cache(maxsize=512)
def _read(subject: str) -> Any:
    from attnsym.symbolic.language.expressions import read

    return read(subject)


def _traces(expression: Any) -> Iterator[Any]:
    from attnsym.symbolic import C_k, C_q, Trace

    yield from (node for node in expression.atoms(Trace) if set(node.args) == {C_q, C_k})


def _trace(inputs: Inputs, cell: Cell) -> float:
    """Return Σᵢⱼ E[qᵢqⱼ]E[kᵢkⱼ] from the matrices themselves."""
    import numpy as np

    index = np.arange(int(cell.d_k))
    lags = np.abs(index[:, None] - index)
    matrices = [
        (c.std**2 * c.law.variance) * np.power(float(c.correlation), lags) + (c.mean + c.std * c.law.mean) ** 2
        for c in (inputs.query, inputs.key)
    ]
    return float(np.sum(matrices[0] * matrices[1]))


def _where(cells: list[str]) -> str:
    return cells[0] if len(cells) == 1 else f"{cells[0]} and {len(cells) - 1} more cells"
