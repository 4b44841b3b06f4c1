"""The figure of one number of a published sentence: the exact curve, the sentence's, and draws through the core."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import NullFormatter

from analysis.show.drawing import drawable, drawn_without_latex, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from analysis.confront.cell import Cell
    from analysis.confront.published.finding import Finding, Row
    from analysis.confront.published.numbers import Numbers

_AXES = {
    "d_k": "d_k (components of a key)",
    "n_keys": "number of keys",
    "d_model": "d_model (components of a token)",
    "sigma": "σ (standard deviation of a score)",
    "lead": "lead of the best key (score units)",
    "range": "range of the scores (score units)",
    "norm": "norm of the centred scores",
    "score": "score before the cap",
    "logit": "logit",
    "scale": "scale",
    "factor": "factor on each projection",
    "length": "length of the added vector",
    "spread": "spread of the tokens about one another",
    "size": "size of the tokens' differences",
    "distance": "distance (positions)",
    "shift": "shift of both (positions)",
    "layers": "branches",
    "heads": "heads",
    "times": "times the context has grown",
    "weight": "weight λ of the second map",
    "r": "length of query and key",
}
_SAYS = {"at most": "says at most", "at least": "says at least", "other than": "says other than"}
_BLUE, _RED = "#1b6ca8", "#c8452f"
_MARKERS = "osD^"  # a series' own, filled or not
SMALLEST = 8.6  # points: nine pixels where a phone shrinks the figure to its width
_LOGARITHMIC_X, _LOGARITHMIC_Y = 8, 30  # from this ratio of the largest to the smallest on


def curve_of(rows: Sequence[Row]) -> str | None:
    """Return the setting along which the numbers are a curve: the number with most values, three or more; else None."""
    counts = {}
    for name, _ in rows[0].cell.settings:
        values = {row.cell.get(name) for row in rows}
        if not any(isinstance(value, str | bool) for value in values):
            counts[name] = len(values)
    most = max(counts.values(), default=0)
    return next((name for name, count in counts.items() if count == most), None) if most >= 3 else None


@drawn_without_latex
def sentence_figure(ground: Numbers, finding: Finding, along: str) -> Figure:
    """
    Return what a sentence says and what is exact along a setting, with what was measured through the core.

    A line each, the sentence's broken, and a marker each where other settings vary; bars are two standard errors.
    """
    figure = new_figure(4.4, 2.9)
    figure.set_layout_engine("none")  # fitting margins to the labels draws each figure twice, of more than a hundred
    title = bool(finding.regime)
    axes = figure.subplots(gridspec_kw={"left": 0.27, "right": 0.97, "bottom": 0.16, "top": 0.86 if title else 0.97})
    axes.tick_params(labelsize=SMALLEST)
    series = series_of(finding.rows, along)
    for place, (label, rows) in enumerate(series.items()):
        _draw(axes, rows, along, _MARKERS[place % len(_MARKERS)], label, _SAYS.get(ground.relation, "says"))
    _scale_axes(axes, finding.rows, along)
    axes.set_xlabel(_AXES.get(along, along), fontsize=SMALLEST)
    axes.set_ylabel(_wrapped(ground.what, 32), fontsize=SMALLEST)
    if finding.regime:
        axes.set_title(_wrapped(finding.regime, 60), fontsize=SMALLEST)
    axes.legend(fontsize=SMALLEST, frameon=False)
    return figure


def _wrapped(text: str, width: int) -> str:
    return "\n".join(map(drawable, textwrap.wrap(text, width)))


def series_of(rows: Sequence[Row], along: str) -> dict[str, list[Row]]:
    """Return the rows by the settings that vary at one place of the curve, in order."""
    names = [name for name, _ in rows[0].cell.settings]
    places = {row.cell.get(along) for row in rows}

    def varies(name: str) -> bool:
        return any(len({row.cell.get(name) for row in rows if row.cell.get(along) == at}) > 1 for at in places)

    varying = [name for name in names if varies(name)]
    series: dict[str, list[Row]] = {}
    for row in rows:
        label = ", ".join(_setting(row.cell, name) for name in varying)
        series.setdefault(label, []).append(row)
    return series


def _setting(cell: Cell, name: str) -> str:
    value: Any = cell.get(name)
    return value if isinstance(value, str) else f"{name} = {value:g}"


def _draw(axes: Axes, rows: Sequence[Row], along: str, marker: str, label: str, says: str) -> None:
    suffix = f", {label}" if label else ""
    x = [float(row.cell.get(along)) for row in rows]
    drawn = [row for row in rows if row.measured is not None]
    axes.plot(
        x, [row.exact for row in rows], "-", color=_BLUE, marker="" if drawn else marker, ms=4, label="exact" + suffix
    )
    axes.plot(x, [row.says for row in rows], "--", color=_RED, label=says + suffix)
    if drawn:
        x = [float(row.cell.get(along)) for row in drawn]
        measured = np.array([row.measured for row in drawn])
        axes.errorbar(
            x,
            measured[:, 0],
            2 * measured[:, 1],
            fmt=marker,
            ms=4,
            capsize=2,
            color="#000000",
            label="measured, ± 2 SE" + suffix,
        )


def _scale_axes(axes: Axes, rows: Sequence[Row], along: str) -> None:
    x = sorted({float(row.cell.get(along)) for row in rows})
    if x[0] > 0 and x[-1] >= _LOGARITHMIC_X * x[0]:
        axes.set_xscale("log")
    axes.set_xticks(x, [_tick(value) for value in x])
    axes.minorticks_off()
    y = [value for row in rows for value in (row.says, row.exact)]
    if min(y) > 0 and max(y) >= _LOGARITHMIC_Y * min(y):
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif max(y) - min(y) <= 1e-6 * max(map(abs, y)) and max(y) != 0.0:  # a constant: do not magnify its rounding
        margin = 0.5 * abs(max(y))
        axes.set_ylim(min(y) - margin, max(y) + margin)


def _tick(value: float) -> str:
    if 1e4 <= value < 1e7 and value == int(value) and value % 1e5:
        return f"{value:,.0f}"
    power = round(math.log10(value)) if value >= 1e5 else 0
    return rf"$10^{{{power}}}$" if power and math.isclose(value, 10.0**power) else f"{value:.4g}"


def described(finding: Finding, along: str) -> str:
    """Return the figure in words: where it runs and what it shows at both ends."""
    first, last = finding.rows[0], finding.rows[-1]
    words = f"Along {_AXES.get(along, along)}. First {first}. Last {last}."
    return words + f" The sentence {'fails' if finding.holds == 'no' else 'holds'} here."
