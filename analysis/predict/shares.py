"""Which quantity takes which argument of a prediction: those of `ROW_SHARES` have arguments of their own."""

from __future__ import annotations

from collections.abc import Collection

from analysis.vocabulary.quantities import find_quantity
from analysis.vocabulary.quantity import Quantity
from analysis.vocabulary.row_shares import ROW_SHARES

_OWN_ARGUMENTS = {
    "key_weight": {"key"},
    "row_sum": {"normalizer", "normalizer_bias"},
    "row_sum_variance": {"normalizer", "normalizer_bias"},
}


def check_arguments(name: str, given: Collection[str]) -> None:
    """Refuse what a quantity's expectation does not take, or a missing sink, by the argument's name."""
    for argument in sorted(set().union(*_OWN_ARGUMENTS.values())):
        if argument in given and argument not in _OWN_ARGUMENTS.get(name, set()):
            takers = [key for key, arguments in _OWN_ARGUMENTS.items() if argument in arguments]
            raise ValueError(f"{argument} goes with {' and '.join(takers)}: got it with {name}")
    others = sorted(set(given) - _OWN_ARGUMENTS.get(name, set()))
    if name.startswith("row_sum") and others:
        raise ValueError(f"{name} is predicted for plain scores, without {', '.join(others)}")
    if name == "sink_weight" and "sink" not in given:
        raise ValueError("sink_weight needs a sink: got none")


def find_predictable(name: str) -> Quantity:
    """Return the record of a name: one of `ROW_SHARES`, or one that studies know; ValueError lists the names."""
    return ROW_SHARES.get(name) or find_quantity(name)
