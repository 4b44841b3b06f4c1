"""The vocabulary of assumptions: what a step may cite, in words, and what each one implies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from attnsym.symbolic.trusted.families import FAMILIES

# kind -> (fewest arguments, most arguments, sentence); {0} and {1} are the vectors named.
_KINDS: dict[str, tuple[int, int, str]] = {
    "independent": (2, 4, "{all} are independent of one another"),
    "independent_of": (2, 4, "{0} is independent of {others}"),
    "independent_components": (1, 1, "the components of {0} are independent of one another"),
    "independent_pairs": (2, 2, "the pairs ({0}ᵢ, {1}ᵢ) are independent of one another"),
    "uncorrelated": (1, 2, "{uncorrelated}"),
    "zero_mean": (1, 1, "every component of {0} has mean 0"),
    "unit_variance": (1, 1, "every component of {0} has variance 1"),
    "mean_variance": (1, 1, "every component of {0} has mean μ_{0} and variance σ_{0}²"),
    "identical": (1, 1, "the components of {0} have one law, with moments mₙ({0})"),
    "fourth_moment": (1, 1, "every component of {0} has the fourth moment m₄({0})"),
    "gaussian": (1, 1, "every component of {0} is normal"),
    "gaussian_pairs": (2, 2, "each pair ({0}ᵢ, {1}ᵢ) is jointly normal"),
    "aligned": (2, 2, "each {0}ᵢ has covariance ρ with its {1}ᵢ"),
    "same": (2, 2, "{1} = {0}"),
    "constant": (1, 1, "all components of {0} are one and the same random number"),
    "second_moments": (1, 1, "E[{0}ᵢ{0}ⱼ] is the matrix C of {0}"),
    "isotropic": (1, 1, "E[{0}ᵢ] = 0 and E[{0}ᵢ{0}ⱼ] = δᵢⱼ/d_k: the direction of {0} prefers no axis"),
    "induction_hypothesis": (1, 1, "E[{0}] = 0 and E[{0}²] = d_k: the claim for d_k components"),
    "modulo": (2, 2, "powers of {0} from {0}^{1} on are dropped"),
}

KINDS = tuple(_KINDS)
NOT_VECTORS = ("modulo", "induction_hypothesis")
DISPLAYED = {"k2": "k′", "u": "û", "w": "ŵ"}
_CALL = re.compile(r"\s*([a-z_]+)\s*\(\s*(\w+(?:\s*,\s*\w+)*)\s*\)\s*", re.ASCII)


@dataclass(frozen=True, order=True)
class Assumption:
    """
    One assumption, as a step cites it.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    arguments : tuple of str
        Names of the vectors (or of the small parameter and its order, for ``modulo``).
    """

    kind: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.arguments)})"

    @property
    def sentence(self) -> str:
        """What it says, in words."""
        names = [DISPLAYED.get(name, name) for name in self.arguments]
        joined = " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
        uncorrelated = (
            f"the components of {names[0]} are uncorrelated with one another"
            if len(names) == 1
            else f"every component of {names[0]} is uncorrelated with every component of {names[-1]}"
        )
        others = names[-1] if len(names) == 2 else f"({', '.join(names[1:])}) taken together"
        sentence = _KINDS[self.kind][2].format(*names, all=joined, others=others, uncorrelated=uncorrelated)
        scalar = self.arguments[0] in ("S", "X", "Y", "z")
        return sentence.replace("every component of ", "") if scalar else sentence


def assumption(text: str | Assumption) -> Assumption:
    """
    Read ``"zero_mean(q)"``.

    Raises
    ------
    ValueError
        Naming the assumption, what arrived and the vocabulary.
    """
    if not isinstance(text, (str, Assumption)):
        raise ValueError(f"unknown assumption {text!r}: write kind(vectors) with kind one of {', '.join(KINDS)}")
    return _read(str(text))


@lru_cache(maxsize=1024)
def _read(text: str) -> Assumption:
    match = _CALL.fullmatch(text) if len(text) <= 200 else None
    if match is None or match[1] not in _KINDS:
        raise ValueError(f"unknown assumption {text!r}: write kind(vectors) with kind one of {', '.join(KINDS)}")
    kind, arguments = match[1], tuple(part.strip() for part in match[2].split(","))
    fewest, most, _ = _KINDS[kind]
    if not fewest <= len(arguments) <= most or len(set(arguments)) < len(arguments):
        count = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        raise ValueError(f"{kind} takes {count} different vectors: got {text!r}")
    if kind == "modulo":
        if arguments[0] not in ("t", "c", "scale") or not arguments[1].isdecimal() or not 1 <= int(arguments[1]) <= 20:
            raise ValueError(f"modulo takes a parameter (t, c or scale) and an order from 1 to 20: got {text!r}")
        return Assumption(kind, arguments)
    own = {"isotropic": ("u",), "induction_hypothesis": ("S",), "same": ("q", "k", "k2"), "constant": ("q", "k", "k2")}
    if any(name not in own.get(kind, arguments) for name in arguments):
        raise ValueError(f"{kind} speaks of {', '.join(own[kind])} only: got {text!r}")
    for name in arguments:
        family = FAMILIES.get(name)
        if family is None or not family.random:
            known = ", ".join(sorted(key for key, value in FAMILIES.items() if value.random))
            raise ValueError(f"{kind} speaks of random vectors ({known}): got {name!r} in {text!r}")
    return Assumption(kind, arguments)


class Facts:
    """
    What a set of assumptions says, closed under implication, in the form in which the kernel asks for it.

    Only implications that hold for every law are drawn: independent pairs have independent components, and
    independent components are uncorrelated.
    """

    def __init__(self, assumptions: Iterable[Assumption] = ()) -> None:
        given = {assumption(item) for item in assumptions}
        for item in tuple(given):
            if item.kind == "independent_pairs":
                given |= {Assumption("independent_components", (name,)) for name in item.arguments}
            if item.kind == "gaussian_pairs":
                given |= {Assumption("gaussian", (name,)) for name in item.arguments}
        same = {item.arguments[1]: item.arguments[0] for item in given if item.kind == "same"}
        given |= {
            Assumption(item.kind, (same[item.arguments[0]],))
            for item in given
            if len(item.arguments) == 1 and item.arguments[0] in same
        }
        self._by_kind: dict[str, set[tuple[str, ...]]] = {}
        for item in given:
            self._by_kind.setdefault(item.kind, set()).add(item.arguments)
        self.same = {b: a for a, b in self._by_kind.get("same", ())}
        self.constant = {a for (a,) in self._by_kind.get("constant", ())}
        self.groups = [frozenset(names) for names in self._by_kind.get("independent", ())]
        self.apart = [(names[0], frozenset(names)) for names in self._by_kind.get("independent_of", ())]
        self.pairs = [frozenset(names) for names in self._by_kind.get("independent_pairs", ())]
        self.aligned = tuple(self._by_kind.get("aligned", ()))
        self.orders = {name: int(order) for name, order in self._by_kind.get("modulo", ())}
        self.known = frozenset(given)

    def says(self, kind: str, *names: str) -> bool:
        """Whether `kind` was assumed of these vectors, in this order or (for two) the other."""
        facts = self._by_kind.get(kind, ())
        return names in facts or names[::-1] in facts

    def representative(self, family: str, indices: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
        """Follow ``same`` and ``constant`` to the component that this one equals."""
        if not (self.same or self.constant):
            return family, indices
        seen = {family}
        while (family := self.same.get(family, family)) not in seen:
            seen.add(family)
        return family, (() if family in self.constant else indices)
