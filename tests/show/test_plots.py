"""Figures: what they show, and that drawing leaves the user's matplotlib alone."""

import os
import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from analysis import expected_entropy
from analysis.show import drawing, heatmaps, plots


def row(**changes):
    settings = {
        "quantity": "entropy",
        "statistic": "mean",
        "law": "normal",
        "d_k": 4,
        "n_keys": 10,
        "scale": "sqrt",
        "estimate": 1.0,
        "interval": (0.9, 1.1),
        "prediction": 1.02,
        "alignment": 0.0,
        "key_correlation": 0.0,
        "score": "dot",
        "softcap": None,
        "is_causal": False,
        "sampler": "direct",
        "precision": "double",
        "seed": 0,
    }
    return SimpleNamespace(**(settings | changes))


def study(*rows):
    return SimpleNamespace(rows=rows)


def drawn_bars(figure):
    """Return every error bar as (x, low, high)."""
    bars = []
    for axis in figure.axes:
        for container in axis.containers:
            for segment in container[2][0].get_segments():
                bars.append((segment[0, 0], segment[0, 1], segment[1, 1]))
    return bars


def test_study_figure_draws_each_estimate_with_its_own_interval_and_prediction():
    rows = [
        row(d_k=d, scale=s, estimate=e, interval=(e - 0.1, e + 0.2)) for d, s, e in ((1, "sqrt", 1), (4, "sqrt", 2))
    ]
    figure = plots.study_figure(study(*rows))
    np.testing.assert_allclose(drawn_bars(figure), [(1, 0.9, 1.2), (4, 1.9, 2.2)])


def test_the_exact_line_is_exact_between_the_points_too():
    rows = [row(d_k=d, prediction=float(expected_entropy(10, d_k=d))) for d in (1, 64)]
    (line,) = [line for line in plots.study_figure(study(*rows)).axes[0].lines if len(line.get_xdata()) > 2]
    x, y = line.get_xdata(), line.get_ydata()
    assert 8 in x
    assert len(x) > 15
    np.testing.assert_allclose(y, expected_entropy(10, d_k=np.asarray(x, dtype=int)), rtol=1e-12)


def test_a_law_of_ones_own_is_joined_at_its_points():
    rows = [row(d_k=d, law="mine", prediction=1.5) for d in (1, 64)]
    (line,) = [line for line in plots.study_figure(study(*rows)).axes[0].lines if line.get_linestyle() == "-"]
    assert list(line.get_xdata()) == [1, 64]


@pytest.mark.parametrize(
    ("setting", "values", "word"),
    [
        ("alignment", (0.0, 0.5), "alignment 0.5"),
        ("softcap", (None, 20.0), "soft-cap 20"),
        ("law", ("normal", "laplace"), "laplace"),
        ("is_causal", (False, True), "causal"),
        ("key_correlation", (0.0, 0.25), "key correlation 0.25"),
        ("scale", ("0.1", "0.2", "0.3", "0.4", "0.5"), "scale 0.5"),
        ("seed", (0, 1), "seed 1"),
    ],
)
def test_every_setting_that_differs_is_a_series_with_its_word_and_mark(setting, values, word):
    rows = [row(d_k=d, prediction=None, **{setting: value}) for value in values for d in (4, 16)]
    (axis, *_) = plots.study_figure(study(*rows)).axes
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert len(labels) == len(values)
    assert word in labels
    marks = {(c[0].get_marker(), str(c[0].get_markerfacecolor()) == "none") for c in axis.containers}
    assert len(marks) == len(values)
    assert all(len(container[0].get_xdata()) == 2 for container in axis.containers)


def test_more_series_than_can_be_told_apart_are_refused():
    rows = [row(alignment=i / 100) for i in range(25)]
    with pytest.raises(ValueError, match="at most 24 combinations of settings to be told apart"):
        plots.study_figure(study(*rows))


def test_scale_is_the_x_axis_where_only_it_varies():
    rows = [row(scale=s, prediction=None) for s in ("0.25", "1/d_k", "unscaled")]
    (axis,) = plots.study_figure(study(*rows)).axes
    (container,) = axis.containers
    np.testing.assert_allclose(container[0].get_xdata(), [0.25, 0.25, 1.0])
    assert "scale" in axis.get_xlabel()


def test_an_axes_is_taken_and_returned():
    axis = Figure().subplots()
    assert plots.study_axes(study(row()), ax=axis) is axis
    assert len(axis.containers) == 1
    assert plots.study_axes(study(row())).containers
    with pytest.raises(ValueError, match="mean of entropy, mean of score"):
        plots.study_axes(study(row(), row(quantity="score")))


def test_a_notebook_shows_a_figure_without_magic():
    picture = plots.study_figure(study(row()))._repr_png_()
    assert picture.startswith(b"\x89PNG")


def test_a_panel_per_quantity_and_a_colour_per_scale():
    rows = [row(quantity=q, scale=s) for q in ("entropy", "max_weight") for s in ("sqrt", "unscaled")]
    figure = plots.study_figure(study(*rows))
    assert [axis.get_title() for axis in figure.axes if axis.get_visible()] == [
        "mean of entropy (nats)",
        "mean of largest weight",
    ]
    colours = {container[0].get_color() for container in figure.axes[0].containers}
    assert len(colours) == 2


def test_a_bar_that_crosses_zero_survives_a_logarithmic_axis():
    figure = plots.study_figure(study(row(estimate=1.0, interval=(-1.0, 3.0)), row(d_k=16, estimate=100.0)))
    assert figure.axes[0].get_yscale() == "log"
    low, high = drawn_bars(figure)[0][1:]
    assert 0 < low < 1e-2
    assert high == 3.0


def test_an_empty_study_is_refused():
    with pytest.raises(ValueError, match="at least one row"):
        plots.study_figure(study())


def test_a_single_large_weight_is_not_averaged_away():
    weights = np.zeros((1000, 700))
    weights[517, 333] = 1.0
    figure = heatmaps.weights_figure(weights)
    image = figure.axes[0].images[0].get_array()
    assert image.max() == 1.0
    assert max(image.shape) <= 256
    assert "largest of each 4×3 block" in figure.axes[0].get_title()


def test_weights_run_with_keys_across_and_queries_down():
    figure = heatmaps.weights_figure([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    axis = figure.axes[0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("key", "query")
    assert axis.images[0].get_array().shape == (2, 3)
    assert axis.yaxis_inverted()
    assert len(figure.axes) == 2  # the colour bar


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((0, 3)), np.zeros((2, 2, 2))])
def test_maps_refuse_what_is_no_matrix(bad):
    with pytest.raises(ValueError, match="non-empty matrix"):
        heatmaps.weights_figure(bad)
    with pytest.raises(ValueError, match="non-empty matrix"):
        heatmaps.map_figure(bad, title="t")


def watch_row(step, module, **changes):
    values = {
        "largest_score": 1.0,
        "within_row_variance": 1.0,
        "entropy_ratio": 0.5,
        "dead_row_fraction": 0.0,
        "query_norm": 1.0,
        "key_norm": 1.0,
    }
    return SimpleNamespace(step=step, module=module, **(values | changes))


def test_a_watched_module_shows_its_most_extreme_head_at_each_step():
    rows = [
        watch_row(0, "a", largest_score=2.0, entropy_ratio=0.9),
        watch_row(0, "a", largest_score=5.0, entropy_ratio=0.3),
        watch_row(1, "a", largest_score=np.nan),
        watch_row(2, "a", largest_score=7.0),
        watch_row(0, "b"),
    ]
    scores, _, entropies = plots.watch_figure(rows).axes[:3]
    assert [list(line.get_xdata()) for line in scores.lines] == [[0, 2], [0]]
    assert [list(line.get_ydata()) for line in scores.lines] == [[5.0, 7.0], [1.0]]
    assert list(entropies.lines[0].get_ydata()) == [0.3, 0.5, 0.5]
    with pytest.raises(ValueError, match="at least one step"):
        plots.watch_figure([])


def test_svg_is_reproducible_well_formed_and_self_contained():
    first, second = (drawing.svg(heatmaps.weights_figure(np.eye(3))) for _ in range(2))
    assert first == second
    root = ElementTree.fromstring(first)
    links = [
        v for e in root.iter() for k, v in e.attrib.items() if k.endswith("href") and not v.startswith(("#", "data:"))
    ]
    assert links == []


def test_names_are_drawn_verbatim_or_as_code_points():
    with pytest.warns(UserWarning, match="lacks"):
        title = heatmaps.weights_figure(np.eye(2), title="层 $x$").axes[0].get_title()
    assert title == r"\u5c42 \$x\$"


def test_drawing_needs_no_display_and_leaves_pyplot_alone():
    code = (
        "import sys, numpy as np\nfrom analysis.show import drawing, heatmaps\n"
        "drawing.svg(heatmaps.weights_figure(np.eye(3)))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    environment = {k: v for k, v in os.environ.items() if k not in {"DISPLAY", "MPLBACKEND"}} | {"MPLBACKEND": "TkAgg"}
    subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code], check=True, env=environment
    )
