"""Scaled dot-product attention in NumPy; its mathematics, checked by machine, in `attnsym.symbolic`."""

from __future__ import annotations

__version__ = "0.1.0"

__all__: list[str] = []
