"""Text that came from outside, made fit to be shown; text of ours, made fit for a poor encoding."""

from __future__ import annotations

import unicodedata

_ASCII = {
    "√": "sqrt ", "·": "*", "×": "x", "−": "-", "–": "-", "—": "-", "…": "...", "≤": "<=", "≥": ">=", "≠": "!=",
    "≈": "~", "→": "->", "∞": "inf", "∂": "d", "∑": "Sum", "∏": "Prod", "∫": "Int", "±": "+-", "‖": "||", "’": "'",
    "‘": "'", "“": '"', "”": '"', "∈": " in ", "∼": "~", "⊥": "_|_", "′": "'", "⋅": "*", "│": "|", "┃": "|",
    "█": "#", "•": "*",
}  # fmt: skip


def printable(name: str) -> str:
    """
    Return a name fit for a terminal.

    Characters that steer it (escape sequences, marks that turn the direction of text, halves of surrogates) become
    backslash escapes; all others stay.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def spelled(character: str) -> str:
    """Return a character in ASCII: its name for a Greek letter, ^ and _ before what is raised and lowered."""
    if character.isascii():
        return character
    if character in _ASCII:
        return _ASCII[character]
    name = unicodedata.name(character, "")
    if name.startswith("BOX DRAWINGS"):
        return "+" if "AND" in name else "|" if "VERTICAL" in name else "-"
    if name.startswith("GREEK") and "LETTER" in name:
        word = name.rpartition("LETTER ")[2].split()[0].lower()
        return word.capitalize() if "CAPITAL" in name else word
    form = unicodedata.decomposition(character).partition(" ")[0]
    base = [c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c)]
    if base in ([], [character]):
        return character.encode("unicode_escape").decode()
    return {"<super>": "^", "<sub>": "_"}.get(form, "") + "".join(map(spelled, base))
