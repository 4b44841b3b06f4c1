"""The figures for use from Python: studies, the ten keys, histories, and maps. They compute no statistic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps

from analysis.show.drawing import SCALE_COLOURS, drawn_without_latex, new_figure, shortened
from analysis.show.heatmaps import audit_axes, audit_map, map_axes, map_figure, weights_figure
from analysis.show.study_plots import grouped, study_axes, study_figure, study_panels
from analysis.show.trend_plots import growth_map, trend_axes, trends_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from analysis.audit.live.history import WatchRow

__all__ = [
    "audit_axes",
    "audit_map",
    "growth_map",
    "map_axes",
    "map_figure",
    "study_axes",
    "study_figure",
    "study_panels",
    "ten_keys_panels",
    "trend_axes",
    "trends_figure",
    "watch_figure",
    "weights_figure",
]


@drawn_without_latex
def ten_keys_panels(panels: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> list[Figure]:
    """
    Draw one query's weights over its keys as bars, and beside them many draws' largest weights.

    Parameters
    ----------
    panels : mapping of str to (weights, largest_weights)
        Title (mathtext) to the weights of one draw, shape (n_keys,), and the largest weight of each of many draws,
        shape (n_draws,).

    Returns
    -------
    list of Figure
        Two figures a panel: bars, then the histogram.
    """
    figures = []
    for (title, (weights, largest)), colour in zip(panels.items(), reversed(SCALE_COLOURS.values()), strict=False):
        weights, largest = np.asarray(weights), np.asarray(largest)
        bars = new_figure(3.9, 2.7)
        axis = bars.subplots()
        axis.bar(np.arange(weights.size), weights, color=colour)
        axis.set(ylim=(0, 1), xlabel="key", ylabel="weight", xticks=np.arange(weights.size))
        axis.set_title(title, fontsize=10)
        strip = new_figure(3.4, 2.7)
        axis = strip.subplots()
        axis.hist(largest, bins=np.linspace(0, 1, 41).tolist(), color=colour)
        axis.axvline(float(weights.max()), color="black", linewidth=1, linestyle="--")
        axis.set(xlim=(0, 1), xlabel="largest weight", ylabel="draws")
        axis.set_title(f"{largest.size:,} draws; dashed: this one", fontsize=10)
        figures += [bars, strip]
    return figures


# Field of a history's row, title, which head of a module to show, logarithmic.
_WATCHED = (
    ("largest_score", "largest |score|", max, True),
    ("within_row_variance", "within-row variance", max, True),
    ("entropy_ratio", "entropy / log(visible keys)", min, False),
    ("dead_row_fraction", "share of dead rows", max, False),
    ("query_norm", "rms ‖q‖", max, False),
    ("key_norm", "rms ‖k‖", max, False),
)


@drawn_without_latex
def watch_figure(rows: Sequence[WatchRow]) -> Figure:
    """
    Draw the history of a watched model: a line per module against the step, each showing its most extreme head.

    Parameters
    ----------
    rows : sequence of WatchRow
        A watcher's ``rows``, or what `read_history` returns. The extreme head is the one with the lowest entropy, and
        the highest of everything else; a step without a finite value is left out.

    Raises
    ------
    ValueError
        For an empty history.
    """
    if not rows:
        raise ValueError("rows must hold at least one step to draw: got none")
    modules = grouped(rows, lambda row: row.module)
    figure = new_figure(11.2, 6.2)
    axes = figure.subplots(2, 3).ravel()
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(modules)))
    for axis, (field, title, extreme, logarithmic) in zip(axes, _WATCHED, strict=True):
        for colour, (module, members) in zip(colours, modules.items(), strict=True):
            steps = grouped((row for row in members if np.isfinite(getattr(row, field))), lambda row: row.step)
            heights = [extreme(getattr(row, field) for row in heads) for heads in steps.values()]
            axis.plot(list(steps), heights, ".-", color=colour, linewidth=1, label=shortened(module))
            if logarithmic and heights and min(heights) > 0:
                axis.set_yscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step")
    axes[2].set_ylim(-0.02, 1.02)
    if len(modules) <= 24:
        axes[0].legend(fontsize=7.5, frameon=False)
    return figure
