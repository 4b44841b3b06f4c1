"""Every symbol once: vectors, indices, sizes, and the inert operators E, Var, Cov, Sum with which to write a claim."""

from __future__ import annotations

from math import comb
from typing import Any

import sympy
from sympy import Expr, IndexedBase, KroneckerDelta, Symbol, sympify

from attnsym.symbolic.trusted.families import COMPONENT, FAMILIES, KEY, MODEL, family


def _vector(name: str) -> Any:
    return IndexedBase(name, real=True)


def _scalar(name: str) -> Any:
    return Symbol(name, real=True)


q, k, k2, u, w = (_vector(name) for name in ("q", "k", "k2", "u", "w"))
s, p, x, beta, K, V, C_q, C_k = (_vector(name) for name in ("s", "p", "x", "beta", "K", "V", "C_q", "C_k"))
W, W_q, W_k = (_vector(name) for name in ("W", "W_q", "W_k"))
excess, p_t, cgf_i = (_vector(name) for name in ("excess", "p_t", "cgf_i"))
S, X, Y, X2, Y2, z = (_scalar(name) for name in ("S", "X", "Y", "X2", "Y2", "z"))

_RANDOM = (q, k, k2, u, w, W, W_q, W_k, S, X, Y, X2, Y2, z)
_FIXED = (s, p, x, beta, K, V, C_q, C_k, excess, p_t, cgf_i)
SYMBOLS: dict[str, Any] = {str(symbol): symbol for symbol in (*_RANDOM, *_FIXED)}
BY_SYMBOL = {symbol: name for name, symbol in SYMBOLS.items()}

# Indices carry no size of their own: an index runs over what it indexes.
i, j, l, r, a, b = INDICES = tuple(Symbol(name, integer=True, positive=True) for name in ("i", "j", "l", "r", "a", "b"))

d_k, n_keys, d_model = (Symbol(name, integer=True, positive=True) for name in ("d_k", "n_keys", "d_model"))
SIZES = {COMPONENT: d_k, KEY: n_keys, MODEL: d_model}

c, t, rho, scale, epsilon, H, log_Z = (_scalar(name) for name in ("c", "t", "rho", "scale", "epsilon", "H", "log_Z"))
# Opaque to the kernel: each enters through an axiom that says what it is.
_OPAQUE = ("cgf", "log_1mt2", "H_t", "s_variance", "s_third", "two_key", "bell_width", "logistic_2", "logistic_4")
cgf, log_1mt2, H_t, s_variance, s_third, two_key, bell_width, logistic_2, logistic_4 = map(_scalar, _OPAQUE)
OPAQUE = frozenset({*map(_scalar, _OPAQUE), excess, p_t, cgf_i, epsilon})
mu_q, mu_k, sigma_q, sigma_k, sigma_z = (_scalar(name) for name in ("mu_q", "mu_k", "sigma_q", "sigma_k", "sigma_z"))
# What the kernel calls them.
PARAMETERS = {
    c: "c",
    t: "t",
    rho: "ρ",
    scale: "scale",
    epsilon: "ε",
    mu_q: "μ_q",
    mu_k: "μ_k",
    sigma_q: "σ_q",
    sigma_k: "σ_k",
    sigma_z: "σ_z",
} | {_scalar(name): name for name in _OPAQUE}


def vector(name: str) -> Any:
    """
    Return a random vector of your own, ``v = vector("v")``: a lower-case name of up to eight letters and digits.

    It runs to whatever size the rest of a claim says, d_k where nothing does.

    Raises
    ------
    ValueError
        If the name is not of that form or stands for something else.
    """
    own = family(name) if isinstance(name, str) else None
    if own is None or name in FAMILIES:
        raise ValueError(f"vector takes a lower-case name that the notation does not use: got {name!r}")
    return _vector(name)


def name_of(symbol: Any) -> str | None:
    """The name under which the kernel knows a symbol or vector; None for one that it does not know."""
    if symbol in BY_SYMBOL:
        return BY_SYMBOL[symbol]
    own = isinstance(symbol, IndexedBase) and str(symbol) not in FAMILIES and family(str(symbol)) is not None
    return str(symbol) if own and symbol == _vector(str(symbol)) else None


def moment(vector: Any, order: int) -> Any:
    """Return the symbol mₙ(vector) of a moment that all components share; `identical` or `fourth_moment` gives it."""
    name = name_of(vector)
    own = family(name) if name else None
    if own is None or not own.random or not isinstance(order, (int, sympy.Integer)) or not 1 <= order <= 16:
        raise ValueError(f"moment takes a random vector and an order from 1 to 16: got {vector!r}, {order!r}")
    return Symbol(f"m_{order}({name})", real=True)


class Operator(Expr):  # type: ignore[misc]  # SymPy carries no types
    """
    Base of the inert operators: constructing one evaluates nothing.

    E(q_i q_j) with j renamed to i must be E(q_i²); an operator that evaluated E(q_i q_j) = 0 on construction would
    give 0 for it.
    """

    is_commutative = True
    arity = 1
    held = 0  # how many vectors may follow, given which an expectation is taken
    _latex: Any  # `typeset.notebooks` says how

    def __new__(cls, *arguments: Any) -> Any:
        """Keep the arguments as they are; strings are refused, since SymPy would run them."""
        if not cls.arity <= len(arguments) <= cls.arity + cls.held:
            raise ValueError(f"{cls.__name__} takes {cls.arity} argument{'s' * (cls.arity > 1)}: got {len(arguments)}")
        return Expr.__new__(cls, *(sympify(argument, strict=True) for argument in arguments))

    def _sympystr(self, printer: Any) -> str:
        return f"{type(self).__name__}({', '.join(printer._print(argument) for argument in self.args)})"


class E(Operator):
    """Expectation, inert; ``E(Dot(k, q), q)`` is the expectation given q."""

    held = 3


class Var(Operator):
    """Variance E[X²] - E[X]², inert; ``Var(Dot(k, q), q)`` is the variance given q."""

    held = 3


class Cov(Operator):
    """Covariance E[XY] - E[X]E[Y], inert."""

    arity = 2


def CentralMoment(variable: Any, order: int) -> Any:
    """E[(X − E X)ⁿ], written out."""
    _check_order(order)
    return E((variable - E(variable)) ** order)


def Cumulant(variable: Any, order: int) -> Any:
    """The cumulant κₙ written out in moments: κₙ = mₙ − Σ_{r<n} C(n−1, r−1) κᵣ mₙ₋ᵣ."""
    _check_order(order)
    known: list[Any] = []
    for top in range(1, int(order) + 1):
        lower = (comb(top - 1, r - 1) * known[r - 1] * E(variable ** (top - r)) for r in range(1, top))
        known.append(sympy.expand(E(variable**top) - sympy.Add(*lower)))
    return known[-1]


def _check_order(order: Any) -> None:
    if isinstance(order, bool) or not isinstance(order, (int, sympy.Integer)) or not 1 <= order <= 12:
        raise ValueError(f"the order of a moment must be a whole number from 1 to 12: got {order}")


class Dot(Operator):
    """Inner product of two vectors, ``Dot(k, q)`` for kᵀq = Σ_i k_i q_i."""

    arity = 2


class Trace(Operator):
    """Trace of a product of two matrices, ``Trace(C_q, C_k)`` for Σ_ij C_q[i,j] C_k[j,i]."""

    arity = 2


class D(Operator):
    """Partial derivative ``D(f, s[j])`` by one component; an index bound inside f never meets j."""

    arity = 2


class WeightedMean(Operator):
    """``WeightedMean(x[i], i)``: the mean Σ_i p_i x_i under the weights p."""

    arity = 2


class WeightedVar(Operator):
    """``WeightedVar(x[i], i)``: the variance under the weights p."""

    arity = 2


class WeightedCov(Operator):
    """``WeightedCov(f, g, i)``: the covariance under the weights p."""

    arity = 3


def delta(left: Any, right: Any) -> Any:
    """Kronecker's δ of two indices."""
    return KroneckerDelta(left, right)


def Sum(body: Any, *indices: Any) -> Any:
    """
    Sum `body` over all values of each index, innermost first; an index runs over what it indexes in `body`.

    Returns
    -------
    sympy.Sum
        With limits (i, 1, d_k) or (i, 1, n_keys), unevaluated. An index that `body` does not use runs to d_k.

    Raises
    ------
    ValueError
        If an index is given twice, is no index symbol, or indexes things of different sizes.
    """
    if not indices or len(set(indices)) < len(indices):
        raise ValueError(f"Sum takes an expression and one or more different indices: got indices {indices}")
    result = sympify(body, strict=True)
    for index in indices:
        result = sympy.Sum(result, (index, 1, size_of_index(index, result)))
    return result


def size_of_index(index: Any, *expressions: Any) -> Any:
    """Return the size that `index` runs to in these expressions; d_k where none of them uses it."""
    if index not in INDICES:
        raise ValueError(f"Sum runs over the indices {', '.join(map(str, INDICES))}: got {index}")
    sorts = set().union(*(index_sorts(expression, index) for expression in expressions)) or {COMPONENT}
    if len(sorts) > 1:
        raise ValueError(f"index {index} runs over different sizes, {' and '.join(sorted(sorts))}, in {expressions}")
    (sort,) = sorts
    if sort not in SIZES:
        raise ValueError(f"sums over the components of a value are not in the notation: got {expressions}")
    return SIZES[sort]


def KeySum(body: Any, index: Any) -> Any:
    """Sum over all keys, for a `body` that need not use the index."""
    return sympy.Sum(sympify(body, strict=True), (index, 1, n_keys))


def index_sorts(expression: Any, index: Any) -> set[str]:
    """The sorts of the places in which `expression` uses `index`, or what a δ sets equal to it."""
    rigid, loose = index_uses(expression, index)
    usual = {own.sorts[0] for name in loose if (own := family(name))}
    return rigid or (usual if len(usual) < 2 else usual - {COMPONENT})


def index_uses(expression: Any, index: Any) -> tuple[set[str], set[str]]:
    """The sizes that `index` must run to, and the vectors that would run to any."""
    pairs = [set(node.args) for node in expression.atoms(KroneckerDelta)]
    alike = {index}
    for _ in pairs:
        alike = alike.union(*(pair for pair in pairs if alike & pair))
    rigid: set[str] = set()
    loose: set[str] = set()
    for node in sympy.preorder_traversal(expression):
        name = name_of(node.base) if isinstance(node, sympy.Indexed) else None
        own = family(name) if name else None
        if name and own:
            met = {sort for at, sort in zip(node.indices, own.sorts, strict=False) if at in alike}
            if own.flexible:
                loose |= {name} if met else set()
            else:
                rigid |= met
    return rigid, loose
