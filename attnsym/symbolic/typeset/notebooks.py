"""
The one hook that points upward: SymPy asks an operator of the notation for its LaTeX when a notebook shows it.

The notation lies below the typesetter and knows nothing of it, so the typesetter tells it, here and nowhere else.
"""

from __future__ import annotations

from typing import Any

from attnsym.symbolic.language.notation import Operator
from attnsym.symbolic.typeset.printing import to_latex


def _latex(operator: Any, printer: Any) -> str:
    return to_latex(operator)


def typeset_operators() -> None:
    """Let SymPy's LaTeX printer, and with it every notebook, set the operators as `to_latex` does."""
    Operator._latex = _latex
