"""From the notation to boxes: one reading order for Unicode, LaTeX and MathML."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.typeset.boxes import BigSum, Box, Fence, Fraction, Root, Row, Script, Token, math_element
from attnsym.symbolic.typeset.glyphs import NAMES, vector_box

Convention: TypeAlias = Literal["rows", "columns"]

_MINUS, _PLUS = Token(" − ", "-", "mo"), Token(" + ", "+", "mo")
_ORDER = {
    name: f"{rank:02}" for rank, name in enumerate(("scale", "c", "t", "p", "p_t", "q", "k", "k2", "w", "u", "V"))
}


class Typesetter:
    """
    Turns expressions into boxes.

    Parameters
    ----------
    convention : {"columns", "rows"}
        How an inner product is written: kᵀq for column vectors, qkᵀ for row vectors.
    ascending : tuple of symbols
        Variables of series, whose sums are written from the lowest power up.
    """

    def __init__(self, convention: Convention = "columns", ascending: tuple[Any, ...] = (n.t, n.z, n.sigma_z)) -> None:
        if convention not in ("rows", "columns"):
            raise ValueError(f"convention must be 'rows' or 'columns': got {convention!r}")
        self.convention, self.ascending = convention, ascending

    def box(self, node: Any) -> Box:
        """Return the box of an expression."""
        node = sympy.sympify(node, strict=True)
        if node in NAMES:
            return NAMES[node]
        for kind, method in _METHODS.items():
            if isinstance(node, kind):
                return method(self, node)
        return Token(str(node))

    def number(self, node: Any) -> Box:
        if node < 0:
            return Row((Token("−", "-", "mo"), self.box(-node)))
        if node.q == 1:
            return Token(str(node.p), tag="mn")
        return Fraction(Token(str(node.p), tag="mn"), Token(str(node.q), tag="mn"))

    def symbol(self, node: Any) -> Box:
        name = str(node)
        if name.startswith("m_") and "(" in name:
            order, family = name[2:-1].split("(")
            vector = vector_box(family)
            return Row((Script(Token("m"), Token(order, tag="mn")), Fence(vector)))
        return Token("π", r"\pi") if node == sympy.pi else Token(name)

    def indexed(self, node: Any) -> Box:
        name = n.name_of(node.base) or str(node.base)
        below = Token("".join(str(index) for index in node.indices))
        return Script(vector_box(name), below)

    def kronecker(self, node: Any) -> Box:
        names = sorted(str(index) for index in node.args)
        return Script(Token("δ", r"\delta"), Token("".join(names)))

    def add(self, node: Any) -> Box:
        terms = sorted(node.args, key=self._term_key)
        items: list[Box] = []
        for position, term in enumerate(terms):
            negative = _is_negative(term)
            if negative and not position:
                items.append(Token("−", "-", "mo"))
            elif position:
                items.append(_MINUS if negative else _PLUS)
            shown = -term if negative else term
            items.append(self.in_product(shown) if isinstance(shown, sympy.Add) else self.box(shown))
        return Row(tuple(items))

    def _term_key(self, term: Any) -> tuple[Any, ...]:
        powers = term.as_powers_dict()
        inside = [mean.args[0].as_powers_dict() for mean in term.atoms(n.E)]
        ascending = sum((abs(own.get(v, 0)) for own in (powers, *inside) for v in self.ascending), sympy.Integer(0))
        plain = not term.has(sympy.Sum, n.Operator)
        degree = sum((powers.get(symbol, 0) for symbol in n.SIZES.values()), sympy.Integer(0))
        return (ascending, _is_negative(term), -degree if plain else 0, not term.is_Rational, _sums(term), _text(term))

    def mul(self, node: Any) -> Box:
        if _is_negative(node):
            return Row((Token("−", "-", "mo"), self.in_product(-node)))
        above, below = [], []
        for factor in node.args:
            base, exponent = factor.as_base_exp()
            if factor.is_Rational:
                above.append(sympy.Integer(factor.p))
                below.append(sympy.Integer(factor.q))
            elif exponent.is_Rational and exponent < 0:
                below.append(base**-exponent)
            else:
                above.append(factor)
        above = [factor for factor in above if factor != 1] or [sympy.Integer(1)]
        below = [factor for factor in below if factor != 1]
        if not below:
            return self.product(above)
        lone_sum = len(above) == 1 and isinstance(above[0], sympy.Add)
        top = self.box(above[0]) if lone_sum else self.product(above)
        bottom = self.box(below[0]) if len(below) == 1 else self.product(below)
        compound = len(below) > 1 or below[0] == n.bell_width or isinstance(below[0], (sympy.Add, sympy.Sum))
        return Fraction(top, bottom, lone_sum or any(isinstance(f, sympy.Sum) for f in above), compound)

    def product(self, factors: list[Any]) -> Box:
        ordered = sorted(factors, key=_factor_key)
        several = sum(isinstance(factor, n.Dot) for factor in ordered) > 1
        boxes: list[Box] = []
        for position, factor in enumerate(ordered):
            last = position == len(ordered) - 1
            wrapped = (isinstance(factor, sympy.Sum) and not last) or (several and isinstance(factor, n.Dot))
            box = Fence(self.box(factor)) if wrapped else self.in_product(factor)
            if boxes and (_is_word(factor) or _is_word(ordered[position - 1])):
                boxes.append(Token(" ", r"\,", "mo"))
            boxes.append(box)
        return Row(tuple(boxes)) if len(boxes) > 1 else boxes[0]

    def in_product(self, node: Any) -> Box:
        """Return the box of a factor; a sum of terms gets parentheses."""
        return Fence(self.box(node)) if isinstance(node, sympy.Add) or _is_negative(node) else self.box(node)

    def power(self, node: Any) -> Box:
        base, exponent = node.args
        if exponent.is_Rational and exponent < 0:
            compound = isinstance(base, (sympy.Add, sympy.Sum))
            return Fraction(Token("1", tag="mn"), self.box(base**-exponent), below_is_product=compound)
        if exponent == sympy.Rational(1, 2):
            return Root(self.box(base))
        inner = self.box(base)
        if isinstance(inner, Script) and inner.above is None and isinstance(base, (sympy.Indexed, sympy.Symbol)):
            return Script(inner.base, inner.below, self.box(exponent))
        atomic = base == sympy.pi or isinstance(base, (sympy.Symbol, sympy.Indexed))
        return Script(inner if atomic else Fence(inner), None, self.box(exponent))

    def sum(self, node: Any) -> Box:
        body, *limits = node.args
        summed = [limit[0] for limit in limits]
        pair, body = _without_diagonal(body, summed)
        inner = self.in_product(body)
        for index, _, size in sorted(limits, key=lambda limit: str(limit[0]), reverse=True):
            if index not in pair:
                name = Token(str(index))
                below = Row((name, Token("=", tag="mo"), Token("1", tag="mn")))
                inner = BigSum(below, name, self.box(size), inner)
        if pair:
            first, second = pair if pair[0] in summed else pair[::-1]
            below = Row((Token(str(first)), Token("≠", r"\ne ", "mo"), Token(str(second))))
            inner = BigSum(below, below, None, inner)
        return inner

    def exponential(self, node: Any) -> Box:
        return Script(Token("e"), None, self.box(node.args[0]))

    def logarithm(self, node: Any) -> Box:
        return Row((Token("log ", r"\log ", "mi"), self.in_product(node.args[0])))

    def expectation(self, node: Any) -> Box:
        return Row((Token("E", r"\mathbb{E}"), Fence(self.given(node), "[", "]")))

    def given(self, node: Any) -> Box:
        """Return the inside of an expectation, with what it is taken given."""
        inside = self.box(node.args[0])
        return Row((inside, Token(" | ", r"\mid ", "mo"), self.list(node.args[1:]))) if node.args[1:] else inside

    def named(self, node: Any) -> Box:
        name = type(node).__name__
        if isinstance(node, n.Var):
            return Row((Token(name, rf"\operatorname{{{name}}}"), Fence(self.given(node))))
        return Row((Token(name, rf"\operatorname{{{name}}}"), Fence(self.list(node.args))))

    def list(self, nodes: Any) -> Box:
        items: list[Box] = []
        for node in nodes:
            items.extend([Token(", ", ",\\,", "mo")] * bool(items) + [self.box(node)])
        return Row(tuple(items))

    def dot(self, node: Any) -> Box:
        left, right = (self.vector(vector) for vector in node.args)
        if self.convention == "columns":
            return Row((_Transposed(left), right))
        return Row((right, _Transposed(left)))

    def vector(self, node: Any) -> Box:
        return vector_box(n.name_of(node) or str(node))

    def trace(self, node: Any) -> Box:
        left, right = (self.vector(matrix) for matrix in node.args)
        return Row((Token("tr", r"\operatorname{tr}"), Fence(Row((left, right)))))

    def derivative(self, node: Any) -> Box:
        function, variable = node.args
        partial = Token("∂", r"\partial ", "mo")
        below = Row((partial, self.box(variable)))
        if isinstance(function, (sympy.Symbol, sympy.Indexed)):
            return Fraction(Row((partial, self.box(function))), below)
        return Row((Fraction(partial, below), Token(" ", r"\,", "mo"), self.in_product(function)))

    def weighted(self, node: Any) -> Box:
        *functions, index = node.args
        name, tex, brackets = {
            n.WeightedMean: ("E", r"\mathbb{E}", "[]"),
            n.WeightedVar: ("Var", r"\operatorname{Var}", "()"),
            n.WeightedCov: ("Cov", r"\operatorname{Cov}", "()"),
        }[type(node)]
        below = Row((Token(str(index)), Token("∼", r"\sim ", "mo"), Token("p")))
        return Row((Script(Token(name, tex), below), Fence(self.list(functions), *brackets)))


class _Transposed(Script):
    """A transposed vector; Unicode has a letter for it."""

    def __init__(self, base: Box) -> None:
        super().__init__(base, None, Token("⊤", r"\top", "mo"))

    def unicode(self) -> str:
        return f"{self.base.unicode()}ᵀ"


def _without_diagonal(body: Any, indices: list[Any]) -> tuple[tuple[Any, ...], Any]:
    """Take a factor (1 - δ_ij) of a summed index out of `body`: it is written under the sign as i ≠ j."""
    for factor in sympy.Mul.make_args(body):
        inner = sympy.Integer(1) - factor if isinstance(factor, sympy.Add) else None
        if isinstance(inner, sympy.KroneckerDelta) and set(inner.args) & set(indices):
            rest = sympy.Mul(*(other for other in sympy.Mul.make_args(body) if other is not factor))
            return tuple(sorted(inner.args, key=str)), rest
    return (), body


def _is_negative(term: Any) -> bool:
    return bool(term.as_coeff_Mul()[0].is_negative)


def _is_word(node: Any) -> bool:
    return node in (n.scale, n.log_Z, *n.SIZES.values()) or isinstance(node, (sympy.log, n.D))


def _sums(term: Any) -> int:
    return sum(len(part.limits) for part in term.atoms(sympy.Sum)) if term.has(sympy.Sum) else 0


def _text(node: Any) -> str:
    """Return a key that puts queries before keys, whatever the letters."""
    return "".join(_ORDER.get(piece, piece) for piece in re.split(r"([A-Za-z0-9]+)", str(node)))


def _factor_key(node: Any) -> tuple[Any, ...]:
    base = node.as_base_exp()[0]
    ranks = [
        base.is_Rational,
        base.is_Symbol,
        isinstance(base, sympy.Indexed),
        isinstance(base, (sympy.log, sympy.exp)),
        isinstance(base, sympy.Add),
        isinstance(base, sympy.KroneckerDelta),
        isinstance(base, n.Operator),
    ]
    name = n.BY_SYMBOL.get(base.base, "") if isinstance(base, sympy.Indexed) else ""
    return (ranks.index(True) if True in ranks else len(ranks), _ORDER.get(name, name), _text(node))


_METHODS: dict[Any, Callable[[Typesetter, Any], Box]] = {
    sympy.Rational: Typesetter.number,
    sympy.Symbol: Typesetter.symbol,
    type(sympy.pi): Typesetter.symbol,
    sympy.Indexed: Typesetter.indexed,
    sympy.IndexedBase: Typesetter.vector,
    sympy.KroneckerDelta: Typesetter.kronecker,
    sympy.Add: Typesetter.add,
    sympy.Mul: Typesetter.mul,
    sympy.exp: Typesetter.exponential,
    sympy.Pow: Typesetter.power,
    sympy.Sum: Typesetter.sum,
    sympy.log: Typesetter.logarithm,
    n.E: Typesetter.expectation,
    n.Var: Typesetter.named,
    n.Cov: Typesetter.named,
    n.Dot: Typesetter.dot,
    n.Trace: Typesetter.trace,
    n.D: Typesetter.derivative,
    n.WeightedMean: Typesetter.weighted,
    n.WeightedVar: Typesetter.weighted,
    n.WeightedCov: Typesetter.weighted,
}


def to_unicode(expression: Any, convention: Convention = "columns") -> str:
    """Return an expression of the notation as one line of Unicode."""
    return Typesetter(convention).box(expression).unicode()


def to_latex(expression: Any, convention: Convention = "columns") -> str:
    """Return an expression as LaTeX that plain amsmath and MathJax know, without delimiters."""
    return Typesetter(convention).box(expression).latex()


def to_mathml(expression: Any, convention: Convention = "columns") -> str:
    """Return an expression as a MathML ``<math>`` element, which is valid XML."""
    return math_element(Typesetter(convention).box(expression))
