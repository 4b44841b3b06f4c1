"""One entry of the catalogue, and the patterns that find its line."""

from __future__ import annotations

from dataclasses import dataclass

SCALE = r"sqrt|scale|\*\*\s*-?0?\.5|/\s*\w*d|temperature|/ *\("
MASK = r"mask|where|-inf|1e9|masked_fill"
SPLIT = r"reshape|view|transpose|swapaxes|permute|rearrange"
SOFTMAX = r"softmax|exp\("


@dataclass(frozen=True)
class Fault:
    """What the catalogue knows of a code; ``pattern`` finds the line in the function's source."""

    severity: str
    title: str
    typical: str
    fix: str
    pattern: str
