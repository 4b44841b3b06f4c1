"""The report: self-contained, escaped, complete or not there at all."""

import os
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import attnsym
from analysis import CLAIMS, audit_tensors, confirm, run_study
from analysis.cli import main
from analysis.show.illustrations import self_attention, ten_keys
from analysis.show.report import write_report

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


class Page(HTMLParser):
    """Collects tags, links and text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in {"src", "href", "xlink:href"}]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def study():
    return run_study("entropy", d_k=(4, 16), n_keys=4, replicates=200, seed=3)


@pytest.fixture(scope="module")
def audit():
    q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 6, 4))
    return audit_tensors(q, k)


@pytest.fixture(scope="module")
def page(study, audit, tmp_path_factory):
    path = write_report(tmp_path_factory.mktemp("report") / "r.html", studies=[study], audits=[audit])
    return path.read_text(encoding="utf-8")


def test_loads_nothing_and_runs_nothing(page):
    parsed = Page(page)
    assert "script" not in parsed.tags
    assert [link for link in parsed.links if not link.startswith(("#", "data:image/png;base64,"))] == []
    assert re.findall(r"url\((?!#)", page) == []


def test_has_every_part(page):
    parsed = Page(page)
    assert parsed.tags.count("math") > 10
    assert parsed.tags.count("svg") == 4  # the study, the ten keys, the heatmap, the audit's map
    text = " ".join(" ".join(parsed.text).split())
    for part in ("the variance of a score is d_k", "shares of a mixture", "1,000 draws", "Provenance", "seed"):
        assert part in text


def test_numbers_of_the_study_are_shown(page, study):
    for row in study.rows:
        assert f"{row.estimate:.6g}" in page
        assert f"{row.prediction:.8g}" in page


def test_names_are_escaped(audit, tmp_path):
    heads = tuple(replace(head, layer=HOSTILE, cause=HOSTILE) for head in audit.heads)
    hostile = replace(audit, source=HOSTILE, heads=heads)
    text = write_report(tmp_path / "r.html", audits=[hostile]).read_text(encoding="utf-8")
    parsed = Page(text)
    assert "script" not in parsed.tags
    assert "img" not in parsed.tags
    assert "alert(2)" in " ".join(parsed.text)


def test_a_confirmation_is_a_row_per_claim_with_its_verdict(tmp_path):
    chosen = [claim for claim in CLAIMS if claim.key in {"score-mean", "softcap-bound"}]
    result = confirm(chosen, budget=0.2)
    text = write_report(tmp_path / "r.html", confirmation=result).read_text(encoding="utf-8")
    section = text.split('id="confirmed"')[1].split("</section>")[0]
    for row in result.claims:
        assert row.claim.key in section
        assert f">{row.verdict.value}</span>" in section
    assert f"{result.critical_z:.2f}" in section


def test_an_unwritable_place_is_refused_before_any_work(tmp_path, capsys):
    for place in (tmp_path, tmp_path / "missing" / "r.html"):
        with pytest.raises(OSError, match="must name a file in an existing folder"):
            write_report(place)
        assert main(["report", "--output", str(place)]) == 2
        error = capsys.readouterr().err
        assert "--output must name a file" in error
        assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"studies": ["x"]}, "studies must hold Study results: got str"),
        ({"audits": [attnsym.softmax]}, "audits must hold TensorAudit results: got function"),
        ({"audits": 3}, "audits must be a sequence of TensorAudit: got int"),
        ({"confirmation": 3}, "confirmation must be a Confirmation: got int"),
    ],
)
def test_other_results_are_refused_by_name(tmp_path, arguments, named):
    with pytest.raises(ValueError, match=named):
        write_report(tmp_path / "r.html", **arguments)


def test_a_single_study_is_refused_by_name(study, tmp_path):
    with pytest.raises(ValueError, match="studies must be a sequence of Study: got Study"):
        write_report(tmp_path / "r.html", studies=study)


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "r.html"
    target.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(target)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_ten_keys_unscaled_is_near_one_hot_in_the_mean_but_not_in_every_draw():
    result = ten_keys()
    # mean .953 and 14 % below .9 hold in the limit; 1,000 draws, 4.4 standard errors (two-sided 1e-5)
    spread = result.largest_unscaled.std(ddof=1) / np.sqrt(result.n_draws)
    assert abs(result.largest_unscaled.mean() - 0.953) < 4.4 * spread + 5e-4
    assert abs((result.largest_unscaled < 0.9).mean() - 0.14) < 4.4 * np.sqrt(0.14 * 0.86 / 1000) + 5e-3
    assert result.largest_scaled.mean() < 0.5
    for weights in (result.unscaled, result.scaled):
        assert weights.shape == (10,)
        assert abs(weights.sum() - 1) < 10 * np.finfo(float).eps


def test_self_attention_rows_are_mixtures():
    weights = self_attention()
    assert weights.shape == (10, 10)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=10 * np.finfo(float).eps)
