"""Which assumptions a statement about scores needs: all minimal sets within a vocabulary, found by the kernel."""

from __future__ import annotations

from collections.abc import Iterable

from sympy import IndexedBase, Symbol

from attnsym.symbolic.deciding import decide
from attnsym.symbolic.derivation.argument import Argument
from attnsym.symbolic.derivation.steps import Equation
from attnsym.symbolic.language.notation import BY_SYMBOL
from attnsym.symbolic.trusted.assumptions import Assumption, assumption

# Strongest first: a search that drops in this order ends at the weakest of two that would both do.
VOCABULARY = tuple(
    assumption(text)
    for text in (
        "identical(q)",
        "identical(k)",
        "independent_pairs(q, k)",
        "independent_components(q)",
        "independent_components(k)",
        "uncorrelated(q)",
        "uncorrelated(k)",
        "uncorrelated(q, k)",
        "independent(q, k)",
        "zero_mean(q)",
        "zero_mean(k)",
        "unit_variance(q)",
        "unit_variance(k)",
    )
)


def weakest(derivation: Argument) -> tuple[tuple[Assumption, ...], ...]:
    """Return the minimal sets; `Derivation.weakest_assumptions` documents it."""
    equations = derivation.statement.equations
    apart = {"same", "constant"} & {item.kind for item in derivation.assumptions}
    if apart or not all(_is_score_moment(equation) for equation in equations):
        raise ValueError(f"weakest assumptions are searched for moments of one score kᵀq: got {derivation.key}")
    vocabulary = _vocabulary(tuple(item for item in derivation.assumptions if set(item.arguments) <= {"q", "k"}))
    known: dict[frozenset[Assumption], bool] = {}

    def holds(chosen: frozenset[Assumption]) -> bool:
        if chosen not in known:
            known[chosen] = all(decide(own.lhs, own.rhs, chosen).holds for own in equations)
        return known[chosen]

    minimal: set[frozenset[Assumption]] = set()
    seen: set[frozenset[Assumption]] = set()
    waiting = [frozenset(vocabulary)]
    while waiting:
        allowed = waiting.pop()
        if allowed in seen or not holds(allowed):
            continue
        seen.add(allowed)
        chosen = next((found for found in minimal if found <= allowed), None)
        if chosen is None:
            chosen = allowed
            for item in vocabulary:
                if item in chosen and holds(chosen - {item}):
                    chosen -= {item}
            minimal.add(chosen)
        # Every other minimal set lacks some member of this one.
        waiting += [allowed - {item} for item in chosen]
    kept = [own for own in minimal if not any(other != own and _implies(own, other) for other in minimal)]
    order = {item: position for position, item in enumerate(vocabulary)}
    return tuple(sorted((tuple(sorted(own, key=order.__getitem__)) for own in kept), key=lambda own: (len(own), own)))


def _is_score_moment(equation: Equation) -> bool:
    """Whether an equation speaks of moments of q and k and of nothing else that is random."""
    sides = (equation.lhs, equation.rhs)
    names = {BY_SYMBOL[node] for side in sides for node in side.atoms(IndexedBase, Symbol) if node in BY_SYMBOL}
    shared = any(str(node).startswith("m_") for side in sides for node in side.atoms(Symbol))
    return names <= {"q", "k", "C_q", "C_k"} and ({"q", "k"} <= names or shared)


def _vocabulary(assumed: tuple[Assumption, ...]) -> tuple[Assumption, ...]:
    """Drop what would fix a parameter of the statement (μ = 0, ρ = 0) and so prove only a special case of it."""
    fixed = set()
    for item in assumed:
        if item.kind == "mean_variance":
            fixed |= {Assumption(kind, item.arguments) for kind in ("zero_mean", "unit_variance")}
        if item.kind == "aligned":
            fixed |= {Assumption(kind, item.arguments) for kind in ("independent", "uncorrelated")}
    general = tuple(item for item in VOCABULARY if item not in fixed)
    return (*general, *(item for item in assumed if item not in general))


def _implies(strong: Iterable[Assumption], weak: Iterable[Assumption]) -> bool:
    """Whether each assumption of the weak set follows from one of the strong set."""
    strong = tuple(strong)
    return all(any(own == item or item in _weaker(own) for own in strong) for item in weak)


def _weaker(item: Assumption) -> set[Assumption]:
    """What one assumption implies, besides itself."""
    kind, names = item.kind, item.arguments
    if kind == "independent":
        return {Assumption("uncorrelated", names)} if len(names) == 2 else set()
    if kind == "independent_components":
        return {Assumption("uncorrelated", names)}
    if kind == "identical":
        return {Assumption("fourth_moment", names)}
    if kind == "independent_pairs":
        each = {Assumption("independent_components", (name,)) for name in names}
        return each | {Assumption("uncorrelated", (name,)) for name in names}
    return set()
