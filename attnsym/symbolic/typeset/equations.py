"""An equation as a row of boxes: both sides, what stands between them, and O(…) where a series was cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnsym.symbolic.typeset.boxes import Box, Fence, Row, Token
from attnsym.symbolic.typeset.printing import Convention, Typesetter

_RELATIONS = {"=": Token(" = ", "=", "mo"), "≤": Token(" ≤ ", r"\leq ", "mo")}


def equation_box(lhs: Any, relation: str, rhs: Any, remainder: Any, convention: Convention) -> Box:
    """Both sides and what stands between them."""
    setter = Typesetter(convention)
    return Row((setter.box(lhs), right_side(relation, rhs, remainder, setter)))


def conditional(conditions: Sequence[Box], then: Box) -> Box:
    """Return "if … and …, then …", or what follows alone where nothing is supposed."""
    if not conditions:
        return then
    parts: list[Box] = [_word("if "), conditions[0]]
    for condition in conditions[1:]:
        parts += [_word(" and "), condition]
    return Row((*parts, _word(", then "), then))


def _word(text: str) -> Token:
    return Token(text, rf"\text{{{text}}}", markup=f"<mtext>{text.replace(' ', '&#160;')}</mtext>")


def right_side(relation: str, rhs: Any, remainder: Any, setter: Typesetter) -> Row:
    """Return the relation and the right side, with O(…) where a series was cut."""
    right: tuple[Box, ...] = (_RELATIONS[relation], setter.box(rhs))
    if remainder is not None:
        right += (Token(" + ", "+", "mo"), Token("O"), Fence(setter.box(remainder)))
    return Row(right)
