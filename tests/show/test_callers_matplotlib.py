"""matplotlib's settings are the caller's: none of them ends a drawing, and none is changed."""

import logging

import matplotlib
import numpy as np
import pytest

from analysis import audit_example, audit_trends, audit_weights, run_study, write_report
from analysis.show import drawing, heatmaps, plots

HOSTILE = {
    "text.usetex": True,
    "svg.image_inline": False,
    "savefig.bbox": "tight",
    "axes.prop_cycle": matplotlib.cycler(linestyle=["-", "--"]),
    "font.size": 40,
    "axes.grid": True,
}


@pytest.fixture(scope="module")
def drawings():
    study = run_study("entropy", d_k=(4, 16), n_keys=8, replicates=100, statistic=("mean", "median"))
    audit = audit_example()
    trends = audit_trends({step: audit_weights(step * np.eye(4), np.eye(4), num_heads=2) for step in (1, 2, 3)})
    return {
        "study": lambda: drawing.svg(study.plot()),
        "notebook": lambda: study.plot()._repr_png_(),
        "weights": lambda: drawing.svg(heatmaps.weights_figure(np.eye(3))),
        "audit": lambda: drawing.svg(plots.audit_map(audit)),
        "trends": lambda: drawing.svg(plots.trends_figure(trends)),
        "page": lambda: write_report("page.html", studies=[study], audits=[audit]).read_text(encoding="utf-8"),
    }


@pytest.mark.parametrize(
    "name", ["study", "notebook", "weights", "audit", "trends", pytest.param("page", marks=pytest.mark.slow)]
)
def test_no_setting_ends_a_drawing_or_changes(drawings, name, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    with matplotlib.rc_context(HOSTILE):
        before = dict(matplotlib.rcParams)
        with caplog.at_level(logging.WARNING):
            drawn = drawings[name]()
        assert dict(matplotlib.rcParams) == before
    assert drawn
    assert caplog.records == []
    assert [path.name for path in tmp_path.iterdir()] == (["page.html"] if name == "page" else [])


@pytest.mark.slow
def test_a_page_is_drawn_by_the_defaults(drawings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = drawings["page"]()
    with matplotlib.rc_context(HOSTILE):
        assert drawings["page"]() == plain
