"""Names that a user types: read with underscores, hyphens and capitals alike, and suggested where they are wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

_MOST_LISTED = 40


def find_name(kind: str, name: object, known: Iterable[str], more: str = "") -> str:
    """
    Return the member of `known` that is meant; ValueError with the closest one, and up to forty, for any other.

    Parameters
    ----------
    kind : str
        What it names, for the message: "quantity".
    name : object
        What arrived. ``score_variance`` and ``Score-Variance`` mean ``score-variance``.
    known : iterable of str
    more : str, optional
        Added to the list of what is known.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        ``unknown quantity 'entrpy': did you mean 'entropy'? known are …``
    """
    known = known if isinstance(known, Collection) else tuple(known)
    if isinstance(name, str) and name in known:
        return name
    plain = {_plain(candidate): candidate for candidate in known}
    if isinstance(name, str):
        if _plain(name) in plain:
            return plain[_plain(name)]
        close = get_close_matches(_plain(name), plain, n=1)
    else:
        close = []
    hint = f"did you mean {plain[close[0]]!r}? " if close else ""
    listed = list(plain.values())
    if len(listed) > _MOST_LISTED:
        more = f" and {len(listed) - _MOST_LISTED} others{more}"
    raise ValueError(f"unknown {kind} {name!r}: {hint}known are {', '.join(listed[:_MOST_LISTED])}{more}")


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")
