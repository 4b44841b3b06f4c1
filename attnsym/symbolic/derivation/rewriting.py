"""
Rewrite rules by name: from one line of a derivation to the next.

Nothing here is trusted. A rule proposes; the kernel judges what it proposed, as it judges what a person wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import sympy

from attnsym.symbolic.language import notation as n
from attnsym.symbolic.trusted.assumptions import Assumption, assumption
from attnsym.symbolic.trusted.facts import Facts
from attnsym.symbolic.trusted.families import family

Change = Callable[[Any, Facts], Any]


def rewrite(expression: Any, rule: str, assuming: Iterable[str | Assumption] = ()) -> Any:
    """
    Apply a rule everywhere it fits.

    Parameters
    ----------
    expression : expression
        In the notation.
    rule : str
        A name that `attnsym.symbolic.derivation.rules.RULES` and `REWRITES` share, such as ``"linearity"``.
    assuming : iterable of str or Assumption
        What the rule may use.

    Returns
    -------
    expression
        A proposal; only `Derivation.check` or `prove` says whether it is right.

    Raises
    ------
    ValueError
        If the rule cannot be applied by machine and its result has to be written out.
    """
    if rule not in REWRITES:
        raise ValueError(f"the rule {rule!r} has to be written out: by machine go {', '.join(REWRITES)}")
    facts = Facts(assumption(item) for item in assuming)
    return _everywhere(sympy.sympify(expression, strict=True), REWRITES[rule], facts)


def _everywhere(node: Any, change: Change, facts: Facts) -> Any:
    """Rebuild a tree from its leaves, leaving names, indices and limits alone."""
    if node.args and not isinstance(node, (sympy.Indexed, sympy.IndexedBase, sympy.KroneckerDelta, sympy.Tuple)):
        parts = [_everywhere(part, change, facts) for part in node.args]
        if parts != list(node.args):
            node = node.func(*parts)
    return change(node, facts)


def _inner_product(node: Any, facts: Facts) -> Any:
    if not isinstance(node, n.Dot):
        return node
    left, right = node.args
    return n.Sum(left[n.i] * right[n.i], n.i)


def _variance(node: Any, facts: Facts) -> Any:
    return n.E(node.args[0] ** 2) - n.E(node.args[0]) ** 2 if isinstance(node, n.Var) else node


def _covariance(node: Any, facts: Facts) -> Any:
    if not isinstance(node, n.Cov):
        return node
    left, right = node.args
    return n.E(left * right) - n.E(left) * n.E(right)


def _linearity(node: Any, facts: Facts) -> Any:
    if isinstance(node, n.Var):
        fixed, varying = _split_constants(node.args[0])
        return fixed**2 * n.Var(varying)
    if not isinstance(node, n.E):
        return node
    fixed, varying = _split_constants(node.args[0])
    if isinstance(varying, sympy.Add):
        return fixed * sympy.Add(*(_linearity(n.E(term), facts) for term in varying.args))
    if isinstance(varying, sympy.Sum):
        body, *limits = varying.args
        return fixed * sympy.Sum(_linearity(n.E(body), facts), *limits)
    return fixed * n.E(varying) if varying != 1 else fixed


def _split_constants(body: Any) -> tuple[Any, Any]:
    """Separate the factors in which nothing is random."""
    factors = sympy.Mul.make_args(body)
    varying = [factor for factor in factors if _families(factor)]
    return sympy.Mul(*(factor for factor in factors if factor not in varying)), sympy.Mul(*varying)


def _families(node: Any) -> set[str]:
    names = {name for atom in node.atoms(sympy.IndexedBase, sympy.Symbol) if (name := n.name_of(atom))}
    random = {name for name in names if (own := family(name)) and own.random}
    return random if not isinstance(node, n.E) else set()


def _split_diagonal(node: Any, facts: Facts) -> Any:
    squared = isinstance(node, sympy.Pow) and isinstance(node.base, sympy.Sum) and node.exp == 2
    if not squared or len(node.base.args) != 2:
        return node
    body, (index, _, _) = node.base.args
    other = next(own for own in n.INDICES if not body.has(own))
    off = (1 - n.delta(index, other)) * body * body.xreplace({index: other})
    return n.Sum(body**2, index) + n.Sum(off, index, other)


def _independence(node: Any, facts: Facts) -> Any:
    if isinstance(node, sympy.Sum):
        return _off_diagonal_independence(node, facts)
    if not isinstance(node, n.E):
        return node
    groups: dict[str, list[Any]] = {}
    for factor in sympy.Mul.make_args(node.args[0]):
        names = _families(factor)
        if len(names) != 1:
            return node
        groups.setdefault(names.pop(), []).append(factor)
    joint = any(set(groups) <= group for group in facts.groups)
    return sympy.Mul(*(n.E(sympy.Mul(*group)) for group in groups.values())) if joint else node


def _off_diagonal_independence(node: Any, facts: Facts) -> Any:
    """Split E[xᵢxⱼ] where the sum keeps i and j apart."""
    body, *limits = node.args
    factors = sympy.Mul.make_args(body)
    apart = {frozenset(d.args) for f in factors if isinstance(f, sympy.Add) for d in f.atoms(sympy.KroneckerDelta)}

    def split(factor: Any) -> Any:
        parts = sympy.Mul.make_args(factor.args[0]) if isinstance(factor, n.E) else ()
        if len(parts) != 2 or not all(isinstance(part, sympy.Indexed) for part in parts):
            return factor
        names = {n.BY_SYMBOL.get(part.base) for part in parts}
        indices = frozenset(part.indices[0] for part in parts)
        free = any(facts.says(kind, str(name)) for kind in ("independent_components", "uncorrelated") for name in names)
        return sympy.Mul(*map(n.E, parts)) if len(names) == 1 and indices in apart and free else factor

    return sympy.Sum(sympy.Mul(*map(split, factors)), *limits)


def _bienayme(node: Any, facts: Facts) -> Any:
    if isinstance(node, n.Var) and isinstance(node.args[0], sympy.Sum):
        body, *limits = node.args[0].args
        return sympy.Sum(n.Var(body), *limits)
    return node


def _moments(node: Any, facts: Facts) -> Any:
    if isinstance(node, sympy.Sum) and node.args[0] == 0:
        return sympy.Integer(0)
    base, power = node.args[0].as_base_exp() if isinstance(node, (n.E, n.Var)) else (None, None)
    if not isinstance(base, (sympy.Indexed, sympy.Symbol)):
        return node
    name = n.BY_SYMBOL.get(base.base if isinstance(base, sympy.Indexed) else base, "")
    zero, unit = facts.says("zero_mean", name), facts.says("unit_variance", name)
    if isinstance(node, n.Var):
        return sympy.Integer(1) if unit and power == 1 else node
    if power == 1 and zero:
        return sympy.Integer(0)
    if power == 2 and zero:
        return sympy.Integer(1) if unit else n.Var(base)
    return n.moment(base.base, 4) if power == 4 and facts.says("fourth_moment", name) else node


def _evaluate(node: Any, facts: Facts) -> Any:
    if not isinstance(node, sympy.Sum):
        return node
    body, (index, _, size), *rest = node.args
    if isinstance(body, n.Operator) or body.has(index):
        return node
    outer = body * size
    return _evaluate(sympy.Sum(outer, *rest), facts) if rest else outer


def _softmax(node: Any, facts: Facts) -> Any:
    if not isinstance(node, n.D):
        return node
    weight, score = node.args
    if not (isinstance(weight, sympy.Indexed) and isinstance(score, sympy.Indexed)):
        return node
    if weight.base != n.p or score.base != n.s:
        return node
    (upper,), (lower,) = weight.indices, score.indices
    return n.p[upper] * (n.delta(upper, lower) - n.p[lower])


def _substitute(node: Any, facts: Facts) -> Any:
    name = n.BY_SYMBOL.get(node.base, "") if isinstance(node, sympy.Indexed) else ""
    return n.SYMBOLS[facts.root(name)][node.indices] if facts.root(name) != name else node


REWRITES: dict[str, Change] = {
    "definition of the inner product": _inner_product,
    "definition of variance": _variance,
    "definition of covariance": _covariance,
    "linearity": _linearity,
    "split the diagonal": _split_diagonal,
    "independence": _independence,
    "Bienaymé": _bienayme,
    "moments": _moments,
    "evaluate": _evaluate,
    "substitute": _substitute,
    "softmax derivative": _softmax,
}
