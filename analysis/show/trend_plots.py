"""A run's heads against its steps, and as a map of which have grown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps

from analysis.show.drawing import drawn_without_latex, new_figure, shortened
from analysis.show.heatmaps import map_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from analysis.audit.over_time.head_trend import HeadTrend
    from analysis.audit.over_time.trends import Trends

_TITLES = {"variance": "variance of scores", "entropy": "entropy / its maximum", "largest": "largest |score|"}
_MARKERS = "osD^v"  # told apart without colour
_CROWD = "#b0b0b0"
_DARK = (0.0, 0.8)  # of the map of colours: light ones vanish on paper


@drawn_without_latex
def trend_axes(trends: Trends, quantity: str = "variance", *, legend: bool = True, ax: Axes | None = None) -> Axes:
    """
    Draw every head of a run against the step: the five most urgent named, the others as thin grey lines.

    Parameters
    ----------
    trends : Trends
        From `audit_trends`.
    quantity : {"variance", "entropy", "largest"}
        Of weights, the largest is the bound on every |score|.
    legend : bool
        Name the lines; a neighbour may do so already.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the only Axes of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The target is dashed. Where a named head has not crossed it, a dotted line leads on to the step where it would,
        an extrapolation, with a bar of one standard error, if that is within another run's length.

    Raises
    ------
    ValueError
        For another quantity, or trends without heads.
    """
    if quantity not in _TITLES:
        raise ValueError(f"quantity must be one of {', '.join(_TITLES)}: got {quantity!r}")
    if not trends.heads:
        raise ValueError("trends must have at least one head to draw: got none")
    axis = new_figure(5.2, 3.4).subplots() if ax is None else ax
    named = trends.urgent[: len(_MARKERS)]
    for head in trends.heads:
        if head not in named:
            axis.plot(trends.steps, getattr(head, quantity), color=_CROWD, linewidth=0.6, zorder=1)
    colours = colormaps["viridis"](np.linspace(*_DARK, max(len(named), 2)))
    for head, marker, colour in zip(named, _MARKERS, colours, strict=False):
        label = f"{shortened(head.layer)}, head {head.head}"
        values = getattr(head, quantity)
        axis.plot(trends.steps, values, color=colour, marker=marker, markersize=4, linewidth=1.3, label=label)
        _crossing(axis, trends, head, quantity, colour)
    target = trends.targets[quantity]
    if math.isfinite(target):
        axis.axhline(target, color="black", linewidth=1, linestyle="--", label=f"target {target:g}")
    if quantity == "entropy":
        axis.set_ylim(-0.02, 1.02)
    elif any(value > 0 for head in trends.heads for value in getattr(head, quantity)):
        axis.set_yscale("log")
    axis.set(xlabel="step")
    bound = quantity == "largest" and trends.kind == "weights"
    axis.set_title("bound on every |score|" if bound else _TITLES[quantity], fontsize=10)
    if legend and axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize=7.5, frameon=False)
    return axis


@drawn_without_latex
def trends_figure(trends: Trends) -> Figure:
    """Draw a run: variance and entropy of every head against the step, and the map of their growth."""
    layers = len({head.layer for head in trends.heads})
    figure = new_figure(12.4, min(max(3.4, 1.2 + 0.3 * layers), 12))
    axes = figure.subplots(1, 3)
    trend_axes(trends, "variance", ax=axes[0])
    trend_axes(trends, "entropy", ax=axes[1], legend=False)
    growth_map(trends, ax=axes[2])
    return figure


@drawn_without_latex
def growth_map(trends: Trends, *, ax: Axes | None = None) -> Axes:
    """Draw what the variance of every head was multiplied by over a run, layers down, heads across."""
    layers = list(dict.fromkeys(head.layer for head in trends.heads))
    values = np.full((len(layers), 1 + max((head.head for head in trends.heads), default=0)), np.nan)
    for head in trends.heads:
        first, last = head.variance[0], head.variance[-1]
        values[layers.index(head.layer), head.head] = last / first if first > 0 else np.nan
    title = f"growth of the variance, steps {trends.steps[0]:,} to {trends.steps[-1]:,}"
    return map_axes(values, title=title, label="last over first", row_names=layers, logarithmic=True, ax=ax)


def _crossing(axis: Axes, trends: Trends, head: HeadTrend, quantity: str, colour: Any) -> None:
    ahead = head.crossing[quantity]
    if ahead is None:
        return
    step, error = ahead
    last, target = trends.steps[-1], trends.targets[quantity]
    if step > 2 * last - trends.steps[0]:
        return  # it would leave little room for what was measured
    axis.plot([last, step], [getattr(head, quantity)[-1], target], linestyle=":", color=colour, linewidth=1.0)
    axis.errorbar([step], [target], xerr=[error], fmt="none", capsize=2, ecolor=colour, elinewidth=1.0)
