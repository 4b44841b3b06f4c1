"""Which assumptions a statement needs: all minimal sets within a vocabulary, found by the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from attnsym._page import Page
from attnsym.symbolic.deciding import decide
from attnsym.symbolic.derivation.argument import Argument
from attnsym.symbolic.derivation.steps import Chain, Equation
from attnsym.symbolic.language.notation import BY_SYMBOL
from attnsym.symbolic.trusted.assumptions import Assumption

# The vectors of which minimal sets are sought, in the order in which they are printed.
VECTORS = ("q", "k", "k2", "u", "w")


@dataclass(frozen=True, repr=False)
class Needs(Page):
    """
    One statement and what it needs.

    Attributes
    ----------
    equation : Equation
        One of the equations that a derivation proves.
    sets : tuple of tuple of Assumption
        The minimal sets within the vocabulary, smallest first.
    """

    equation: Equation
    sets: tuple[tuple[Assumption, ...], ...]

    def __str__(self) -> str:
        """Return the equation, and under it each set."""
        lines = ["  or " * (number > 0) + ", ".join(map(str, own)) for number, own in enumerate(self.sets)]
        return "\n".join([str(self.equation), *(f"  {line}" for line in lines)])


def weakest(derivation: Argument) -> tuple[tuple[Assumption, ...], ...]:
    """Return the sets for all equations at once; `Derivation.weakest_assumptions` documents it."""
    chains = derivation.stated
    if len({frozenset(_vectors(chain)) for chain in chains}) != 1 or not all(map(_is_searched, chains)):
        raise ValueError(f"weakest assumptions are searched for moments of vectors: got {derivation.key}")
    assumed = dict.fromkeys(item for chain in chains for item in chain.assumptions)
    return _minimal([chain.equation for chain in chains], _vectors(chains[0]), tuple(assumed))


def by_statement(derivation: Argument) -> tuple[Needs, ...]:
    """Return the sets for each equation apart; `Derivation.weakest_by_statement` documents it."""
    searched = [chain for chain in derivation.stated if _is_searched(chain)]
    needs = [
        Needs(chain.equation, _minimal([chain.equation], _vectors(chain), chain.assumptions)) for chain in searched
    ]
    return tuple(own for own in needs if own.sets)


def _is_searched(chain: Chain) -> bool:
    """Whether an equation is about moments of vectors alone, neither cut nor conditional."""
    equation, vectors = chain.equation, set(_vectors(chain))
    names = {BY_SYMBOL[symbol] for symbol in equation.symbols if symbol in BY_SYMBOL}
    exact = equation.relation == "=" and equation.remainder is None and not equation.supposing
    return bool(vectors) and names <= vectors | {"C_q", "C_k"} and exact


def _vectors(chain: Chain) -> tuple[str, ...]:
    """The random vectors that an equation speaks of, by themselves or by the moments that bear their names."""
    spoken = set(map(str, chain.equation.symbols))
    return tuple(name for name in VECTORS if name in spoken or any(f"({name})" in own for own in spoken))


def _minimal(
    equations: list[Equation], vectors: tuple[str, ...], assumed: tuple[Assumption, ...]
) -> tuple[tuple[Assumption, ...], ...]:
    """Return all minimal sets of the vocabulary under which the equations hold."""
    vocabulary = tuple(_vocabulary(vectors, tuple(item for item in assumed if set(item.arguments) <= set(vectors))))
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


def _vocabulary(vectors: tuple[str, ...], assumed: tuple[Assumption, ...]) -> Iterator[Assumption]:
    """
    Yield what may be assumed, strongest first, so that a search that drops in this order ends at the weakest.

    What would fix a parameter of the statement (μ = 0, ρ = 0), and so prove only a special case of it, is left out;
    so is what contradicts that two vectors are one, that all components of one are one number, or that one is a
    direction. Of three vectors only
    joint independence is asked, and what the derivation itself assumes: the ways to have it in part are too many.
    """
    kinds = {item.kind: item.arguments for item in assumed}
    one = kinds.get("same", ())
    alone = [name for name in vectors if name not in one[1:]]
    single = {item.arguments[0] for item in assumed if item.kind == "constant"}
    apart = [name for name in alone if name not in single]
    fixed = {item.arguments[0] for item in assumed if item.kind == "mean_variance"}
    aligned = {frozenset(item.arguments) for item in assumed if item.kind == "aligned"}
    pairs = [pair for pair in combinations(alone, 2) if frozenset(pair) not in aligned]
    directions = {item.arguments[0] for item in assumed if item.kind in ("unit", "isotropic")}
    free = [name for name in alone if name not in fixed]
    listed = [
        *(Assumption("identical", (name,)) for name in apart),
        *(Assumption("independent_pairs", pair) for pair in combinations(apart, 2) if len(alone) == 2),
        *(Assumption("independent_components", (name,)) for name in apart),
        *(Assumption("uncorrelated", (name,)) for name in apart),
        *(Assumption("uncorrelated", pair) for pair in pairs),
        *(Assumption("independent", tuple(alone)) for _ in range(len(alone) > 2 and not aligned)),
        *(Assumption("independent", pair) for pair in pairs if len(alone) == 2),
        *(Assumption("zero_mean", (name,)) for name in free),
        *(Assumption("unit_variance", (name,)) for name in free if name not in directions),
    ]
    yield from listed
    yield from (item for item in assumed if item not in listed)


def _apart(first: str, names: list[str]) -> Assumption:
    return Assumption("independent_of", (first, *(name for name in names if name != first)))


def _implies(strong: Iterable[Assumption], weak: Iterable[Assumption]) -> bool:
    """Whether each assumption of the weak set follows from one of the strong set."""
    strong = tuple(strong)
    return all(any(own == item or item in _weaker(own) for own in strong) for item in weak)


def _weaker(item: Assumption) -> set[Assumption]:
    """What one assumption implies, besides itself."""
    kind, names = item.kind, item.arguments
    if kind == "independent":
        pairs = set(combinations(names, 2))
        joint = {Assumption("independent", pair) for pair in pairs} if len(names) > 2 else set()
        apart = {_apart(first, list(names)) for first in names} if len(names) > 2 else set()
        return joint | apart | {Assumption("uncorrelated", pair) for pair in pairs}
    if kind == "independent_of":
        others = {tuple(sorted((names[0], name), key=VECTORS.index)) for name in names[1:]}
        return {Assumption(weak, pair) for weak in ("independent", "uncorrelated") for pair in others}
    if kind == "independent_components":
        return {Assumption("uncorrelated", names)}
    if kind == "identical":
        return {Assumption("fourth_moment", names)}
    if kind == "independent_pairs":
        each = {Assumption("independent_components", (name,)) for name in names}
        return each | {Assumption("uncorrelated", (name,)) for name in names}
    return set()
