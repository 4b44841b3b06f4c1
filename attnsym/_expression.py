"""The one reader for expressions that a user types: an `ast` whitelist, nothing is ever evaluated as code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

MAX_CHARACTERS = 500
MAX_NODES = 200

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def read_expression(
    text: str,
    *,
    names: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
    number: Callable[[str], Any],
    power: Callable[[Any, Any], Any] = operator.pow,
) -> Any:
    """
    Read an arithmetic expression over a closed vocabulary.

    Parameters
    ----------
    text : str
        At most `MAX_CHARACTERS` characters: numbers, ``+ - * / **``, parentheses, and the vocabulary below.
    names : mapping of str to object
        What each identifier stands for; a subscript ``q[i]`` indexes the object that `names` gives for ``q``.
    functions : mapping of str to callable
        What may be called, by position only.
    number : callable
        Turns the characters of a literal into the number type of the caller: `float`, or an exact reader of its own,
        since a literal that has passed through a float may have lost its digits.
    power : callable, optional
        Evaluates ``base ** exponent``; the place where a caller caps the size of a power.

    Returns
    -------
    object
        Whatever the operators of the caller's types give.

    Raises
    ------
    ValueError
        One sentence naming what was not understood; nothing of `text` has run.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"an expression may have at most {MAX_CHARACTERS} characters: got {len(text)}")
    source = text.strip()
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"cannot read {_shown(text)} as an expression") from None
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise ValueError(f"an expression may have at most {MAX_NODES} parts: {_shown(text)} has more")

    def walk(node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int() as value):
                return number(str(value))
            case ast.Constant(value=float()):
                return number(ast.get_source_segment(source, node) or "")
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)) if name not in names:
                raise ValueError(f"unknown name {name!r} in {_shown(text)}: known are {_listed(names)}")
            case ast.Subscript(value=ast.Name(id=name), slice=index) if name in names:
                indices = index.elts if isinstance(index, ast.Tuple) else [index]
                subscript = tuple(walk(part) for part in indices)
                return names[name][subscript if len(subscript) > 1 else subscript[0]]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in functions:
                return functions[name](*(walk(argument) for argument in arguments))
            case ast.Call(func=ast.Name(id=name)) if name not in functions:
                raise ValueError(f"unknown function {name!r} in {_shown(text)}: known are {_listed(functions)}")
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _UNARY[type(op)](walk(operand))
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return power(walk(left), walk(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](walk(left), walk(right))
        raise ValueError(f"{_shown(ast.unparse(node))} is not allowed in an expression: {_shown(text)}")

    try:
        return walk(tree.body)
    except OverflowError:  # whose own words differ from operation to operation
        raise ValueError(f"cannot evaluate {_shown(text)}: a number in it is too large") from None
    except (TypeError, ZeroDivisionError, RecursionError) as error:
        raise ValueError(f"cannot evaluate {_shown(text)}: {error}") from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _listed(vocabulary: Mapping[str, Any]) -> str:
    return ", ".join(sorted(vocabulary)) or "none"
