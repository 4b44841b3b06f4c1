"""Pictures of a run and of an audit's maps: what stands in them, in colour and in grey."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from analysis import audit_example, audit_trends, audit_weights, plots, write_report
from analysis.show.views import audit_view

STEPS = range(0, 700, 100)


@pytest.fixture(scope="module")
def trends():
    w_q, w_k = np.random.default_rng(0).standard_normal((2, 32, 32)) / np.sqrt(32)
    audits = {}
    for step in STEPS:
        grown = w_k.copy()
        grown[:, 8:16] *= np.exp(step / 300)
        grown[:, 16:24] *= np.exp(max(0, step - 200) / 1500)
        audits[step] = audit_weights({"first": w_q, "second": w_q}, {"first": w_k, "second": grown}, num_heads=4)
    return audit_trends(audits)


def named_lines(axis):
    return [line for line in axis.lines if line.get_label().startswith("second")]


def test_a_runs_urgent_heads_are_named_the_others_grey(trends):
    axis = plots.trend_axes(trends)
    named = named_lines(axis)
    assert [line.get_label() for line in named] == ["second, head 1", "second, head 2"]
    for line, head in zip(named, trends.urgent, strict=True):
        assert list(line.get_xdata()) == list(STEPS)
        assert tuple(line.get_ydata()) == head.variance
    crowd = [line for line in axis.lines if str(line.get_color()) == "#b0b0b0"]
    assert len(crowd) == len(trends.heads) - 2
    assert "target 4" in [text.get_text() for text in axis.get_legend().get_texts()]
    assert axis.get_yscale() == "log"


def test_named_heads_are_told_apart_in_grey(trends):
    named = named_lines(plots.trend_axes(trends))
    assert len({line.get_marker() for line in named}) == len(named)
    greys = [np.dot(to_rgb(line.get_color()), (0.2126, 0.7152, 0.0722)) for line in named]
    assert np.min(np.diff(greys)) > 0.1


def test_an_extrapolated_crossing_is_dotted_with_its_error(trends):
    axis = plots.trend_axes(trends)
    head = trends.urgent[1]
    step, error = head.crossing["variance"]
    assert STEPS[-1] < step < 2 * STEPS[-1]
    (dotted,) = [line for line in axis.lines if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == [STEPS[-1], step]
    assert list(dotted.get_ydata()) == [head.variance[-1], 4.0]
    (bar,) = axis.collections
    assert bar.get_segments()[0][:, 0] == pytest.approx([step - error, step + error])


def test_axes_are_taken_and_returned(trends):
    axes = Figure().subplots(1, 4)
    assert plots.trend_axes(trends, "entropy", ax=axes[0]) is axes[0]
    assert plots.growth_map(trends, ax=axes[1]) is axes[1]
    assert plots.audit_axes(audit_example(), "variance", ax=axes[2]) is axes[2]
    assert plots.trend_axes(trends, "largest", ax=axes[3]).get_title() == "bound on every |score|"
    growth = axes[1].images[0].get_array()
    assert growth.shape == (2, 4)
    assert growth[1, 1] == pytest.approx(np.exp(4))
    assert [head.within_row_variance for head in audit_example().heads] == pytest.approx(
        axes[2].images[0].get_array().ravel()
    )


@pytest.mark.parametrize("draw", [plots.trend_axes, plots.audit_axes])
def test_unknown_quantities_are_refused(trends, draw):
    with pytest.raises(ValueError, match="quantity must be one of"):
        draw(trends if draw is plots.trend_axes else audit_example(), "size")


def test_the_reports_view_of_a_run_is_told_to_a_screen_reader(trends):
    view = audit_view(trends, "1")
    assert view["title"] == "A run, steps 0 to 600"
    assert view["summary"][0].startswith("second, head 1, since step 0, because of norms of the keys")
    (figure,) = view["figures"]
    assert 'role="img" aria-labelledby="trends-1-title trends-1-desc"' in figure
    ((title, _, columns, rows),) = view["tables"]
    assert (title, len(rows)) == ("Every head", len(trends.heads))
    assert columns[:2] == ["layer", "head"]


@pytest.mark.slow
def test_the_report_shows_a_run(trends, tmp_path):
    text = write_report(tmp_path / "r.html", audits=[trends]).read_text(encoding="utf-8")
    assert "A run, steps 0 to 600" in text
    assert 'aria-labelledby="trends-1-title trends-1-desc"' in text
    assert "second, head 1, since step 0, because of norms of the keys" in text
