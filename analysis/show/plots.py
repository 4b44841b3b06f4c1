"""Figures of finished studies and histories. Pure functions: they compute no statistic."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from analysis.show.drawing import SCALE_COLOURS, drawable, new_figure, shortened
from analysis.vocabulary.quantities import QUANTITIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from analysis.audit.live.history import WatchRow
    from analysis.measure.result import Study

_OTHER_COLOURS = ("#3a7d44", "#7b4fa3", "#b8860b", "#4d4d4d")
_MARKERS = "osD^vPX"

_SCALE = {"sqrt": "divided by √d_k", "unscaled": "unscaled"}


def study_figure(*studies: Study, columns: int = 3) -> Figure:
    """
    Draw finished studies: a panel per quantity and statistic, error bars measured, lines predicted.

    Parameters
    ----------
    *studies : Study
        Their rows are drawn as they are; nothing is simulated again.
    columns : int, optional
        Panels side by side.

    Returns
    -------
    matplotlib.figure.Figure
        Horizontally d_k (or n_keys, where only that varies), logarithmic; one colour per scale, one marker per
        n_keys. Bars are the rows' own intervals; on a logarithmic axis a bar that reaches zero or below is drawn to
        the lower edge.

    Raises
    ------
    ValueError
        Where there is no row to draw.
    """
    rows = [row for study in studies for row in study.rows]
    if not rows:
        raise ValueError("studies must have at least one row to draw: got none")
    panels = _grouped(rows, lambda row: (row.quantity, str(row.statistic)))
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    figure = new_figure(3.6 * columns + 0.4, 3.1 * lines + 0.3)
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis, ((quantity, statistic), members) in zip(axes, panels.items(), strict=False):
        _study_panel(axis, members)
        axis.set_title(
            f"{statistic} of {QUANTITIES[quantity].label if quantity in QUANTITIES else drawable(quantity)}",
            fontsize=10,
        )
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def _study_panel(axis: Axes, rows: Sequence[Any]) -> None:
    by_keys = len({row.d_k for row in rows}) == 1 and len({row.n_keys for row in rows}) > 1
    estimates = np.array([row.estimate for row in rows], dtype=float)
    positive = bool(np.all(estimates > 0))
    wide = positive and estimates.max() > 20 * estimates.min()
    markers = {keys: _MARKERS[i % len(_MARKERS)] for i, keys in enumerate(sorted({row.n_keys for row in rows}))}
    colours = _colours(row.scale for row in rows)
    series = _grouped(rows, lambda row: (row.scale, row.law, None if by_keys else row.n_keys))
    for (scale, law, n_keys), members in series.items():
        members = sorted(members, key=lambda row: (row.d_k, row.n_keys))
        x = np.array([row.n_keys if by_keys else row.d_k for row in members], dtype=float)
        label = _series_label(scale, law, n_keys, rows)
        _error_bars(axis, x, members, colours[scale], markers[members[0].n_keys], label, logarithmic=wide)
        predicted = [(xi, row.prediction) for xi, row in zip(x, members, strict=True) if row.prediction is not None]
        if predicted:
            axis.plot(*zip(*predicted, strict=True), "-", color=colours[scale], linewidth=1, alpha=0.8)
    axis.set_xscale("log", base=2)
    axis.set_xlabel("n_keys" if by_keys else "d_k")
    if wide:
        axis.set_yscale("log")
    elif positive:
        axis.set_ylim(bottom=0)


def _error_bars(
    axis: Axes, x: Any, rows: Sequence[Any], colour: str, marker: str, label: str, *, logarithmic: bool
) -> None:
    y = np.array([row.estimate for row in rows], dtype=float)
    low, high = (np.array([row.interval[side] for row in rows], dtype=float) for side in (0, 1))
    if logarithmic:
        low = np.maximum(low, y / 1e3)  # a logarithmic axis would silently drop a bar that crosses zero
    bars = np.nan_to_num(np.array([y - low, high - y])).clip(min=0)
    axis.errorbar(x, y, yerr=bars, fmt=marker, color=colour, markersize=3.5, capsize=2, linewidth=1, label=label)


def _series_label(scale: str, law: Any, n_keys: Any, rows: Sequence[Any]) -> str:
    parts = [_SCALE.get(scale, f"scale {scale}")]
    if n_keys is not None and len({row.n_keys for row in rows}) > 1:
        parts.append(f"{n_keys} keys")
    if len({str(row.law) for row in rows}) > 1:
        parts.append(str(law))
    return drawable(", ".join(parts))


def ten_keys_figure(panels: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> Figure:
    """
    Draw one query's weights over its keys as bars, and beside them many draws' largest weights.

    Parameters
    ----------
    panels : mapping of str to (weights, largest_weights)
        Title to the weights of one draw, shape (n_keys,), and the largest weight of each of many draws, shape
        (n_draws,).
    """
    figure = new_figure(8.2, 2.9 * len(panels))
    grid = figure.subplots(len(panels), 2, squeeze=False, width_ratios=(2, 1.2))
    for (bars, strip), (title, (weights, largest)), colour in zip(
        grid, panels.items(), itertools.cycle((SCALE_COLOURS["unscaled"], SCALE_COLOURS["sqrt"])), strict=False
    ):
        weights, largest = np.asarray(weights), np.asarray(largest)
        bars.bar(np.arange(1, weights.size + 1), weights, color=colour)
        bars.set(ylim=(0, 1), xlabel="key", ylabel="weight", xticks=np.arange(1, weights.size + 1))
        bars.set_title(title, fontsize=10)
        strip.hist(largest, bins=np.linspace(0, 1, 41), color=colour)
        strip.axvline(weights.max(), color="black", linewidth=1, linestyle="--")
        strip.set(xlim=(0, 1), xlabel="largest weight", ylabel="draws")
        strip.set_title(f"{largest.size:,} draws; dashed: this one", fontsize=9)
    return figure


# Field of a history's row, title, which head of a module to show, logarithmic.
_WATCHED = (
    ("largest_score", "largest |score|", max, True),
    ("within_row_variance", "within-row variance", max, True),
    ("entropy_ratio", "entropy / log(visible keys)", min, False),
    ("dead_row_fraction", "share of dead rows", max, False),
    ("query_norm", "rms ‖q‖", max, False),
    ("key_norm", "rms ‖k‖", max, False),
)


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
    modules = _grouped(rows, lambda row: row.module)
    figure = new_figure(11.2, 6.2)
    axes = figure.subplots(2, 3).ravel()
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(modules)))
    for axis, (field, title, extreme, logarithmic) in zip(axes, _WATCHED, strict=True):
        for colour, (module, members) in zip(colours, modules.items(), strict=True):
            steps = _grouped((row for row in members if np.isfinite(getattr(row, field))), lambda row: row.step)
            heights = [extreme(getattr(row, field) for row in heads) for heads in steps.values()]
            axis.plot(list(steps), heights, ".-", color=colour, linewidth=1, label=shortened(module))
            if logarithmic and heights and min(heights) > 0:
                axis.set_yscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step")
    axes[2].set_ylim(-0.02, 1.02)
    if len(modules) <= 24:
        axes[0].legend(fontsize=7, frameon=False)
    return figure


def _colours(scales: Iterable[str]) -> dict[str, str]:
    others = itertools.cycle(_OTHER_COLOURS)
    return {scale: SCALE_COLOURS.get(scale) or next(others) for scale in dict.fromkeys(scales)}


def _grouped(rows: Iterable[Any], key: Any) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
