"""The report: self-contained, escaped, complete or not there at all."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import attnsym
from analysis import (
    CLAIMS,
    PUBLISHED,
    audit_tensors,
    audit_weights,
    confirm,
    expected_entropy,
    expected_jacobian_trace,
    expected_max_weight,
    run_study,
)
from analysis.cli import main
from analysis.show.derivation_views import derivation_views
from analysis.show.heatmaps import audit_map
from analysis.show.illustrations import EXAMPLE_TOKENS, example_weights, ten_keys
from analysis.show.report import write_report
from attnsym import symbolic
from attnsym.symbolic import catalogue

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


@pytest.fixture(scope="module", autouse=True)
def few_derivations():
    """Pages show three derivations here; one with all of them is slow."""
    few = {key: symbolic.DERIVATIONS[key] for key in ("score-mean", "score-variance", "rotary-scores")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symbolic, "DERIVATIONS", few)
        derivation_views.cache_clear()
        yield
    derivation_views.cache_clear()


@pytest.fixture(scope="module")
def study():
    return run_study("entropy", d_k=(4, 16), n_keys=4, replicates=200, seed=3)


@pytest.fixture(scope="module")
def audit():
    q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 6, 4))
    return audit_tensors(q, k)


@pytest.fixture(scope="module")
def page(study, audit, tmp_path_factory):
    path = write_report(
        tmp_path_factory.mktemp("report") / "r.html", studies=[study], audits=[audit], published=adjudicated()
    )
    return path.read_text(encoding="utf-8")


def adjudicated():
    """One sentence of each kind that has a curve."""
    chosen = ("frozen-participation", "one-over-sqrt-d-keeps-order-one", "one-over-d-is-only-slower")
    return [sentence.adjudicate() for sentence in PUBLISHED if sentence.key in chosen]


def test_published_sentences_stand_the_most_wrong_first(page):
    section = page.split('id="published"')[1].split("</section>")[0]
    assert "Who is right?" in section
    assert section.count("<svg") == 4
    assert "depends on whether query and key are independent" in section
    order = [section.index(key) for key in ("one-over-d-is", "one-over-sqrt-d", "frozen-participation")]
    assert order == sorted(order)


def scripts(text):
    """Return (type, content) of every script element."""
    return re.findall(r'<script(?: type="([^"]*)")?[^>]*>(.*?)</script>', text, re.DOTALL)


def test_loads_nothing_and_runs_only_its_own_script(page):
    parsed = Page(page)
    assert [link for link in parsed.links if not link.startswith(("#", "data:image/png;base64,"))] == []
    assert re.findall(r"url\((?!#)", page) == []
    (code,) = [content for kind, content in scripts(page) if kind != "application/json"]
    allowed = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in page  # whatever else got in would not run
    assert len(page) < 3_000_000


def test_has_every_part_the_picture_first(page):
    parsed = Page(page)
    assert parsed.tags.count("math") > 10
    order = [
        "ten-keys",
        "explorer",
        "argument",
        "one-query",
        "derivations",
        "measured",
        "sentence",
        "audited",
        "provenance",
    ]
    assert [name for name in re.findall(r'<(?:section|footer)[^>]*id="([a-z-]+)"', page) if name in order] == order
    text = " ".join(" ".join(parsed.text).split())
    for part in (
        "the variance of a score is d_k",
        "shares of a mixture",
        "1,000 draws",
        "√512 ≈ 22.6",
        "Apache",
        "seed",
    ):
        assert part in text


@pytest.mark.slow
def test_a_page_has_every_derivation(few_derivations, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symbolic, "DERIVATIONS", catalogue.DERIVATIONS)
        derivation_views.cache_clear()
        whole = write_report(tmp_path / "r.html").read_text(encoding="utf-8")
        derivation_views.cache_clear()
    assert len(whole) < 3_000_000
    for key in catalogue.DERIVATIONS:
        assert whole.count(f'id="derivation-{key}"') == 1
    test_ids_are_unique_and_every_figure_says_what_it_is(whole)


def test_ids_are_unique_and_every_figure_says_what_it_is(page):
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    for opening in re.findall(r"<svg[^>]*>", page):
        named = re.search(r'aria-labelledby="([^"]*)"', opening)
        assert 'role="img"' in opening
        assert set(named[1].split()) <= set(ids)


def test_the_explorer_carries_exact_curves_and_one_draw(page):
    (data,) = [json.loads(c) for kind, c in scripts(page) if kind == "application/json" and '"widths"' in c]
    for scale in data["scales"]:
        for at, width in ((0, 1), (13, 128), (23, 4096)):
            where = {"d_k": width, "scale": scale["name"]}
            for key, expected, error in (
                ("entropy", expected_entropy, 1e-4),
                ("trace", expected_jacobian_trace, 1e-4),
                ("weight", expected_max_weight, 2e-4),
            ):
                assert abs(scale[key][3][at] - float(expected(10, **where))) < error
    scores = np.array(data["scores"])
    assert scores.shape == (len(data["widths"]), data["lengths"][-1])
    deviations = scores.std(axis=1) / np.sqrt(data["widths"])
    # Given q the scores are N(0, ‖q‖²): ‖q‖/√d_k is near 1 where d_k is large.
    assert np.all(abs(deviations[-6:] - 1) < 0.25)


def test_every_withdrawn_assumption_names_the_step_that_breaks(page):
    text = page[page.index('id="derivation-score-variance"') :]
    (data,) = [json.loads(c) for kind, c in scripts(text[: text.index("</details>")]) if kind == "application/json"]
    broken = {w["assumption"]: (w["step"], w["truth"]) for w in data}
    assert broken["independent(q, k)"] == (5, "FALSE")
    assert broken["zero_mean(k)"] == (8, "FALSE")
    for withdrawal in data:
        assert f'data-assumption="{withdrawal["label"]}"' in text
        assert f'data-step="{withdrawal["step"]}"' in text
        assert "Counterexample" in withdrawal["words"]


def test_numbers_of_the_study_are_shown(page, study):
    for row in study.rows:
        assert f"{row.estimate:.6g}" in page
        assert f"{row.prediction:.8g}" in page


def test_an_audit_of_weights_has_its_table_its_map_and_its_null(tmp_path):
    weights = {f"{name}<img>": np.random.default_rng(0).standard_normal((16, 8)) / 4 for name in ("first", "second")}
    audit = audit_weights(weights, weights, num_heads=2)
    text = write_report(tmp_path / "r.html", audits=[audit]).read_text(encoding="utf-8")
    words = " ".join(Page(text).text)
    for word in ("first<img>", "second<img>", "largest singular value of W_q W_kᵀ", "stable rank", audit.null):
        assert word in words
    assert "img" not in Page(text).tags
    assert f"{audit.heads[3].score_variance:.3g}" in words
    np.testing.assert_allclose(
        audit_map(audit).axes[0].images[0].get_array(),
        np.reshape([head.entropy_fraction for head in audit.heads], (2, 2)),
    )


def test_names_are_escaped(audit, tmp_path):
    heads = tuple(replace(head, layer=HOSTILE, cause=HOSTILE) for head in audit.heads)
    hostile = replace(audit, source=HOSTILE, heads=heads)
    text = write_report(tmp_path / "r.html", audits=[hostile]).read_text(encoding="utf-8")
    parsed = Page(text)
    assert "alert(2)" not in "".join(content for _, content in scripts(text))
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
        with pytest.raises(OSError, match="path: cannot write"):
            write_report(place)
        assert main(["report", "--output", str(place)]) == 2
        error = capsys.readouterr().err
        assert "--output: cannot write" in error
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


def test_a_trained_head_looks_at_the_previous_token():
    weights = example_weights(0, 2)
    assert weights.shape == (len(EXAMPLE_TOKENS),) * 2
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=16 * np.finfo(float).eps)
    assert list(weights[1:].argmax(axis=-1)) == list(range(len(EXAMPLE_TOKENS) - 1))
