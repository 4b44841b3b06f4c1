"""Figures: what they show, and that drawing leaves the user's matplotlib alone."""

import os
import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

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
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"]
    assert any(list(line.get_ydata()) == [1.02, 1.02] for line in lines)


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
        "[drawing.svg(heatmaps.weights_figure(np.eye(3))) for _ in range(21)]\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    environment = {k: v for k, v in os.environ.items() if k not in {"DISPLAY", "MPLBACKEND"}} | {"MPLBACKEND": "TkAgg"}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env=environment)
