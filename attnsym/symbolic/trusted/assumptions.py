"""The vocabulary of assumptions: what a step may cite, in words, and what each one implies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import factorial

from attnsym.symbolic.trusted.families import FAMILIES, MOVING, SORTS, family

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
    "moment": (3, 3, "every component of {0} has E[{0}ᵢ^{1}] = {2}"),
    "law": (2, 2, "every component of {0} has the {1} law of mean 0 and variance 1"),
    "unit": (1, 1, "{0} has length 1: Σᵢ {0}ᵢ² = 1"),
    "exchangeable": (1, 1, "{0} is random, and no key is set apart from another"),
    "given": (1, 4, "{all} held fixed: expectations are taken given {all}"),
    "modulo": (2, 2, "powers of {0} from {0}^{1} on are dropped"),
}

KINDS = tuple(_KINDS)
SMALL = ("t", "c", "scale")
NOT_VECTORS = ("modulo", "induction_hypothesis")
DISPLAYED = {"k2": "k′", "u": "û", "w": "ŵ", "X2": "X′", "Y2": "Y′"}
LAWS = ("sign", "uniform", "laplace", "exponential", "normal")
_CALL = re.compile(r"\s*([a-z_]+)\s*\(\s*([\w/-]+(?:\s*,\s*[\w/-]+)*)\s*\)\s*", re.ASCII)
_VALUE = re.compile(rf"(-?\d{{1,40}})(?:/(\d{{1,40}}))?(?:/({'|'.join(SORTS)}))?", re.ASCII)


_WRITTEN = {"moment": ("q", "n", "c"), "law": ("q", "laplace"), "modulo": ("t", "n")}


def kinds_in_words() -> dict[str, str]:
    """Return each kind as it is written, ``zero_mean(q)``, with what it says."""
    words = {}
    for kind, (fewest, _, sentence) in _KINDS.items():
        names = _WRITTEN.get(kind, ("q", "k")[:fewest])
        parts = {"all": ", ".join(names), "others": "k", "uncorrelated": "the components of q are uncorrelated"}
        words[f"{kind}({', '.join(names)})"] = sentence.format(*names, **parts)
    return words


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
        scalar = not _sorts(self.arguments[0])
        if not scalar:
            return sentence
        for words, instead in (("every component of ", ""), ("each ", ""), ("with its", "with"), ("ᵢ", "")):
            sentence = sentence.replace(words, instead)
        return sentence


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
    match = _CALL.fullmatch(text) if len(text) <= 200 and text.count("(") == 1 else None
    if match is None or match[1] not in _KINDS:
        raise ValueError(f"unknown assumption {text!r}: write kind(vectors) with kind one of {', '.join(KINDS)}")
    kind, arguments = match[1], tuple(part.strip() for part in match[2].split(","))
    fewest, most, _ = _KINDS[kind]
    if not fewest <= len(arguments) <= most or (kind != "moment" and len(set(arguments)) < len(arguments)):
        count = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        raise ValueError(f"{kind} takes {count} different vectors: got {text!r}")
    trouble = _trouble(kind, arguments)
    if trouble:
        raise ValueError(f"{kind} {trouble}: got {text!r}")
    return Assumption(kind, arguments)


def _trouble(kind: str, arguments: tuple[str, ...]) -> str:
    """Say what an assumption of this kind needs and these arguments do not give."""
    if kind == "modulo":
        order = arguments[1]
        small = arguments[0] in SMALL and order.isdecimal() and len(order) < 3 and 1 <= int(order) <= 20
        return "" if small else "takes a parameter (t, c or scale) and an order from 1 to 20"
    if kind == "given":
        return "" if set(arguments) <= MOVING else f"speaks of {', '.join(sorted(MOVING))} only"
    own = {
        "isotropic": ("u",),
        "induction_hypothesis": ("S",),
        "same": ("q", "k", "k2"),
        "constant": ("q", "k", "k2"),
        "exchangeable": ("p",),
    }
    if any(name not in own.get(kind, arguments) for name in arguments):
        return f"speaks of {', '.join(own[kind])} only"
    if kind == "exchangeable":
        return ""
    vectors = arguments[:1] if kind in ("moment", "law") else arguments
    for name in vectors:
        known = family(name)
        if known is None or not known.random:
            listed = ", ".join(sorted(key for key, value in FAMILIES.items() if value.random))
            return f"speaks of random vectors ({listed}, or a lower-case name of your own), and {name!r} is none"
    if kind in _PAIRED and len({len(_sorts(name)) for name in vectors}) > 1:
        return "pairs component with component, and these have different indices"
    if kind == "unit" and len(_sorts(arguments[0])) != 1:
        return "speaks of vectors only"
    if kind == "law" and arguments[1] not in LAWS:
        return f"takes one of the laws {', '.join(LAWS)}"
    if kind == "moment" and not (
        arguments[1] in _ORDERS and (parts := _VALUE.fullmatch(arguments[2])) and parts[2] != "0"
    ):
        return "takes a vector, an order from 1 to 16 and a number such as 9/5 or 1/d_model"
    return ""


_PAIRED = ("aligned", "gaussian_pairs", "independent_pairs", "same")
_ORDERS = {str(order) for order in range(1, 17)}


def _sorts(name: str) -> tuple[str, ...]:
    known = family(name)
    return known.sorts if known else ()


def given_moment(item: Assumption) -> tuple[int, Fraction, str]:
    """Read ``moment(q, 4, 9/5)``: the order, the number, and the size it is divided by ("" for none)."""
    parts = _VALUE.fullmatch(item.arguments[2])
    assert parts is not None
    return int(item.arguments[1]), Fraction(int(parts[1]), int(parts[2] or 1)), parts[3] or ""


def law_moment(law: str, order: int) -> Fraction:
    """E[xⁿ] under a law of mean 0 and variance 1, known by name."""
    if law == "exponential":  # Exp(1) − 1: the subfactorials
        return Fraction(sum((-1) ** r * (factorial(order) // factorial(r)) for r in range(order + 1)))
    if order % 2:
        return Fraction(0)
    half = order // 2
    return {
        "sign": Fraction(1),
        "uniform": Fraction(3**half, order + 1),
        "laplace": Fraction(factorial(order), 2**half),
        "normal": Fraction(factorial(order), 2**half * factorial(half)),
    }[law]
