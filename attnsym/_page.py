"""How a result shows itself: one line for the prompt, a page for `print`, and the page again in a notebook."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

MOST = 100  # characters of the line


class Page:
    """
    Base of what the public functions return.

    ``repr`` is one line, ``<Study entropy: 4 rows>``, ``str`` the page. In a notebook the page stands as it is,
    escaped, unless the result has a richer form of its own.
    """

    def _line(self) -> str:
        """Return what is to be said in one line; by default how the page begins."""
        return str(self)

    def __repr__(self) -> str:
        """Return one line."""
        return one_line(type(self).__name__, self._line())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def one_line(name: str, text: str) -> str:
    """Return ``<name text>``, of which no more is kept than fits."""
    words = " ".join(text.split("\n", 1)[0].split()).removeprefix(name).strip()
    whole = f"<{name} {words}>"
    return whole if len(whole) <= MOST else f"{whole[: MOST - 2]}…>"


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """Return rows of cells as lines, each column as wide as its widest, to the right but for those named."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(w) if at in left else cell.rjust(w) for at, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
