"""Three-valued verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from attnsym._page import Page


class Truth(Enum):
    """TRUE and FALSE are proved, FALSE by a witness; UNKNOWN is neither, and never a pass."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, repr=False)
class Verdict(Page):
    """
    What a check found.

    Attributes
    ----------
    truth : Truth
        TRUE, FALSE or UNKNOWN.
    reason : str
        One sentence: what was checked, or what stands in the way.
    witness : Witness or None
        For FALSE: a finite law (or weights) and the two different values, exact.
    step : int or None
        Position in `Derivation.steps` of the step that failed.
    axioms : tuple of str
        Statements trusted without proof.
    moments : tuple of str
        Expectations that must be finite for the statement to make sense.
    """

    truth: Truth
    reason: str
    witness: Any = None
    step: int | None = None
    axioms: tuple[str, ...] = ()
    moments: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        """Whether the verdict is TRUE."""
        return self.truth is Truth.TRUE

    def __str__(self) -> str:
        """One paragraph, witness and axioms included."""
        lines = [f"{self.truth.value}: {self.reason}"]
        if self.witness is not None:
            lines.append(str(self.witness))
        if self.moments:
            lines.append(f"Finite must be: {', '.join(self.moments)}.")
        lines.extend(f"Trusted: {axiom}" for axiom in self.axioms)
        return "\n".join(lines)
