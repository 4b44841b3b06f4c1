"""Reading symbols, components, sums and products."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.language.reader import MAX_BITS, GrammarError, Reader, shown
from attnsym.symbolic.trusted.families import COMPONENT, FAMILIES, family
from attnsym.symbolic.trusted.terms import (
    EXPONENTIAL,
    INVERSE_PARTITION,
    LOG_PARTITION,
    Add,
    Component,
    Delta,
    Mul,
    Number,
    Parameter,
    Size,
    Sum,
    Term,
)

_SIZE_OF = {symbol: sort for sort, symbol in n.SIZES.items()}
_MOMENT_NAME = re.compile(r"m_([1-9]|1[0-6])\((\w+)\)")
_PREFIXES = ("m_", "μ_", "σ_")  # how the kernel calls the moments of a vector
_RESERVED = (
    {str(symbol) for symbol in (*n.PARAMETERS, *n.INDICES, *_SIZE_OF, n.H, n.log_Z)}
    | set(FAMILIES)
    | set(n.PARAMETERS.values())
    | {"π"}
)
# What a symbol of the user's own must not say of itself: it would make identities that hold for no other number.
_NARROW = ("integer", "rational", "zero", "negative", "nonpositive", "irrational", "imaginary", "infinite")
ENTROPY = -n.Sum(n.p[n.i] * sympy.log(n.p[n.i]), n.i)


def read_rational(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    if max(int(node.p).bit_length(), int(node.q).bit_length()) > MAX_BITS:
        raise GrammarError(f"numbers may have at most {MAX_BITS} bits")
    return Number(Fraction(int(node.p), int(node.q)))


def read_pi(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    return Parameter("π")


def read_symbol(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    reader.speaks = True
    if node in n.INDICES:
        raise GrammarError(f"the index {node} may stand in brackets and in delta only, not as a number")
    if node in _SIZE_OF:
        return Size(_SIZE_OF[node])
    if node in n.BY_SYMBOL:
        return Component(n.BY_SYMBOL[node])
    if node in n.PARAMETERS:
        return Parameter(n.PARAMETERS[node])
    if node == n.H:
        return reader.read(ENTROPY, {})
    if node == n.log_Z:
        return Component(LOG_PARTITION)
    name = str(node)
    shared = _MOMENT_NAME.fullmatch(name)
    if shared and node.is_real and (known := family(shared[2])) and known.random:
        return Parameter(name)
    return read_parameter(reader, node, name)


def read_parameter(reader: Reader, node: Any, name: str) -> Term:
    """Accept a symbol of the user's own, if it cannot be mistaken for another."""
    if name in _RESERVED or name.startswith(_PREFIXES) or not name.isidentifier():
        raise GrammarError(f"the symbol {name} is not the notation's own {name}: import it from attnsym.symbolic")
    if not node.is_commutative:
        raise GrammarError(f"the symbol {name} does not commute: the grammar has commuting numbers only")
    narrow = [word for word in _NARROW if getattr(node, f"is_{word}")]
    if narrow:
        raise GrammarError(f"the symbol {name} is {narrow[0]}: the checker has parameters of any real value only")
    if reader.names.setdefault(name, node) != node:
        raise GrammarError(f"two different symbols are called {name}")
    return Parameter(f"'{name}")  # a name that no symbol of the kernel's own can have


def read_indexed(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    reader.speaks = True
    name = n.name_of(node.base)
    known = family(name) if name else None
    if name is None or known is None:
        raise GrammarError(f"{node.base} is no vector of the notation: known are {', '.join(sorted(FAMILIES))}")
    if len(node.indices) != len(known.sorts):
        raise GrammarError(f"{name} takes {len(known.sorts)} indices: got {shown(node)}")
    if known.flexible:
        return Component(name, (reader.flexible_index(name, node.indices[0], scope),))
    numbers = tuple(reader.index(own, sort, scope) for own, sort in zip(node.indices, known.sorts, strict=True))
    if name == "p":
        return Mul((Component(EXPONENTIAL, numbers), Component(INVERSE_PARTITION)))
    return Component(name, numbers)


def read_delta(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    if len(node.args) != 2:
        raise GrammarError(f"delta takes two indices and no range: got {shown(node)}")
    first, second = node.args
    left = reader.index(first, None, scope)
    right = reader.index(second, reader.sorts[left], scope)
    reader.index(first, reader.sorts[right], scope)
    return Delta(left, right)


def read_add(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    return Add(tuple(reader.read(part, scope) for part in node.args))


def read_mul(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    return Mul(tuple(reader.read(factor, scope) for factor in node.args))


def read_sum(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    body, *limits = node.args
    inner: dict[Any, int] = dict(scope)
    bound: list[tuple[Any, int, str]] = []
    for limit in reversed(limits):  # SymPy's last limit is the outermost sum
        index, sort = limit_of(reader, limit, node)
        rigid, loose = n.index_uses(node.args[0], index)
        known = {own for name in loose if (own := reader.flexible.get(name))}
        if not rigid and len(known) == 1:  # the size written was a default
            (sort,) = known
        if index in scope or index in [own for own, _, _ in bound]:
            raise GrammarError(f"index {index} is summed over twice in {shown(node)}: rename one")
        number = next(reader.numbers)
        reader.sorts[number] = sort
        inner[index] = number
        bound.append((index, number, sort))
    result = reader.read(body, inner)
    for _, number, sort in reversed(bound):
        result = Sum(number, sort, result)
    return result


def limit_of(reader: Reader, limit: Any, node: Any) -> tuple[Any, str]:
    if len(limit) != 3 or limit[0] not in n.INDICES or limit[1] != 1 or limit[2] not in _SIZE_OF:
        raise GrammarError(
            f"a sum must run over an index from 1 to d_k or n_keys: got limits {shown(limit)} in {shown(node)}"
        )
    return limit[0], _SIZE_OF[limit[2]]


def read_dot(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    """Σ_i of the product, over the length that the two vectors have in common."""
    reader.speaks = True
    names = [n.name_of(vector) or "" for vector in node.args]
    known = [family(name) for name in names]
    if any(own is None or len(own.sorts) != 1 for own in known) or ("p" in names and set(names) != {"p"}):
        raise GrammarError(f"Dot takes two vectors of one length: got {shown(node)}")
    rigid = {own.sorts[0] for own in known if own and not own.flexible}
    told = {sort for name in names if (sort := reader.flexible.get(name))}
    if len(rigid | told) > 1:
        raise GrammarError(f"Dot takes two vectors of one length: got {shown(node)}")
    sort = next(iter(rigid | told), None) or next((own.sorts[0] for own in known if own), COMPONENT)
    index = next(own for own in n.INDICES if own not in scope)
    number = next(reader.numbers)
    reader.sorts[number] = sort
    factors = tuple(reader.read(vector[index], {**scope, index: number}) for vector in node.args)
    return Sum(number, sort, Mul(factors))


def read_trace(reader: Reader, node: Any, scope: Mapping[Any, int]) -> Term:
    left, right = (n.BY_SYMBOL.get(matrix) for matrix in node.args)
    if left not in ("C_q", "C_k") or right not in ("C_q", "C_k"):
        raise GrammarError(f"Trace takes the matrices C_q and C_k: got {shown(node)}")
    first, second = next(reader.numbers), next(reader.numbers)
    product = Mul((Component(left, (first, second)), Component(right, (second, first))))
    return Sum(first, COMPONENT, Sum(second, COMPONENT, product))
