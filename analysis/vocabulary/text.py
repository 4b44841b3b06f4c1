"""Text that came from outside, made fit to be shown."""

from __future__ import annotations


def printable(name: str) -> str:
    """Return a name fit for a terminal: control characters (escape sequences) become backslash escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
