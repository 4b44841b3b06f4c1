"""The grammar gate: from SymPy notation to the kernel's terms, or a refusal that says what is outside the grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import count
from typing import Any

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.trusted.assumptions import Assumption
from attnsym.symbolic.trusted.families import COMPONENT, FAMILIES, KEY, MOVING, RANDOM, family
from attnsym.symbolic.trusted.polynomial import TooLarge
from attnsym.symbolic.trusted.terms import (
    EXPONENTIAL,
    INVERSE_PARTITION,
    LOG_PARTITION,
    SCORE,
    Add,
    Claim,
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
    parts,
    subtract,
    weight,
)

MAX_EXPONENT = 16
MAX_BITS = 2048
MAX_NODES = 20_000  # of the terms, written out
MAX_DEPTH = 60
MAX_ROOT = 10**6
_SIZE_OF = {symbol: sort for sort, symbol in n.SIZES.items()}
_MOMENT_NAME = re.compile(r"m_([1-9]|1[0-6])\((\w+)\)")
_PREFIXES = ("m_", "μ_", "σ_")  # how the kernel calls the moments of a vector
_RESERVED = (
    {str(symbol) for symbol in (*n.PARAMETERS, *n.INDICES, *_SIZE_OF, n.H, n.log_Z)}
    | set(FAMILIES)
    | set(n.PARAMETERS.values())
    | {"π"}
)
# What a symbol of the user's own may say of itself; anything more would make identities that hold for no other number.
_NARROW = ("integer", "rational", "zero", "negative", "nonpositive", "irrational", "imaginary", "infinite")


class GrammarError(ValueError):
    """An expression that the completeness lemma does not cover; the checker refuses it and does not guess."""


def read_claim(
    left: Any, right: Any, others: tuple[tuple[Any, Any], ...] = (), assumptions: Iterable[Assumption] = ()
) -> Claim:
    """
    Translate the claim left = right, given that each ``A - B`` of `others` with its multiplier adds up.

    Both sides are translated before anything is subtracted, so that SymPy cancels nothing first.

    Raises
    ------
    GrammarError
        One sentence: what is outside the grammar.
    """
    reader = _Reader(assumptions)
    try:
        for side in (left, right, *(part for pair in others for part in pair)):
            reader.settle(side)
        difference = subtract(reader.term(left), reader.term(right))
        for known, multiplier in others:
            difference = subtract(difference, Mul((reader.term(multiplier), reader.term(known))))
        free = reader.free()
    except RecursionError:
        raise GrammarError("the expression is nested too deeply for the checker") from None
    reader.bounded(difference)
    if reader.irrational and not reader.speaks:
        raise GrammarError("an equation of irrational numbers alone says nothing of scores")
    return Claim(
        difference,
        free,
        reader.random(),
        reader.all_sorts(),
        reader.denominators,
        reader.roots,
        frozenset(reader.given),
        {f"'{name}": symbol for name, symbol in reader.names.items()},
        reader.free_indices,
    )


class _Reader:
    """One claim's scope: the same free index is the same number on both sides."""

    def __init__(self, assumptions: Iterable[Assumption] = ()) -> None:
        self.numbers = count()
        self.sorts: dict[int, str | None] = {}
        self.free_indices: dict[Any, int] = {}
        self.names: dict[str, Any] = {}
        self.flexible: dict[str, str | None] = {}
        self.used: list[tuple[str, int]] = []  # flexible vectors and the indices they bear
        self.denominators: dict[str, Term] = {}
        self.roots: dict[str, Term] = {}
        self.below: dict[Any, str] = {}
        self.given: set[str] = set()
        self.irrational = self.speaks = False
        self.depth = 0
        told = tuple(assumptions)
        self.held = {name for item in told if item.kind == "given" for name in item.arguments}
        self.exchangeable = any(item.kind == "exchangeable" for item in told)

    def random(self) -> frozenset[str]:
        """The families that expectations act on."""
        softmax = {SCORE, EXPONENTIAL, INVERSE_PARTITION, LOG_PARTITION} if self.exchangeable else set()
        return RANDOM | softmax | {name for name in self.flexible if name not in FAMILIES}

    def all_sorts(self) -> dict[str, tuple[str, ...]]:
        """For each family, the sizes that its indices run to in this claim."""
        fixed = {name: own.sorts for name, own in FAMILIES.items()} | {EXPONENTIAL: (KEY,)}
        return fixed | {name: (sort or COMPONENT,) for name, sort in self.flexible.items()}

    def free(self) -> dict[int, str]:
        """The free indices with their sizes, after the vectors that run to any size have been told which."""
        for default in (False, True):
            waiting = True
            while waiting:
                waiting = False
                for name, number in self.used:
                    known = self.flexible[name] or self.sorts[number]
                    if known is None and default and not waiting:
                        known = FAMILIES[name].sorts[0] if name in FAMILIES else COMPONENT
                    if known and (self.flexible[name] is None or self.sorts[number] is None):
                        self.flexible[name], waiting = self.flexible[name] or known, True
                        self.sorts[number] = self.sorts[number] or known
                    if known and self.flexible[name] and self.sorts[number] not in (None, self.flexible[name]):
                        raise GrammarError(
                            f"{name} runs over different sizes, {self.flexible[name]} and {self.sorts[number]}"
                        )
        return {number: self.sorts[number] or COMPONENT for number in self.free_indices.values()}

    def settle(self, expression: Any) -> None:
        """Learn from sums in which a flexible vector meets another to which size it runs."""
        for node in expression.atoms(sympy.Sum) if isinstance(expression, sympy.Basic) else ():
            for index, *_ in node.limits:
                rigid, loose = n.index_uses(node.args[0], index)
                if len(rigid) == 1:
                    for name in loose:
                        self.flexible.setdefault(name, next(iter(rigid)))

    def bounded(self, term: Term) -> Term:
        """Refuse what would be too large to walk through."""
        if weight(term) > MAX_NODES:
            raise TooLarge("the expression is too large for the checker: nest fewer operators")
        return term

    def term(self, expression: Any) -> Term:
        try:
            return self.read(sympy.sympify(expression, strict=True), {})
        except (sympy.SympifyError, TypeError, AttributeError):
            raise GrammarError(f"{_shown(expression)} is no expression of the notation") from None

    def read(self, node: Any, scope: Mapping[Any, int]) -> Term:
        if node in (sympy.zoo, sympy.nan):  # what SymPy makes of 1/0 and 0/0
            raise GrammarError(f"{node} is no number: an expression divides by zero")
        for kind, method in _READERS.items():
            if isinstance(node, kind):
                self.depth += 1
                if self.depth > MAX_DEPTH:
                    raise GrammarError(f"the expression is nested more than {MAX_DEPTH} deep")
                try:
                    return self.bounded(method(self, node, scope))
                finally:
                    self.depth -= 1
        raise GrammarError(f"{_shown(node)} ({type(node).__name__}) is outside the grammar of the checker")

    def read_rational(self, node: Any, scope: Mapping[Any, int]) -> Term:
        if max(int(node.p).bit_length(), int(node.q).bit_length()) > MAX_BITS:
            raise GrammarError(f"numbers may have at most {MAX_BITS} bits")
        return Number(Fraction(int(node.p), int(node.q)))

    def read_pi(self, node: Any, scope: Mapping[Any, int]) -> Term:
        return Parameter("π")

    def read_symbol(self, node: Any, scope: Mapping[Any, int]) -> Term:
        self.speaks = True
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
        shared = _MOMENT_NAME.fullmatch(name)
        if shared and node.is_real and (known := family(shared[2])) and known.random:
            return Parameter(name)
        return self.read_parameter(node, name)

    def read_parameter(self, node: Any, name: str) -> Term:
        """Accept a symbol of the user's own, if it cannot be mistaken for another."""
        if name in _RESERVED or name.startswith(_PREFIXES) or not name.isidentifier():
            raise GrammarError(f"the symbol {name} is not the notation's own {name}: import it from attnsym.symbolic")
        if not node.is_commutative:
            raise GrammarError(f"the symbol {name} does not commute: the grammar has commuting numbers only")
        narrow = [word for word in _NARROW if getattr(node, f"is_{word}")]
        if narrow:
            raise GrammarError(f"the symbol {name} is {narrow[0]}: the checker has parameters of any real value only")
        if self.names.setdefault(name, node) != node:
            raise GrammarError(f"two different symbols are called {name}")
        return Parameter(f"'{name}")  # a name that no symbol of the kernel's own can have

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
        self.speaks = True
        name = n.name_of(node.base)
        known = family(name) if name else None
        if name is None or known is None:
            raise GrammarError(f"{node.base} is no vector of the notation: known are {', '.join(sorted(FAMILIES))}")
        if len(node.indices) != len(known.sorts):
            raise GrammarError(f"{name} takes {len(known.sorts)} indices: got {_shown(node)}")
        if known.flexible:
            return Component(name, (self.flexible_index(name, node.indices[0], scope),))
        numbers = tuple(self.index(own, sort, scope) for own, sort in zip(node.indices, known.sorts, strict=True))
        if name == "p":
            return Mul((Component(EXPONENTIAL, numbers), Component(INVERSE_PARTITION)))
        return Component(name, numbers)

    def flexible_index(self, name: str, node: Any, scope: Mapping[Any, int]) -> int:
        """An index of a vector that may run to any size: the first place that says which decides."""
        number = self.index(node, self.flexible.get(name), scope)
        self.flexible[name] = self.flexible.get(name) or self.sorts[number]
        self.used.append((name, number))
        return number

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
        quarters = 4 * exponent
        if not quarters.is_Integer or abs(int(quarters)) > 4 * MAX_EXPONENT:
            raise GrammarError(f"exponents must be whole numbers of size at most {MAX_EXPONENT}: got {_shown(node)}")
        if base in _SIZE_OF:
            self.speaks = True
            if quarters % 2:
                return Parameter(f"⁴√{_SIZE_OF[base]}", int(quarters))
            return Size(_SIZE_OF[base], int(quarters) // 2)
        if not exponent.is_Integer:
            return self.read_root(node, scope)
        if exponent > 0:
            return Power(self.read(base, scope), int(exponent))
        return self.read_quotient(base, -int(exponent), node, scope)

    def read_quotient(self, base: Any, power: int, node: Any, scope: Mapping[Any, int]) -> Term:
        """1/base^power for a size, a parameter, a weight, the sum of exponentials or an expectation."""
        if isinstance(base, (n.E, n.Var, n.Cov)):
            return Parameter(self.named(base, self.denominators, "1/[{}]", scope), power)
        inner = self.read(base, scope)
        if isinstance(inner, Parameter):
            return Parameter(inner.name, -inner.power * power)
        if _is_partition(inner):
            return Power(Component(INVERSE_PARTITION), power)
        if isinstance(base, sympy.Indexed) and base.base == n.p:
            assert isinstance(inner, Mul)
            number = next(self.numbers)
            self.sorts[number] = KEY
            partition = Sum(number, KEY, Component(EXPONENTIAL, (number,)))
            return Power(Mul((partition, Power(inner.factors[0], -1))), power)
        raise GrammarError(
            "only sizes, parameters, expectations, weights and the sum of exponentials may stand in a denominator: "
            f"got {_shown(node)}"
        )

    def read_root(self, node: Any, scope: Mapping[Any, int]) -> Term:
        """A square root of a number, or of something in which nothing is random: of expectations and sizes."""
        base, exponent = node.args
        if not (2 * exponent).is_Integer:
            raise GrammarError(f"quarter powers are taken of sizes only: got {_shown(node)}")
        if base.is_Rational:
            self.irrational = True
            return self.root_of_number(base, int(2 * exponent), node)
        if not base.has(n.E, n.Var, n.Cov):
            raise GrammarError(f"square roots are taken of numbers, sizes and expectations only: got {_shown(node)}")
        return Parameter(self.named(base, self.roots, "√[{}]", scope), int(2 * exponent))

    def root_of_number(self, base: Any, halves: int, node: Any) -> Term:
        if base < 0 or max(base.p, base.q) > MAX_ROOT:
            raise GrammarError(f"roots are taken of numbers from 0 to {MAX_ROOT}: got {_shown(node)}")
        factors: list[Term] = []
        for whole, sign in ((int(base.p), 1), (int(base.q), -1)):
            for prime, power in sympy.factorint(whole).items():
                total = power * halves * sign
                factors.append(Number(Fraction(int(prime)) ** (total // 2)))
                factors += [Parameter(f"√{prime}")] * (total % 2)
        return Mul(tuple(factors))

    def named(self, node: Any, where: dict[str, Term], pattern: str, scope: Mapping[Any, int]) -> str:
        """Give a name to what the kernel divides by, or takes the root of; it must be one number."""
        if node in self.below:
            return self.below[node]
        inner = self.read(node, {})
        if any(node.has(index) and index in scope for index in n.INDICES):
            raise GrammarError(f"a root or denominator may not depend on an index summed over: got {_shown(node)}")
        if _is_open(inner) or any(part.startswith(("1/[", "√[")) for part in parameters(inner)):
            raise GrammarError(f"a root or denominator must be one number, made of expectations: got {_shown(node)}")
        self.below[node] = pattern.format(len(self.below))
        where[self.below[node]] = inner
        return self.below[node]

    def read_sum(self, node: Any, scope: Mapping[Any, int]) -> Term:
        body, *limits = node.args
        inner: dict[Any, int] = dict(scope)
        bound: list[tuple[Any, int, str]] = []
        for limit in reversed(limits):  # SymPy's last limit is the outermost sum
            index, sort = self.limit(limit, node)
            rigid, loose = n.index_uses(node.args[0], index)
            known = {own for name in loose if (own := self.flexible.get(name))}
            if not rigid and len(known) == 1:  # the size written was a default
                (sort,) = known
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
        powers: dict[Any, int] = {}
        for part in sympy.Add.make_args(node.args[0]):
            number, score = part.as_coeff_Mul()
            if not (isinstance(score, sympy.Indexed) and score.base == n.s and number.is_Integer and abs(number) <= 8):
                raise GrammarError(f"exp is taken of one score s[i] or the difference of two only: got {_shown(node)}")
            powers[score] = int(number)
        if len(powers) > 1 and sorted(powers.values()) != [-1, 1]:
            raise GrammarError(f"exp is taken of one score s[i] or the difference of two only: got {_shown(node)}")
        self.speaks = True
        return Mul(
            tuple(
                Power(Component(EXPONENTIAL, (self.index(score.indices[0], KEY, scope),)), power)
                for score, power in powers.items()
            )
        )

    def read_log(self, node: Any, scope: Mapping[Any, int]) -> Term:
        """The logarithm of a product of what is positive: numbers, sizes, weights, exponentials and their sum."""
        return Add(tuple(self.read_log_factor(factor, node, scope) for factor in sympy.Mul.make_args(node.args[0])))

    def read_log_factor(self, factor: Any, node: Any, scope: Mapping[Any, int]) -> Term:
        inside, power = factor.as_base_exp() if not isinstance(factor, sympy.exp) else (factor, sympy.Integer(1))
        if not power.is_Integer or abs(power) > MAX_EXPONENT:
            raise GrammarError(f"log is taken of whole powers only: got {_shown(node)}")
        times = Number(Fraction(int(power)))
        if inside == n.n_keys:
            self.speaks = True
            return Mul((times, Parameter("log n_keys")))
        if isinstance(inside, sympy.Indexed) and inside.base == n.p:
            self.speaks = True
            number = self.index(inside.indices[0], KEY, scope)
            return Mul((times, subtract(Component(SCORE, (number,)), Component(LOG_PARTITION))))
        if isinstance(inside, sympy.Integer) and 0 < inside <= MAX_ROOT:
            self.irrational = True
            primes = sympy.factorint(int(inside)).items()
            return Add(tuple(Mul((times, Number(Fraction(e)), Parameter(f"log {prime}"))) for prime, e in primes))
        if isinstance(inside, (sympy.Sum, sympy.exp)):
            value = self.read(inside, scope)
            if _is_partition(value):
                return Mul((times, Component(LOG_PARTITION)))
            if isinstance(inside, sympy.exp):
                return Mul((times, self.read(inside.args[0], scope)))
        raise GrammarError(
            "log is taken of products of p[i], n_keys, numbers, exponentials and their sum only: got " + _shown(node)
        )

    def read_mean(self, node: Any, scope: Mapping[Any, int]) -> Term:
        self.hold(node)
        return Mean(self.read(node.args[0], scope), self.held_by(node))

    def held_by(self, node: Any) -> tuple[str, ...]:
        """The vectors that an expectation is taken given, ``E(Dot(k, q), q)``."""
        names = tuple(n.name_of(vector) or "" for vector in node.args[1:])
        known = [family(name) for name in names]
        if any(own is None or not own.random for own in known):
            raise GrammarError(f"an expectation is taken given random vectors, E(Dot(k, q), q): got {_shown(node)}")
        return names

    def hold(self, node: Any) -> None:
        """
        Say what an expectation holds fixed.

        Scores, weights, keys and values move with the query and the keys: they are no numbers to an expectation over
        those, unless ``given(p)`` says so. Under an expectation over vectors of the user's own they are held fixed,
        and the verdict says so.
        """
        found = {n.name_of(atom) or str(atom) for atom in node.atoms(sympy.IndexedBase, sympy.Symbol)}
        moving = (found & MOVING) - self.held
        if not moving or self.exchangeable:
            return
        over = {name for name in found if name and (known := family(name)) and known.random}
        if not over or over & RANDOM:
            what = ", ".join(sorted(moving))
            raise GrammarError(
                f"{what} move{'s' * (len(moving) == 1)} with the query and the keys, and under {type(node).__name__} "
                f"would pass for a number: assume given({what}) to take expectations given {what}, in {_shown(node)}"
            )
        self.given |= moving

    def read_variance(self, node: Any, scope: Mapping[Any, int]) -> Term:
        self.hold(node)
        inside = self.read(node.args[0], scope)
        held = self.held_by(node)
        return subtract(Mean(Power(inside, 2), held), Power(Mean(inside, held), 2))

    def read_covariance(self, node: Any, scope: Mapping[Any, int]) -> Term:
        self.hold(node)
        return _covariance(*(self.read(part, scope) for part in node.args))

    def read_dot(self, node: Any, scope: Mapping[Any, int]) -> Term:
        """Σ_i of the product, over the length that the two vectors have in common."""
        self.speaks = True
        names = [n.name_of(vector) or "" for vector in node.args]
        known = [family(name) for name in names]
        if any(own is None or len(own.sorts) != 1 for own in known) or ("p" in names and set(names) != {"p"}):
            raise GrammarError(f"Dot takes two vectors of one length: got {_shown(node)}")
        rigid = {own.sorts[0] for own in known if own and not own.flexible}
        told = {sort for name in names if (sort := self.flexible.get(name))}
        if len(rigid | told) > 1:
            raise GrammarError(f"Dot takes two vectors of one length: got {_shown(node)}")
        sort = next(iter(rigid | told), None) or next((own.sorts[0] for own in known if own), COMPONENT)
        index = next(own for own in n.INDICES if own not in scope)
        number = next(self.numbers)
        self.sorts[number] = sort
        factors = tuple(self.read(vector[index], {**scope, index: number}) for vector in node.args)
        return Sum(number, sort, Mul(factors))

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
        if not isinstance(target, Component) or not target.indices or target.family.startswith("C_"):
            raise GrammarError(f"derivatives are taken by one component of a vector or matrix: got {_shown(node)}")
        self.bounded(Mul((inside,) * 8))
        direct = differentiate(inside, target.family, target.indices)
        # A score depends on query and keys through s_l = scale · Σ_r q_r K_lr.
        if target.family == "q":
            number = next(self.numbers)
            slope = Mul((Parameter("scale"), Component("K", (number, *target.indices))))
            return Add((direct, Sum(number, KEY, Mul((differentiate(inside, SCORE, (number,)), slope)))))
        if target.family == "K":
            key, place = target.indices
            slope = Mul((Parameter("scale"), Component("q", (place,))))
            return Add((direct, Mul((differentiate(inside, SCORE, (key,)), slope))))
        return direct

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
        case Sum(index, sort, body):
            if isinstance(body, Mul) and len(body.factors) == 1:
                body = body.factors[0]
            if isinstance(body, Power) and body.exponent == 1:
                body = body.base
            return sort == KEY and body == Component(EXPONENTIAL, (index,))
    return False


def _is_open(term: Term) -> bool:
    """Whether something random stands outside every expectation."""
    if isinstance(term, Mean):
        return False
    own = isinstance(term, Component) and (term.family not in FAMILIES or term.family in RANDOM | {EXPONENTIAL})
    return own or any(map(_is_open, parts(term)))


def parameters(term: Term) -> set[str]:
    """The names of the parameters in a term."""
    return {term.name} if isinstance(term, Parameter) else set().union(*map(parameters, parts(term)))


def _shown(node: Any) -> str:
    try:
        text = str(node)
    except RecursionError:
        text = type(node).__name__
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
