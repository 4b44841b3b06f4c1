"""Figures of finished studies: a panel per quantity and statistic, and in it a series per setting that differs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.show.drawing import SCALE_COLOURS, drawable, drawn_without_latex, new_figure
from analysis.show.exact_line import exact_line, place
from analysis.show.tables import setting_text
from analysis.vocabulary.quantities import QUANTITIES
from analysis.vocabulary.row_shares import ROW_SHARES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from analysis.measure.result import Study

_OTHER_COLOURS = ("#3a7d44", "#7b4fa3", "#b8860b", "#5f6b7a", "#0f8b8d", "#a23b72")
# Told apart without colour: the shape, then whether it is filled.
_MARKERS = "osD^vP*X<>ph"
MOST_SERIES = 2 * len(_MARKERS)

_SCALE = {"sqrt": r"divided by $\sqrt{d_k}$", "unscaled": "unscaled"}
_AXES = {"d_k": "$d_k$ (components of a key)", "n_keys": "number of keys", "scale": r"scale (factor on $k^\top q$)"}
# Everything that may tell one row's draw from another's; the x axis takes one of the first three away.
_SETTINGS = (
    "scale", "n_keys", "d_k", "law", "alignment", "key_correlation", "score", "softcap", "is_causal", "sink", "bias",
    "normalizer", "normalizer_bias", "qk_norm", "precision", "sampler", "seed",
)  # fmt: skip
_MECHANISM = {"sink": "sink", "bias": "bias", "normalizer_bias": "normalizer bias", "qk_norm": "QK-norm"}


@drawn_without_latex
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
        Horizontally d_k (or n_keys, or the scale, where only that varies), logarithmic; one colour per scale, and a
        marker and a line of the legend for every combination of the settings that differ. Bars are the rows' own
        intervals; on a logarithmic axis a bar that reaches zero or below is drawn to the lower edge. Lines are exact,
        evaluated between the points too where the settings' names allow. A notebook shows it without any magic.

    Raises
    ------
    ValueError
        Where there is no row to draw, or more series than can be told apart.
    """
    panels = _panels(studies)
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    figure = new_figure(3.6 * columns + 0.4, 3.1 * lines + 0.3)
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis, ((quantity, statistic), members) in zip(axes, panels.items(), strict=False):
        _panel(axis, quantity, statistic, members)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    axes[0].legend(fontsize=7.5, frameon=False)
    return figure


@drawn_without_latex
def study_panels(*studies: Study) -> list[tuple[tuple[str, str], Figure]]:
    """Return the panels of `study_figure` one by one, as ((quantity, statistic), figure): a page stacks them."""
    figures = []
    for (quantity, statistic), members in _panels(studies).items():
        figure = new_figure(3.7, 3.1)
        study_axes_of(figure.subplots(), quantity, statistic, members)
        figures.append(((quantity, statistic), figure))
    return figures


@drawn_without_latex
def study_axes(*studies: Study, ax: Axes | None = None) -> Axes:
    """
    Draw studies of one quantity and one statistic into one Axes.

    Parameters
    ----------
    *studies : Study
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the only Axes of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        Where the studies hold no row, or more than one quantity or statistic.
    """
    panels = _panels(studies)
    if len(panels) > 1:
        found = ", ".join(f"{statistic} of {quantity}" for quantity, statistic in panels)
        raise ValueError(f"studies must hold one quantity and one statistic to share one Axes: got {found}")
    ((quantity, statistic), members) = next(iter(panels.items()))
    return study_axes_of(new_figure(4.4, 3.4).subplots() if ax is None else ax, quantity, statistic, members)


def study_axes_of(axis: Axes, quantity: str, statistic: str, rows: Sequence[Any]) -> Axes:
    """Draw one panel with its legend."""
    _panel(axis, quantity, statistic, rows)
    axis.legend(fontsize=7.5, frameon=False)
    return axis


def _panels(studies: Sequence[Study]) -> dict[tuple[str, str], list[Any]]:
    rows = [row for study in studies for row in study.rows]
    if not rows:
        raise ValueError("studies must have at least one row to draw: got none")
    return grouped(rows, lambda row: (row.quantity, str(row.statistic)))


def _panel(axis: Axes, quantity: str, statistic: str, rows: Sequence[Any]) -> None:
    across = _horizontal(rows)
    differing = [name for name in _SETTINGS if name != across and len({_setting(row, name) for row in rows}) > 1]
    series = grouped(rows, lambda row: tuple(_setting(row, name) for name in differing))
    if len(series) > MOST_SERIES:
        raise ValueError(
            f"studies must differ in at most {MOST_SERIES} combinations of settings to be told apart in one panel: "
            f"got {len(series)}, of {', '.join(differing)}"
        )
    estimates = np.array([row.estimate for row in rows], dtype=float)
    positive = bool(np.all(estimates > 0))
    wide = positive and estimates.max() > 20 * estimates.min()
    colours = _colours(row.scale for row in rows)
    for number, (values, members) in enumerate(series.items()):
        members = sorted(members, key=lambda row: place(row, across))
        colour = colours[members[0].scale] if "scale" in differing or len(series) == 1 else _cycled(number)
        label = ", ".join(_words(name, value) for name, value in zip(differing, values, strict=True)) or "measured"
        _error_bars(axis, members, across, colour, number, label, logarithmic=wide)
        axis.plot(*exact_line(members, across), "-", color=colour, linewidth=1, alpha=0.8)
    axis.set_xscale("log", base=10 if across == "scale" else 2)
    axis.set_xlabel(_AXES[across])
    axis.set_title(f"{drawable(statistic)} of {_label(quantity)}", fontsize=10)
    if wide:
        axis.set_yscale("log")
    elif positive:
        axis.set_ylim(bottom=0)


def _label(quantity: str) -> str:
    record = QUANTITIES.get(quantity) or ROW_SHARES.get(quantity)
    return drawable(quantity) if record is None else record.label


def _horizontal(rows: Sequence[Any]) -> str:
    """Choose the x axis: d_k, unless only the number of keys, or only positive scales, vary."""
    varies = {name for name in ("d_k", "n_keys", "scale") if len({getattr(row, name) for row in rows}) > 1}
    if varies == {"n_keys"}:
        return "n_keys"
    if "d_k" in varies or varies != {"scale"}:
        return "d_k"
    try:
        return "scale" if all(place(row, "scale") > 0 for row in rows) and len(rows) > 2 else "d_k"
    except ValueError:  # a callable's name has no value
        return "d_k"


def _setting(row: Any, name: str) -> Any:
    return getattr(row, name, None)


def _words(name: str, value: Any) -> str:
    if name == "scale":
        return _SCALE.get(value) or drawable(f"scale {value}")
    if name == "n_keys":
        return f"{value} keys"
    if name == "d_k":
        return f"$d_k$ = {value}"
    if name == "softcap":
        return "no soft-cap" if value is None else f"soft-cap {value:g}"
    if name in _MECHANISM:
        return f"no {_MECHANISM[name]}" if value is None else drawable(f"{_MECHANISM[name]} {setting_text(value)}")
    if name == "is_causal":
        return "causal" if value else "no mask"
    return drawable(str(value) if name in ("law", "precision") else f"{name.replace('_', ' ')} {value}")


def _error_bars(
    axis: Axes, rows: Sequence[Any], across: str, colour: str, number: int, label: str, *, logarithmic: bool
) -> None:
    x = np.array([place(row, across) for row in rows])
    y = np.array([row.estimate for row in rows], dtype=float)
    low, high = (np.array([row.interval[side] for row in rows], dtype=float) for side in (0, 1))
    if logarithmic:
        low = np.maximum(low, y / 1e3)  # a logarithmic axis would silently drop a bar that crosses zero
    bars = np.nan_to_num(np.array([y - low, high - y])).clip(min=0)
    turn, shape = divmod(number, len(_MARKERS))
    face = "none" if turn else colour
    style: dict[str, Any] = {"fmt": _MARKERS[shape], "color": colour, "markerfacecolor": face, "label": label}
    axis.errorbar(x, y, yerr=bars, markersize=4.5, capsize=2, linewidth=1, **style)


def _cycled(number: int) -> str:
    colours = (*SCALE_COLOURS.values(), *_OTHER_COLOURS)
    return colours[number % len(colours)]


def _colours(scales: Iterable[str]) -> dict[str, str]:
    others = itertools.cycle(_OTHER_COLOURS)
    return {scale: SCALE_COLOURS.get(scale) or next(others) for scale in dict.fromkeys(scales)}


def grouped(rows: Iterable[Any], key: Any) -> dict[Any, list[Any]]:
    """Group rows by a key, in the order in which the keys first come."""
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
