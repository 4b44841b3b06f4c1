"""What came of holding a sentence against one ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.confront.cell import Cell
from attnsym._page import Page


@dataclass(frozen=True)
class Row:
    """
    One case: what the sentence says there, what is exact, and what was measured.

    Attributes
    ----------
    cell : Cell
    says, exact : float
        The number of the sentence and the exact one.
    measured : tuple of (float, float) or None
        The mean of the draws and its standard error; None where nothing is drawn.
    """

    cell: Cell
    says: float
    exact: float
    measured: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        mean, error = self.measured or (None, None)
        case = {"says": self.says, "exact": self.exact, "measured": mean, "standard_error": error}
        return {"settings": dict(self.cell.settings), **case}

    def __str__(self) -> str:
        words = f"says {self.says:.5g}, exact {self.exact:.5g}"
        if self.measured is not None:
            words += f", measured {self.measured[0]:.5g} ± {self.measured[1]:.2g}"
        return f"{self.cell}: {words}" if self.cell.settings else words


@dataclass(frozen=True, repr=False)
class Finding(Page):
    """
    What came of holding a sentence against one ground.

    Attributes
    ----------
    holds : str
        "exactly", "to leading order", "no", or "undecided".
    regime : str
        Where this ground looks; empty where the sentence makes no difference.
    by : str
        The instrument: a claim, a derivation, exact numbers.
    words : str
        One sentence with the case and the numbers: of a sentence that fails, the smallest counterexample.
    error : float
        How wrong the sentence is at worst, as a share of the true number (to leading order: at the last case); 0 where
        it holds exactly, inf where no number measures it.
    errors : tuple of (str, float)
        The share by which it errs at each case, in order.
    rows : tuple of Row
        The computation, case by case; empty for a proof.
    """

    holds: str
    regime: str
    by: str
    words: str
    error: float = 0.0
    errors: tuple[tuple[str, float], ...] = ()
    rows: tuple[Row, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "holds": self.holds,
            "regime": self.regime,
            "by": self.by,
            "words": self.words,
            "errors": dict(self.errors),
            "rows": [row.to_dict() for row in self.rows],
        }

    def __str__(self) -> str:
        """Return what it found, and each case."""
        where = f" ({self.regime})" if self.regime else ""
        return "\n".join([f"{self.holds}{where}: {self.words}", *(f"  {row}" for row in self.rows)])
