"""What all figures share: a canvas that never touches pyplot, names drawn safely, and SVG for a page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from html import escape
from typing import Any, ParamSpec, TypeVar

import matplotlib
from matplotlib.figure import Figure

SCALE_COLOURS = {"sqrt": "#1b6ca8", "unscaled": "#c8452f"}

_INK = "#000000"
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
# What says nothing: names of groups, matplotlib's fonts, turns by nothing, digits beyond hundredths, indentation.
_DIGITS = re.compile(r"(\d\.\d\d)\d+")
_WORDY: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r'<g id="[^"]*"'), "<g"),
    (re.compile(r" font-family: [^;\"]*;"), ""),
    (re.compile(r' transform="rotate\(-0 [^)]*\)"'), ""),
    (re.compile(r"<[^>]+>"), lambda tag: _DIGITS.sub(r"\1", tag[0])),  # not those that are read
    (re.compile(r"\n\s*"), "\n"),
)
_REFERENCE = re.compile(r'(\bid="|xlink:href="#|\bhref="#|url\(#)')


Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")

# What a caller may have set for papers of their own, and would end or misplace our drawings: there may be no LaTeX.
_OURS: Any = {"text.usetex": False, "svg.image_inline": True, "savefig.bbox": None}


def drawn_without_latex(build: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
    """Keep a caller's `text.usetex` from what `build` draws: a text remembers what was set when it was made."""

    @wraps(build)
    def wrapped(*args: Given.args, **kwargs: Given.kwargs) -> Drawn:
        with matplotlib.rc_context(_OURS):
            return build(*args, **kwargs)

    return wrapped


@contextmanager
def default_style() -> Iterator[None]:
    """Draw a page by matplotlib's defaults, whatever the caller has set, and put the settings back."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


class PageFigure(Figure):
    """A figure that a notebook shows as it is, without pyplot and without any magic."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with matplotlib.rc_context(_OURS):
            self.savefig(buffer, format="png", dpi=120)
        return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    return PageFigure(figsize=(width, height), layout="constrained")


def svg(
    figure: Figure, *, name: str = "figure", title: str = "", description: str = "", plain_text: bool = False
) -> str:
    """
    Return the figure as an SVG element for a page; equal figures give equal bytes, text is drawn as paths.

    Parameters
    ----------
    figure : Figure
    name : str, optional
        Begins every id in the element: two figures of one page need two names.
    title, description : str, optional
        What a screen reader says; with a title the element has the role "img".
    plain_text : bool, optional
        Leave text to the page's fonts: a quarter of the bytes, for pages with many figures.

    Returns
    -------
    str
        Black is the page's own text colour (``currentColor``) and the background is left out, so that the figure reads
        on a light and on a dark page.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "attnsym", "svg.fonttype": "none" if plain_text else "path", **_OURS}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue()
    text = _METADATA.sub("", text[text.index("<svg") :])
    text = _REFERENCE.sub(rf"\g<1>{name}-", text).replace(_INK, "currentColor")
    if plain_text:
        for pattern, instead in _WORDY:
            text = pattern.sub(instead, text)
    # matplotlib leaves the colour of glyphs to SVG's default, which is black on any page.
    opening = text[: text.index(">")] + ' fill="currentColor"'
    if not title:
        return opening + text[text.index(">") :]
    label = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    opening += f' role="img" aria-labelledby="{name}-title {name}-desc">'
    return opening + label + text[text.index(">") + 1 :]


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
