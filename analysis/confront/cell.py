"""One combination of settings of a claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Cell:
    """
    One combination of settings of a claim; a setting is read as an attribute: ``cell.d_k``, ``cell.law``.

    Attributes
    ----------
    settings : tuple of (str, scalar) pairs
        In the order of the grid. Names and values go into the seed of the cell, so that adding a cell changes no
        number of another.
    """

    settings: tuple[tuple[str, Scalar], ...]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name != "settings":  # pickle probes a bare instance for its own hooks
            for key, value in self.settings:
                if key == name:
                    return value
        raise AttributeError(f"the cell has no setting {name!r}")

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting, or `default` where the cell has none of that name."""
        return dict(self.settings).get(name, default)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.settings)
