"""Matrices as maps: attention weights, and an audit's layers by heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.audit.tensors.rows import HeadAudit
from analysis.show.drawing import drawable, drawn_without_latex, new_figure, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from analysis.audit.tensors.result import TensorAudit
    from analysis.audit.weights.result import WeightsAudit

_LARGEST_MAP = 256
_ON_LIGHT = "#010101"  # not the black that a dark page turns light: the cell behind it stays light


@drawn_without_latex
def weights_figure(weights: ArrayLike, *, title: str = "attention weights", tokens: Sequence[str] = ()) -> Figure:
    """
    Draw a weight matrix of shape (n_queries, n_keys): keys across, queries down, with a colour bar.

    A matrix with more than 256 rows or columns is shown as the largest weight of each block of cells, and the title
    says so, since averaging or dropping cells would hide a single large weight. `tokens`, one a row and column, are
    written along both sides.
    """
    array = np.asarray(weights, dtype=float)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"weights must be a non-empty matrix (n_queries, n_keys): got shape {array.shape}")
    shown, block = _block_maxima(array)
    figure = new_figure(3.7, 3.5) if tokens else new_figure(4.8, 4.0)  # the former fits a phone without shrinking
    axis = figure.subplots()
    note = "" if block == (1, 1) else f" (largest of each {block[0]}×{block[1]} block)"
    _heatmap(axis, shown, label="weight", vmin=0.0, extent=_extent(array, shown))
    axis.set(xlabel="key", ylabel="query")
    if tokens:
        if array.shape != (len(tokens), len(tokens)):
            raise ValueError(f"tokens must name each row and column: got {len(tokens)} for shape {array.shape}")
        names = [shortened(token) for token in tokens]
        axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7.5)
        axis.set_yticks(range(len(names)), names, fontsize=7.5)
    axis.set_title(drawable(title) + note, fontsize=10)
    return figure


@drawn_without_latex
def map_figure(values: ArrayLike, *, title: str, label: str = "", row_names: Sequence[str] = ()) -> Figure:
    """Draw a matrix (layers, heads) as a map, NaN left blank, each cell with its number where there is room."""
    array = _matrix(values)
    figure = new_figure(
        min(1.6 + 0.5 * array.shape[1], 14), min(max(2.2, 1.2 + 0.36 * array.shape[0]), 12)
    )  # room for the label of the colours
    map_axes(array, title=title, label=label, row_names=row_names, ax=figure.subplots())
    return figure


@drawn_without_latex
def map_axes(
    values: ArrayLike,
    *,
    title: str,
    label: str = "",
    row_names: Sequence[str] = (),
    logarithmic: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """
    Draw as `map_figure` does, into `ax` or the only Axes of a new figure, and return it.

    `logarithmic` colours by the logarithm and leaves values that have none blank.
    """
    array = _matrix(values)
    if logarithmic:
        array = np.where(array > 0, array, np.nan)
    axis = new_figure(5.2, 4.0).subplots() if ax is None else ax
    _heatmap(axis, array, label=label, logarithmic=logarithmic and bool(np.isfinite(array).any()))
    axis.set(xlabel="head", ylabel="layer")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if 0 < len(row_names) <= 40:
        axis.set_yticks(range(len(row_names)), [shortened(name) for name in row_names], fontsize=8)
    axis.set_title(drawable(title), fontsize=10)
    if array.size <= 400:
        shade = np.log(array) if logarithmic else array
        middle = np.nanmin(shade) + 0.6 * (np.nanmax(shade) - np.nanmin(shade)) if np.isfinite(shade).any() else 0.0
        for (i, j), value in np.ndenumerate(array):
            if np.isfinite(value):
                colour = _ON_LIGHT if shade[i, j] > middle else "white"
                axis.text(j, i, _cell(value), ha="center", va="center", fontsize=7.5, color=colour)
    return axis


def _cell(value: float) -> str:
    return f"{value:.0f}" if 99.5 <= abs(value) < 9999.5 else f"{value:.2g}"


def _matrix(values: ArrayLike) -> Any:
    array = np.asarray(values, dtype=float)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"values must be a non-empty matrix (layers, heads): got shape {array.shape}")
    return array


def audit_map(audit: TensorAudit | WeightsAudit) -> Figure:
    """
    Draw an audit as a layers × heads map of entropy over its maximum: 1 is uniform, 0 one-hot.

    Of tensors it is entropy / log(visible keys), of weights the expected entropy / log(n_keys).
    """
    values, layers, title, label = _audited(audit, "entropy")
    return map_figure(values, title=title, label=label, row_names=layers)


def audit_axes(audit: TensorAudit | WeightsAudit, quantity: str = "entropy", *, ax: Axes | None = None) -> Axes:
    """
    Draw an audit's layers × heads map of one quantity into one Axes, size coloured by its logarithm.

    Parameters
    ----------
    audit : TensorAudit or WeightsAudit
    quantity : {"entropy", "variance", "largest"}
        Entropy over its maximum, the variance within rows, the largest |score| (of weights, its bound).
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the only Axes of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        For another quantity, or an audit without heads.
    """
    values, layers, title, label = _audited(audit, quantity)
    logarithmic = quantity != "entropy"
    return map_axes(values, title=title, label=label, row_names=layers, logarithmic=logarithmic, ax=ax)


# field of tensors, of weights, and their titles
_MAPPED = {
    "entropy": ("entropy_ratio", "entropy_fraction", "entropy / log(visible keys)", "expected entropy / log({})"),
    "variance": ("within_row_variance", "score_variance", "variance within rows", "variance of isotropic tokens"),
    "largest": ("largest_score", "score_bound", "largest |score|", "bound on |score|"),
}


def _audited(audit: TensorAudit | WeightsAudit, quantity: str) -> tuple[Any, list[str], str, str]:
    """Return the map of a quantity, the layers' names, title and label."""
    if quantity not in _MAPPED:
        raise ValueError(f"quantity must be one of {', '.join(_MAPPED)}: got {quantity!r}")
    of_tensors, of_weights, title, title_of_weights = _MAPPED[quantity]
    layers = list(dict.fromkeys(head.layer for head in audit.heads))
    values = np.full((len(layers), 1 + max((head.head for head in audit.heads), default=0)), np.nan)
    for head in audit.heads:
        values[layers.index(head.layer), head.head] = getattr(
            head, of_tensors if isinstance(head, HeadAudit) else of_weights
        )
    words = title_of_weights.format(audit.n_keys) if hasattr(audit, "n_keys") else title
    return values, layers, words, "1 uniform, 0 one-hot" if quantity == "entropy" else ""


def _heatmap(
    axis: Axes, array: Any, *, label: str, vmin: float | None = None, extent: Any = None, logarithmic: bool = False
) -> None:
    norm: Any = {"norm": "log"} if logarithmic else {"vmin": vmin}
    image = axis.imshow(array, cmap="viridis", aspect="auto", interpolation="nearest", extent=extent, **norm)
    axis.figure.colorbar(image, ax=axis, label=label)


def _block_maxima(array: Any) -> tuple[Any, tuple[int, int]]:
    block = tuple(-(-size // _LARGEST_MAP) for size in array.shape)
    for axis, size in enumerate(block):
        if size > 1:
            array = np.fmax.reduceat(array, np.arange(0, array.shape[axis], size), axis=axis)
    return array, (block[0], block[1])


def _extent(array: Any, shown: Any) -> tuple[float, float, float, float] | None:
    if shown.shape == array.shape:
        return None
    return (-0.5, array.shape[1] - 0.5, array.shape[0] - 0.5, -0.5)
