"""The grammar gate: from SymPy notation to the kernel's terms, or a refusal that says what is outside the grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.trusted.families import COMPONENT, FAMILIES, KEY
from attnsym.symbolic.trusted.terms import (
    EXPONENTIAL,
    INVERSE_PARTITION,
    LOG_PARTITION,
    SCORE,
    Add,
    Component,
    Delta,
    Mean,
    Mul,
    Number,
    Parameter,
    Power,
    Size,
    Sum,
    Term,
    differentiate,
    subtract,
)

MAX_EXPONENT = 16
MAX_BITS = 2048
SORTS: Mapping[str, tuple[str, ...]] = {name: family.sorts for name, family in FAMILIES.items()} | {EXPONENTIAL: (KEY,)}
_SIZE_OF = {symbol: sort for sort, symbol in n.SIZES.items()}
_MOMENT_NAME = re.compile(r"m_\d+\(\w+\)")
_PREFIXES = ("m_", "μ_", "σ_")  # how the kernel calls the moments of a vector
_RESERVED = (
    {str(symbol) for symbol in (*n.PARAMETERS, *n.INDICES, *_SIZE_OF, n.H, n.log_Z)}
    | set(FAMILIES)
    | set(n.PARAMETERS.values())
)


class GrammarError(ValueError):
    """An expression that the completeness lemma does not cover; the checker refuses it and does not guess."""


@dataclass(frozen=True)
class Claim:
    """An equation as the kernel sees it: left minus right, and the sorts of its free indices."""

    difference: Term
    free: Mapping[int, str]


def read_claim(left: Any, right: Any, others: tuple[tuple[Any, Any], ...] = ()) -> Claim:
    """
    Translate the claim left = right, given that each ``A - B`` of `others` with its multiplier adds up.

    Both sides are translated before anything is subtracted, so that SymPy cancels nothing first.
    """
    reader = _Reader()
    difference = subtract(reader.term(left), reader.term(right))
    for known, multiplier in others:
        difference = subtract(difference, Mul((reader.term(multiplier), reader.term(known))))
    return Claim(difference, reader.free())


class _Reader:
    """One claim's scope: the same free index is the same number on both sides."""

    def __init__(self) -> None:
        self.numbers = count()
        self.sorts: dict[int, str | None] = {}
        self.free_indices: dict[Any, int] = {}
        self.names: dict[str, Any] = {}

    def free(self) -> dict[int, str]:
        return {number: self.sorts[number] or COMPONENT for number in self.free_indices.values()}

    def term(self, expression: Any) -> Term:
        try:
            return self.read(sympy.sympify(expression, strict=True), {})
        except sympy.SympifyError:
            raise GrammarError(f"{expression!r} is no expression of the notation") from None

    def read(self, node: Any, scope: Mapping[Any, int]) -> Term:
        if node in (sympy.zoo, sympy.nan):  # what SymPy makes of 1/0 and 0/0
            raise GrammarError(f"{node} is no number: an expression divides by zero")
        for kind, method in _READERS.items():
            if isinstance(node, kind):
                return method(self, node, scope)
        raise GrammarError(f"{_shown(node)} ({type(node).__name__}) is outside the grammar of the checker")

    def read_rational(self, node: Any, scope: Mapping[Any, int]) -> Term:
        if max(int(node.p).bit_length(), int(node.q).bit_length()) > MAX_BITS:
            raise GrammarError(f"numbers may have at most {MAX_BITS} bits")
        return Number(Fraction(int(node.p), int(node.q)))

    def read_pi(self, node: Any, scope: Mapping[Any, int]) -> Term:
        return Parameter("π")

    def read_symbol(self, node: Any, scope: Mapping[Any, int]) -> Term:
        if node in n.INDICES:
            raise GrammarError(f"the index {node} may stand in brackets and in delta only, not as a number")
        if node in _SIZE_OF:
            return Size(_SIZE_OF[node])
        if node in n.BY_SYMBOL:
            return Component(n.BY_SYMBOL[node])
        if node in n.PARAMETERS:
            return Parameter(n.PARAMETERS[node])
        if node == n.H:
            return self.read(ENTROPY, {})
        if node == n.log_Z:
            return Component(LOG_PARTITION)
        name = str(node)
        if _MOMENT_NAME.fullmatch(name) and node.is_real:
            return Parameter(name)
        return self.read_parameter(node, name)

    def read_parameter(self, node: Any, name: str) -> Term:
        """Accept a symbol of the user's own, if it cannot be mistaken for another."""
        if name in _RESERVED or name.startswith(_PREFIXES) or not name.isidentifier():
            raise GrammarError(f"the symbol {name} is not the notation's own {name}: import it from attnsym.symbolic")
        if not node.is_commutative:
            raise GrammarError(f"the symbol {name} does not commute: the grammar has commuting numbers only")
        if self.names.setdefault(name, node) != node:
            raise GrammarError(f"two different symbols are called {name}")
        return Parameter(name)

    def index(self, node: Any, sort: str | None, scope: Mapping[Any, int]) -> int:
        if node not in n.INDICES:
            raise GrammarError(
                f"an index must be one of {', '.join(map(str, n.INDICES))}: got {_shown(node)} "
                "(a fixed component has no symmetry, and the proof for every size needs it)"
            )
        number = scope.get(node)
        if number is None:
            number = self.free_indices.setdefault(node, -1 - len(self.free_indices))
        known = self.sorts.setdefault(number, sort)
        if known is None:
            self.sorts[number] = sort
        elif sort is not None and known != sort:
            raise GrammarError(f"index {node} runs over {known} and cannot index something that runs over {sort}")
        return number

    def read_indexed(self, node: Any, scope: Mapping[Any, int]) -> Term:
        name = n.BY_SYMBOL.get(node.base)
        if name is None:
            raise GrammarError(f"{node.base} is no vector of the notation: known are {', '.join(sorted(FAMILIES))}")
        sorts = FAMILIES[name].sorts
        if len(node.indices) != len(sorts):
            raise GrammarError(f"{name} takes {len(sorts)} indices: got {_shown(node)}")
        numbers = tuple(self.index(own, sort, scope) for own, sort in zip(node.indices, sorts, strict=True))
        if name == "p":
            return Mul((Component(EXPONENTIAL, numbers), Component(INVERSE_PARTITION)))
        return Component(name, numbers)

    def read_delta(self, node: Any, scope: Mapping[Any, int]) -> Term:
        if len(node.args) != 2:
            raise GrammarError(f"delta takes two indices and no range: got {_shown(node)}")
        first, second = node.args
        left = self.index(first, None, scope)
        right = self.index(second, self.sorts[left], scope)
        self.index(first, self.sorts[right], scope)
        return Delta(left, right)

    def read_add(self, node: Any, scope: Mapping[Any, int]) -> Term:
        return Add(tuple(self.read(part, scope) for part in node.args))

    def read_mul(self, node: Any, scope: Mapping[Any, int]) -> Term:
        return Mul(tuple(self.read(factor, scope) for factor in node.args))

    def read_pow(self, node: Any, scope: Mapping[Any, int]) -> Term:
        base, exponent = node.args
        half = 2 * exponent
        if not half.is_Integer or abs(int(half)) > 2 * MAX_EXPONENT:
            raise GrammarError(f"exponents must be whole numbers of size at most {MAX_EXPONENT}: got {_shown(node)}")
        if base in _SIZE_OF:
            return Size(_SIZE_OF[base], int(half))
        if not exponent.is_Integer:
            raise GrammarError(f"square roots are taken of d_k and n_keys only: got {_shown(node)}")
        inner = self.read(base, scope)
        if exponent > 0:
            return Power(inner, int(exponent))
        if isinstance(inner, Parameter):
            return Parameter(inner.name, inner.power * int(exponent))
        if _is_partition(inner):
            return Power(Component(INVERSE_PARTITION), -int(exponent))
        raise GrammarError(
            f"only sizes, parameters and the sum of exponentials may stand in a denominator: got {_shown(node)}"
        )

    def read_sum(self, node: Any, scope: Mapping[Any, int]) -> Term:
        body, *limits = node.args
        inner: dict[Any, int] = dict(scope)
        bound: list[tuple[Any, int, str]] = []
        for limit in reversed(limits):  # SymPy's last limit is the outermost sum
            index, sort = self.limit(limit, node)
            if index in scope or index in [own for own, _, _ in bound]:
                raise GrammarError(f"index {index} is summed over twice in {_shown(node)}: rename one")
            number = next(self.numbers)
            self.sorts[number] = sort
            inner[index] = number
            bound.append((index, number, sort))
        result = self.read(body, inner)
        for _, number, sort in reversed(bound):
            result = Sum(number, sort, result)
        return result

    def limit(self, limit: Any, node: Any) -> tuple[Any, str]:
        if len(limit) != 3 or limit[0] not in n.INDICES or limit[1] != 1 or limit[2] not in _SIZE_OF:
            raise GrammarError(
                f"a sum must run over an index from 1 to d_k or n_keys: got limits {_shown(limit)} in {_shown(node)}"
            )
        return limit[0], _SIZE_OF[limit[2]]

    def read_exp(self, node: Any, scope: Mapping[Any, int]) -> Term:
        inner = self.read(node.args[0], scope)
        if isinstance(inner, Component) and inner.family == SCORE:
            return Component(EXPONENTIAL, inner.indices)
        raise GrammarError(f"exp is taken of one score s[i] only: got {_shown(node)}")

    def read_log(self, node: Any, scope: Mapping[Any, int]) -> Term:
        (inside,) = node.args
        if inside == n.n_keys:
            return Parameter("log n_keys")
        if isinstance(inside, sympy.Indexed) and inside.base == n.p:
            number = self.index(inside.indices[0], KEY, scope)
            return subtract(Component(SCORE, (number,)), Component(LOG_PARTITION))
        if _is_partition(self.read(inside, scope)):
            return Component(LOG_PARTITION)
        raise GrammarError(f"log is taken of p[i], of n_keys and of the sum of exponentials only: got {_shown(node)}")

    def read_mean(self, node: Any, scope: Mapping[Any, int]) -> Term:
        return Mean(self.read(node.args[0], scope))

    def read_variance(self, node: Any, scope: Mapping[Any, int]) -> Term:
        return _covariance(*(self.read(node.args[0], scope),) * 2)

    def read_covariance(self, node: Any, scope: Mapping[Any, int]) -> Term:
        return _covariance(*(self.read(part, scope) for part in node.args))

    def read_dot(self, node: Any, scope: Mapping[Any, int]) -> Term:
        names = [n.BY_SYMBOL.get(vector) for vector in node.args]
        sorts = {FAMILIES[name].sorts if name else () for name in names}
        if len(sorts) != 1 or len(sort := next(iter(sorts))) != 1:
            raise GrammarError(f"Dot takes two vectors of one length: got {_shown(node)}")
        number = next(self.numbers)
        return Sum(number, sort[0], Mul(tuple(Component(str(name), (number,)) for name in names)))

    def read_trace(self, node: Any, scope: Mapping[Any, int]) -> Term:
        left, right = (n.BY_SYMBOL.get(matrix) for matrix in node.args)
        if left not in ("C_q", "C_k") or right not in ("C_q", "C_k"):
            raise GrammarError(f"Trace takes the matrices C_q and C_k: got {_shown(node)}")
        first, second = next(self.numbers), next(self.numbers)
        product = Mul((Component(left, (first, second)), Component(right, (second, first))))
        return Sum(first, COMPONENT, Sum(second, COMPONENT, product))

    def read_derivative(self, node: Any, scope: Mapping[Any, int]) -> Term:
        function, variable = node.args
        inside, target = self.read(function, scope), self.read(variable, scope)
        if not isinstance(target, Component) or target.family not in (SCORE, "q", "x"):
            raise GrammarError(f"derivatives are taken by one component of s, q or x: got {_shown(node)}")
        direct = differentiate(inside, target.family, target.indices)
        if target.family != "q":
            return direct
        # A score depends on the query through s_l = scale · Σ_r q_r K_lr.
        number = next(self.numbers)
        chain = (differentiate(inside, SCORE, (number,)), Parameter("scale"), Component("K", (number, *target.indices)))
        return Add((direct, Sum(number, KEY, Mul(chain))))

    def read_weighted(self, node: Any, scope: Mapping[Any, int]) -> Term:
        *functions, index = node.args
        if index not in n.INDICES or index in scope:
            raise GrammarError(f"the index of a weighted mean must be an index of its own: got {_shown(node)}")
        number = next(self.numbers)
        self.sorts[number] = KEY
        weight = Mul((Component(EXPONENTIAL, (number,)), Component(INVERSE_PARTITION)))
        values = [self.read(function, {**scope, index: number}) for function in functions]

        def mean(*factors: Term) -> Term:
            return Sum(number, KEY, Mul((weight, *factors)))

        if isinstance(node, n.WeightedMean):
            return mean(*values)
        first, second = values[0], values[-1]
        return subtract(mean(first, second), Mul((mean(first), mean(second))))


ENTROPY = -n.Sum(n.p[n.i] * sympy.log(n.p[n.i]), n.i)


def _covariance(left: Term, right: Term) -> Term:
    return subtract(Mean(Mul((left, right))), Mul((Mean(left), Mean(right))))


def _is_partition(term: Term) -> bool:
    """Whether a term is Z = Σ_l e^{s_l}."""
    match term:
        case Sum(index, sort, Component(family, (own,))):
            return sort == KEY and family == EXPONENTIAL and own == index
    return False


def _shown(node: Any) -> str:
    text = str(node)
    return text if len(text) <= 60 else text[:57] + "..."


_READERS: dict[type, Callable[[_Reader, Any, Mapping[Any, int]], Term]] = {
    sympy.Rational: _Reader.read_rational,
    type(sympy.pi): _Reader.read_pi,
    sympy.Symbol: _Reader.read_symbol,
    sympy.Indexed: _Reader.read_indexed,
    sympy.KroneckerDelta: _Reader.read_delta,
    sympy.Add: _Reader.read_add,
    sympy.Mul: _Reader.read_mul,
    sympy.Pow: _Reader.read_pow,
    sympy.Sum: _Reader.read_sum,
    sympy.exp: _Reader.read_exp,
    sympy.log: _Reader.read_log,
    n.E: _Reader.read_mean,
    n.Var: _Reader.read_variance,
    n.Cov: _Reader.read_covariance,
    n.Dot: _Reader.read_dot,
    n.Trace: _Reader.read_trace,
    n.D: _Reader.read_derivative,
    n.WeightedMean: _Reader.read_weighted,
    n.WeightedVar: _Reader.read_weighted,
    n.WeightedCov: _Reader.read_weighted,
}
