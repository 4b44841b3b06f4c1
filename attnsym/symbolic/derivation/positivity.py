"""What can be seen to be at least 0 from its shape alone: the certificate behind each ≤."""

from __future__ import annotations

from typing import Any

import sympy

from attnsym.symbolic.language import notation as n


def is_nonnegative(expression: Any, positive: tuple[Any, ...] = ()) -> bool:
    """
    Whether sums, products and even powers of nonnegative things make up `expression`.

    Parameters
    ----------
    expression : expression
        The slack of an inequality.
    positive : tuple of symbols or vectors
        What the axioms of the derivation say is at least 0.
    """

    def holds(node: Any) -> bool:
        return is_nonnegative(node, positive)

    if node_is_known(expression, positive):
        return True
    match expression:
        case sympy.Rational():
            return bool(expression >= 0)
        case sympy.Add():
            return all(map(holds, expression.args)) or _is_off_diagonal(expression)
        case sympy.Mul():
            return all(map(holds, expression.args))
        case sympy.Pow():
            base, exponent = expression.args
            return bool(exponent.is_Integer and (exponent % 2 == 0 or (exponent > 0 and holds(base))))
        case sympy.Sum():
            return holds(expression.args[0])
        case n.E():
            return holds(expression.args[0])
    return isinstance(expression, (sympy.KroneckerDelta, sympy.exp))


def node_is_known(node: Any, positive: tuple[Any, ...]) -> bool:
    """Whether this is a size, a weight, or declared nonnegative."""
    base = node.base if isinstance(node, sympy.Indexed) else node
    return base in (n.d_k, n.n_keys, n.p, *positive)


def _is_off_diagonal(node: Any) -> bool:
    return isinstance(sympy.Integer(1) - node, sympy.KroneckerDelta)
