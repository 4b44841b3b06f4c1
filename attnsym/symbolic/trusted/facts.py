"""What a set of assumptions says, closed under implication, in the form in which the kernel asks for it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from attnsym.symbolic.trusted.assumptions import Assumption, assumption, given_moment
from attnsym.symbolic.trusted.families import COMPONENT, FAMILIES
from attnsym.symbolic.trusted.polynomial import Monomial, NotCovered
from attnsym.symbolic.trusted.terms import EXPONENTIAL, WEIGHT_SORT

# Facts that give a name to what all components of a vector share; the name belongs to the vector it was said of.
_NAMING = ("mean_variance", "identical", "fourth_moment")


class Facts:
    """
    Facts about representatives: vectors that are the same are one vector, under the name of the first of them.

    Only implications that hold for every law are drawn: independent pairs have independent components, and normal
    pairs normal components. A vector independent of itself is no longer random.
    """

    def __init__(self, assumptions: Iterable[Assumption] = ()) -> None:
        given = {assumption(item) for item in assumptions}
        self._root = _classes(item.arguments for item in given if item.kind == "same")
        for item in tuple(given):
            if item.kind == "independent_pairs":
                given |= {Assumption("independent_components", (name,)) for name in item.arguments}
            if item.kind == "gaussian_pairs":
                given |= {Assumption("gaussian", (name,)) for name in item.arguments}
            if item.kind == "law":
                given |= {Assumption(kind, item.arguments[:1]) for kind in ("zero_mean", "unit_variance")}
            if item.arguments[1:] == ("normal",):
                given |= {Assumption("gaussian", item.arguments[:1])}
        self.named = {(item.kind, self.root(item.arguments[0])): "" for item in given if item.kind in _NAMING}
        for item in sorted(given, reverse=True):
            if item.kind in _NAMING:
                self.named[item.kind, self.root(item.arguments[0])] = item.arguments[0]
        self._by_kind: dict[str, set[tuple[str, ...]]] = {}
        for item in given:
            if item.kind not in ("modulo", "moment", "law"):
                self._by_kind.setdefault(item.kind, set()).add(tuple(map(self.root, item.arguments)))
        self.constant = {a for (a,) in self._by_kind.get("constant", ())}
        self.groups = [frozenset(names) for names in self._of("independent") if len(set(names)) > 1]
        self.apart = [(names[0], frozenset(names)) for names in self._of("independent_of")]
        self.pairs = [frozenset(names) for names in self._of("independent_pairs")]
        self.aligned = self._of("aligned")
        self.orders: dict[str, int] = {}
        for name, power in (item.arguments for item in given if item.kind == "modulo"):
            self.orders[name] = min(int(power), self.orders.get(name, int(power)))
        self.declared = frozenset(given)
        self.laws: dict[str, str] = {}
        for vector, law in sorted(item.arguments for item in given if item.kind == "law"):
            if self.laws.setdefault(self.root(vector), law) != law:
                raise ValueError(f"{vector} cannot have two laws: {self.laws[self.root(vector)]} and {law}")
        self.numbers: dict[tuple[str, int], tuple[Fraction, str]] = {}
        for item in sorted(item for item in given if item.kind == "moment"):
            order, number, size = given_moment(item)
            if self.numbers.setdefault((self.root(item.arguments[0]), order), (number, size)) != (number, size):
                raise ValueError(f"a moment cannot have two values: {item} contradicts another")
        self.units = {a for (a,) in self._of("unit")}
        # Independent of itself: every power has the power of the mean as its mean.
        self.fixed = {names[0] for names in self._of("independent_of") if names[0] in names[1:]} | {
            name
            for kind in ("independent", "uncorrelated")
            for names in self._of(kind)
            for name in names
            if names.count(name) > 1
        }

    def _of(self, kind: str) -> tuple[tuple[str, ...], ...]:
        return tuple(sorted(self._by_kind.get(kind, ())))

    def rates(self, family: str, sort: str) -> tuple[Fraction, Fraction]:
        """How many powers of a size one factor of this vector may bring in, and take away, through its moments."""
        family = self.root(family)
        numbers = self.numbers.items()
        down = [Fraction(1, order) for (name, order), (_, size) in numbers if (name, size) == (family, sort)]
        if sort == COMPONENT and (self.says("isotropic", family) or self.spread_evenly(family)):
            down.append(Fraction(1, 2))
        if (family, sort) == (EXPONENTIAL, WEIGHT_SORT) and self.says("exchangeable", "p"):
            down.append(Fraction(1))
        up = Fraction(int(sort == COMPONENT and self.says("induction_hypothesis", family)), 2)
        return up, max(down, default=Fraction(0))

    def spread_evenly(self, family: str) -> bool:
        """Whether the squares of d_k components of one law add up to 1, so that each has the mean 1/d_k."""
        known = FAMILIES.get(family)
        fixed = known is not None and known.sorts == (COMPONENT,)
        return fixed and family in self.units and self.says("identical", family)

    def root(self, family: str) -> str:
        """The vector that stands for this one."""
        return self._root.get(family, family)

    def says(self, kind: str, *names: str) -> bool:
        """Whether `kind` was assumed of these vectors, in this order or (for two) the other."""
        facts = self._by_kind.get(kind, ())
        names = tuple(map(self.root, names))
        return names in facts or names[::-1] in facts

    def declares(self, kind: str, family: str) -> bool:
        """Whether `kind` was said of this very vector, so that a symbol bearing its name means something."""
        return Assumption(kind, (family,)) in self.declared

    def parted(
        self, monomial: Monomial, random: frozenset[str], given: tuple[str, ...] = ()
    ) -> tuple[Monomial, Monomial]:
        """
        Split a monomial into what an expectation acts on and what it leaves alone.

        Raises
        ------
        NotCovered
            If what it acts on is not known to be independent of what it is taken given.
        """
        held = {self.root(name) for name in given}
        inner = tuple(item for item in monomial if item[0][0] in random and item[0][0] not in held)
        outer = tuple(item for item in monomial if item[0][0] not in random or item[0][0] in held)
        moved = {name for (name, _), _ in inner}
        if held and moved and not self._separate(moved, held):
            names = ", ".join(sorted(moved | held))
            raise NotCovered(
                f"the expectation given {', '.join(given)} needs what it acts on independent of it ({names})"
            )
        return inner, outer

    def _separate(self, moved: set[str], held: set[str]) -> bool:
        """Whether these vectors, taken together, are independent of those, taken together."""
        if any(moved | held <= group for group in self.groups):
            return True
        return any(moved | held <= group and ({first} == moved or {first} == held) for first, group in self.apart)

    def representative(self, family: str, indices: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
        """Follow ``same`` and ``constant`` to the component that this one equals."""
        family = self.root(family)
        return family, (() if family in self.constant else indices)


def _classes(pairs: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """Name -> first name of its class, for the classes that the pairs tie together."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.get(name, name) != name:
            name = root[name]
        return name

    for one, two in pairs:
        first, second = sorted((find(one), find(two)), key=_rank)
        root[second] = first
    return {name: find(name) for name in root}


def _rank(name: str) -> tuple[bool, str]:
    return (name != "q", name)
