"""Derivations for the page: statement with its conditions, every step, and what breaks when an assumption goes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from attnsym.symbolic import Derivation

VERDICT_CLASS = {"TRUE": "pass", "confirmed": "pass", "FALSE": "fail", "rejected": "fail"}

_OPEN = frozenset({"score-variance"})
# Each withdrawal is a search for a counterexample: these take milliseconds each.
_BREAKABLE = (
    "score-mean",
    "score-variance",
    "score-variance-bienayme",
    "scaled-score-variance",
    "scale-uniqueness",
    "score-moments-general",
    "score-variance-correlated",
    "score-self",
    "cosine-variance",
)


@cache  # the catalogue is constant: a second report costs only its own results
def derivation_views() -> list[dict[str, Any]]:
    """Return every derivation with its verdict, computed now."""
    from attnsym.symbolic import DERIVATIONS

    return [_view(derivation) for derivation in DERIVATIONS.values()]


def _view(derivation: Derivation) -> dict[str, Any]:
    verdict = derivation.check().truth.value
    return {
        "key": derivation.key,
        "title": derivation.title,
        "statements": _statements(derivation),
        "verdict": verdict,
        "css": VERDICT_CLASS.get(verdict, "doubt"),
        "open": derivation.key in _OPEN,
        "body": Markup(derivation.to_mathml()),  # valid XML by its own tests, no user text in it
        "withdrawals": _withdrawals(derivation) if derivation.key in _BREAKABLE else [],
    }


def _statements(derivation: Derivation) -> list[dict[str, Any]]:
    """Return each equation that the derivation proves, with what its own lines assume."""
    assumed = set(derivation.assumptions)
    return [
        {
            "formula": Markup(chain.equation.to_mathml()),
            "conditions": "; ".join(item.sentence for item in chain.assumptions if item in assumed),
        }
        for chain in derivation.stated
    ]


def _withdrawals(derivation: Derivation) -> list[dict[str, Any]]:
    """Withdraw each assumption in turn: the first step that breaks, why, and the counterexample found."""
    views = []
    for number, item in enumerate(derivation.assumptions, 1):
        verdict = derivation.without(str(item)).check()
        views.append(
            {
                "label": f"A{number}",
                "assumption": str(item),
                "sentence": item.sentence,
                "step": None if verdict.step is None else verdict.step + 1,
                "truth": verdict.truth.value,
                "words": " ".join(filter(None, (f"{verdict.reason}.", str(verdict.witness or "")))),
            }
        )
    return views
