"""Boxes of typeset mathematics, each of which knows how it looks in Unicode, LaTeX and MathML."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Protocol

_SUBSCRIPT = dict(zip("0123456789aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))
_SUPERSCRIPT = dict(zip("0123456789-ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿⁱ", strict=True))


class Box(Protocol):
    """Anything that can be typeset."""

    def unicode(self) -> str: ...
    def latex(self) -> str: ...
    def mathml(self) -> str: ...


@dataclass(frozen=True)
class Token:
    """One symbol: its Unicode text, its LaTeX (the same if empty) and its MathML element (or whole markup)."""

    text: str
    tex: str = ""
    tag: str = "mi"
    markup: str = ""

    def unicode(self) -> str:
        return self.text

    def latex(self) -> str:
        return self.tex or self.text

    def mathml(self) -> str:
        if not self.text.strip():
            return '<mspace width="0.17em"/>'
        return self.markup or f"<{self.tag}>{escape(self.text.strip())}</{self.tag}>"


@dataclass(frozen=True)
class Row:
    """Boxes side by side."""

    items: tuple[Box, ...]

    def unicode(self) -> str:
        return "".join(item.unicode() for item in self.items)

    def latex(self) -> str:
        # A command must not run into the letter that follows it.
        result = ""
        for item in self.items:
            piece = item.latex()
            glued = result[-1:].isalpha() and piece[:1].isalpha() and "\\" in result.rsplit("}", 1)[-1]
            result += " " + piece if glued else piece
        return result

    def mathml(self) -> str:
        return f"<mrow>{''.join(item.mathml() for item in self.items)}</mrow>"


@dataclass(frozen=True)
class Script:
    """A base with a subscript, a superscript or both."""

    base: Box
    below: Box | None = None
    above: Box | None = None

    def unicode(self) -> str:
        text = self.base.unicode()
        if self.below is not None:
            text += _small(self.below.unicode(), _SUBSCRIPT, "_")
        if self.above is not None:
            text += _small(self.above.unicode(), _SUPERSCRIPT, "^")
        return text

    def latex(self) -> str:
        below = f"_{{{self.below.latex()}}}" if self.below is not None else ""
        above = f"^{{{self.above.latex()}}}" if self.above is not None else ""
        return f"{self.base.latex()}{below}{above}"

    def mathml(self) -> str:
        tag = "msub" * (self.below is not None) + ("sup" if self.below is not None else "msup") * (
            self.above is not None
        )
        parts = [part.mathml() for part in (self.base, self.below, self.above) if part is not None]
        return f"<{tag}>{''.join(parts)}</{tag}>"


@dataclass(frozen=True)
class Fraction:
    """A fraction; in Unicode a slash, with parentheses where they are needed."""

    above: Box
    below: Box
    above_is_sum: bool = False
    below_is_product: bool = False

    def unicode(self) -> str:
        above, below = self.above.unicode(), self.below.unicode()
        above = f"({above})" if self.above_is_sum else above
        return f"{above}/({below})" if self.below_is_product else f"{above}/{below}"

    def latex(self) -> str:
        return rf"\frac{{{self.above.latex()}}}{{{self.below.latex()}}}"

    def mathml(self) -> str:
        return f"<mfrac>{self.above.mathml()}{self.below.mathml()}</mfrac>"


@dataclass(frozen=True)
class Root:
    """A square root."""

    inside: Box

    def unicode(self) -> str:
        return f"√{self.inside.unicode()}"

    def latex(self) -> str:
        return rf"\sqrt{{{self.inside.latex()}}}"

    def mathml(self) -> str:
        return f"<msqrt>{self.inside.mathml()}</msqrt>"


@dataclass(frozen=True)
class Fence:
    """A box in brackets that grow with it."""

    inside: Box
    opening: str = "("
    closing: str = ")"

    def unicode(self) -> str:
        return f"{self.opening}{self.inside.unicode()}{self.closing}"

    def latex(self) -> str:
        return rf"\left{self.opening}{self.inside.latex()}\right{self.closing}"

    def mathml(self) -> str:
        return f"<mrow><mo>{self.opening}</mo>{self.inside.mathml()}<mo>{self.closing}</mo></mrow>"


@dataclass(frozen=True)
class BigSum:
    """A summation sign with its range; Unicode shows the index only."""

    below: Box
    short: Box
    above: Box | None
    body: Box

    def unicode(self) -> str:
        return f"Σ{_small(self.short.unicode(), _SUBSCRIPT, '_')} {self.body.unicode()}"

    def latex(self) -> str:
        above = f"^{{{self.above.latex()}}}" if self.above is not None else ""
        return rf"\sum_{{{self.below.latex()}}}{above} {self.body.latex()}"

    def mathml(self) -> str:
        if self.above is None:
            sign = f"<munder><mo>&#x2211;</mo>{self.below.mathml()}</munder>"
        else:
            sign = f"<munderover><mo>&#x2211;</mo>{self.below.mathml()}{self.above.mathml()}</munderover>"
        return f"<mrow>{sign}{self.body.mathml()}</mrow>"


def _small(text: str, table: dict[str, str], mark: str) -> str:
    """Write a script with the small letters that Unicode has, or else after a mark."""
    if all(character in table for character in text):
        return "".join(table[character] for character in text)
    return f"{mark}{text}" if len(text) == 1 else f"{mark}{{{text}}}"


def math_element(box: Box) -> str:
    """Wrap a box into a MathML ``<math>`` element."""
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">{box.mathml()}</math>'
