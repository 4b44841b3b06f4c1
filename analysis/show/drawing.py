"""What all figures share: a canvas that never touches pyplot, names drawn safely, and SVG for a page."""

from __future__ import annotations

import io
import warnings
from functools import lru_cache

import matplotlib
from matplotlib.figure import Figure

SCALE_COLOURS = {"sqrt": "#1b6ca8", "unscaled": "#c8452f"}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def svg(figure: Figure) -> str:
    """Return the figure as an SVG element for a page; equal figures give equal bytes, text is drawn as paths."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "attnsym", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def shortened(name: str, length: int = 24) -> str:
    """Return the end of a name that is too long for a label."""
    return drawable(name if len(name) <= length else f"…{name[1 - length :]}")  # layers differ at the end


@lru_cache(maxsize=1)
def _glyphs() -> frozenset[int]:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def drawable(text: str) -> str:
    """Replace what the font lacks by its code point (one warning), and keep `$` from starting mathematics."""
    missing = sorted({c for c in text if ord(c) not in _glyphs()})
    if missing:
        warnings.warn(f"the plotting font lacks {missing}: shown as code points", stacklevel=3)
    return "".join(f"\\u{ord(c):04x}" if c in missing else c for c in text).replace("$", r"\$")
