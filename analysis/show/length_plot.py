"""What longer contexts do to a needle and to the entropy, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from analysis.show.drawing import drawn_without_latex, new_figure

PANELS = (
    ("needle_weight", "needle's weight", "linear"),
    ("entropy_fraction", "entropy / log n", "linear"),
    ("effective_keys", "effective keys", "log"),
)


@drawn_without_latex
def length_figure(rows: Sequence[Any]) -> Figure:
    """
    Draw the needle's weight, the entropy fraction and the effective keys over the length, a line a formula.

    Parameters
    ----------
    rows : sequence of LengthRow

    Returns
    -------
    Figure
    """
    figure = new_figure(11.0, 3.6)
    for axis, (field, label, scale) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for formula in dict.fromkeys(row.formula for row in rows):
            members = [row for row in rows if row.formula == formula]
            style = "--" if formula.startswith("keeps") else "-"
            values = [getattr(row, field) for row in members]
            axis.plot([row.n_keys for row in members], values, style, marker="o", markersize=3, label=formula)
        axis.set(xscale="log", yscale=scale, xlabel="keys", ylabel=label)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure
