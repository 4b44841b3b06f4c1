"""How much work is asked for: said before minutes of it, refused where it could not end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Protocol

RATE = 5e7  # random numbers a second and worker: within a factor of five on the processors of these years
_SAY = 60.0  # seconds
_YEAR = 365 * 86_400.0
_UNITS = ((_YEAR, "years"), (86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
_LARGEST_BYTES = 1 << 53


class Sized(Protocol):
    """A cell as far as its size goes."""

    @property
    def elements(self) -> int:
        """Random numbers per replicate."""

    @property
    def where(self) -> str:
        """Its settings in words."""


def check_effort(argument: str, numbers: float, workers: int, *, shown: bool) -> None:
    """
    Refuse more random numbers than the workers draw in a year; say on stderr, where `shown`, if they take minutes.

    Parameters
    ----------
    argument : str
        What asks for them, for the message.
    numbers : float
        Random numbers in all.
    workers : int
        Among whom they are shared.
    shown : bool
        Whether somebody wants to hear.
    """
    seconds = numbers / (RATE * workers)
    if seconds < _SAY:
        return
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    sentence = f"{numbers:.1e} random numbers, some {seconds / size:.2g} {unit} of {workers} workers"
    if seconds > _YEAR:
        raise ValueError(f"{argument} asks for {sentence}: ask for less")
    if shown:
        print(f"attnsym: {argument} asks for {sentence}", file=sys.stderr)


def check_memory(cells: Iterable[Sized], *, here: bool) -> None:
    """Refuse a cell of which not even one replicate fits: in the memory of this machine, if it is drawn here."""
    limit = _memory() if here else _LARGEST_BYTES
    for cell in cells:
        if 8 * cell.elements > limit:
            raise ValueError(
                f"d_k and n_keys: one replicate at {cell.where} holds {cell.elements:.1e} numbers: no memory does"
            )


def _memory() -> int:
    try:
        return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _LARGEST_BYTES)
    except (AttributeError, OSError, ValueError):  # not every system says
        return _LARGEST_BYTES
