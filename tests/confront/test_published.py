"""Published sentences: records that say their source, verdicts that are computed, and false variants that flip them."""

import json
import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from analysis import PUBLISHED
from analysis.cli import main
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import INDEPENDENT
from analysis.confront.published import ground as grounds
from analysis.confront.published.finding import Finding
from analysis.confront.published.ground import Claimed, Derived, Follows
from analysis.confront.published.numbers import CRITICAL, Numbers, cells
from analysis.confront.published.sentence import Sentence, by_how_wrong
from analysis.confront.relation_draws import AtMost
from analysis.show.published_figure import curve_of, described, series_of
from analysis.show.published_view import published_view, sentence_view
from analysis.show.report import write_report

BY_KEY = {sentence.key: sentence for sentence in PUBLISHED}


@pytest.fixture(scope="module")
def found():
    return {sentence.key: sentence.adjudicate() for sentence in PUBLISHED}


def name(value):
    return getattr(value, "key", str(value))


# The records.


@pytest.mark.parametrize("sentence", PUBLISHED, ids=name)
def test_a_sentence_says_where_it_stands(sentence):
    assert sentence.sentence.endswith(".")
    assert re.search(r"\b(19|20)\d\d\b|common", sentence.source)
    assert not sentence.source.endswith(".")
    regimes = [ground.regime for ground in sentence.grounds]
    assert not sentence.depends_on or sum(bool(regime) for regime in regimes) >= 2


def test_there_are_enough_and_enough_of_them_are_not_simply_true(found):
    assert len(BY_KEY) == len(PUBLISHED) >= 45
    kinds = [item.kind for item in found.values()]
    assert kinds.count("false") + kinds.count("depends") >= 8
    assert "undecided" not in kinds


def test_what_depends_says_on_what(found):
    for key, item in found.items():
        assert bool(BY_KEY[key].depends_on) is (item.kind == "depends"), key


def test_a_sentence_names_what_decides_it(found):
    assert BY_KEY["gap-saturates"].claims == ("softmax-saturation",)
    assert BY_KEY["gap-saturates"].derivations == ("softmax-saturation",)
    assert BY_KEY["gap-saturates"].adjudication == "true"
    for item in found.values():
        assert all(finding.words for finding in item.findings)


def test_a_leading_order_shows_its_error_at_three_sizes(found):
    leading = [f for item in found.values() for f in item.findings if f.holds == "to leading order"]
    assert leading
    for finding in leading:
        shares = [error for _, error in finding.errors]
        assert len(shares) >= 3
        assert shares == sorted(shares, reverse=True)


# Verdicts known from elsewhere.


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("score-variance-is-d-k", "true"),
        ("all-components-independent", "false"),
        ("large-d-kills-the-gradient", "depends"),
        ("xavier-gives-unit-scores", "depends"),
        ("one-over-d-is-only-slower", "false"),
        ("entropy-bounded-by-spectral-norm", "true"),
        ("weights-are-log-normal", "true to leading order"),
        ("sigmoid-bias-keeps-row-sums", "depends"),
        ("bfloat16-loses-whole-units", "true"),
        ("causal-entropy-as-of-whole-rows", "false"),
        ("log-n-keeps-the-entropy", "depends"),
        ("half-is-never-reached", "depends"),
        ("sharp-transition", "depends"),
        ("branches-double-the-variance", "depends"),
        ("like-tokens-have-a-critical-scale", "true to leading order"),
        ("sphere-keys-have-a-critical-scale", "true to leading order"),
    ],
)
def test_known_verdicts(found, key, kind):
    assert found[key].kind == kind


def finds(key, place=0, at=-1):
    ground = BY_KEY[key].grounds[place]
    return ground.finds(ground.cells[at])


def test_numbers_known_from_elsewhere():
    assert finds("fresh-layer-has-unit-scores") == pytest.approx(1 / 9)
    assert finds("xavier-gives-unit-scores", 1) == pytest.approx(1 / 4)
    assert finds("sigmoid-bias-keeps-row-sums", 1) == pytest.approx(1.6211, abs=1e-4)  # n = 256
    assert finds("yarn-temperature", 0) - 5.98 == pytest.approx(0.19, abs=0.01)
    assert finds("longrope-factor", 1) == pytest.approx(0.9106, abs=1e-4)
    assert finds("sharp-transition", 1, at=1) == pytest.approx(2.594 / math.log(1024), abs=1e-3)
    assert finds("frozen-participation") == pytest.approx(0.531, abs=1e-3)
    assert finds("attention-loses-rank") == pytest.approx(3.0, abs=2e-3)
    assert finds("half-is-never-reached", 1) == pytest.approx(0.5)


def test_the_sphere_of_three_dimensions_against_the_general_quadrature():
    from analysis import expected_max_weight
    from analysis.confront.published.length import sphere_largest

    exact = float(expected_max_weight(64, score="cosine", d_k=3, scale=8.0))
    assert sphere_largest(64, 8.0) == pytest.approx(exact, rel=1e-4)


# Planted variants.


def clearly(value, sign):
    return value + sign * max(2 * abs(value), 0.1)


# The catalogue's statement with a factor or a sign wrong.
FALSE_DERIVATIONS = {
    "score-variance": Follows("Var(Dot(k, q))", "d_k**2", INDEPENDENT),
    "cosine-variance": Follows("Var(Dot(u, w))", "1/d_k**2", ("isotropic(u)", "independent(u, w)")),
    "softmax-jacobian": Follows("D(p[i], s[j])", "p[i]*(delta(i, j) + p[j])", ()),
    "softmax-saturation": Numbers(
        "1 - max p of one key that leads 15 others by 8",
        lambda c: 0.5 * 15 * math.exp(-8.0),
        lambda c: 15 * math.exp(-8.0) / (1 + 15 * math.exp(-8.0)),
        cells(lead=(8.0,)),
        "at most",
    ),
}


def planted(ground, holds):
    """Return the ground of a sentence that says what is true there, or something clearly false."""
    if isinstance(ground, Numbers):
        exact = cache(ground.finds)
        ground = replace(ground, finds=exact)
        if holds:
            return replace(ground, says=exact, relation="equal")
        if ground.relation == "other than":
            return replace(ground, says=exact)
        sign = {"at most": -1, "at least": 1}.get(ground.relation, 1)
        return replace(ground, says=lambda cell: clearly(exact(cell), sign))
    if isinstance(ground, Follows):
        truth = grounds._proved(ground.lhs, ground.rhs, ground.assuming).truth.value == "TRUE"
        return replace(ground, follows=truth if holds else not truth)
    if isinstance(ground, Derived):
        return ground if holds else FALSE_DERIVATIONS[ground.key]
    claim = ground.claim
    if holds:
        return ground
    factor = 0.5 if isinstance(claim.relation, AtMost) else 1.5
    return Claimed(replace(claim, predict=lambda cell: factor * claim.predict(cell)))


@pytest.mark.parametrize("sentence", PUBLISHED, ids=name)
def test_a_false_variant_flips_the_verdict(sentence):
    """Every ground of it says something clearly false, then what is true there; one false ground alone decides too."""
    false = [planted(ground, holds=False) for ground in sentence.grounds]
    true = [planted(ground, holds=True) for ground in sentence.grounds]
    assert replace(sentence, grounds=tuple(false)).adjudicate().kind == "false"
    assert replace(sentence, grounds=tuple(true)).adjudicate().kind == "true"
    if len(true) > 1:
        assert replace(sentence, grounds=(false[0], *true[1:])).adjudicate().kind == "depends"


def test_a_withdrawn_assumption_flips_a_sentence_about_what_is_needed():
    """Without uncorrelated components the variance does not follow: then the sentence would have been right."""
    sentence = BY_KEY["all-components-independent"]
    ground = sentence.grounds[0]
    weaker = tuple(text for text in ground.assuming if text != "uncorrelated(q)")
    variant = replace(sentence, grounds=(replace(ground, assuming=weaker),)).adjudicate()
    assert variant.kind == "true"
    assert "Counterexample" in variant.findings[0].words


def test_a_derivation_that_fails_is_no_ground(monkeypatch):
    monkeypatch.setattr(grounds, "_checked", lambda key: ("FALSE", "x = y"))
    assert Sentence("a-b", "It is so.", "a test", (), (Derived("score-mean"),)).adjudication == "false"
    monkeypatch.setattr(grounds, "_checked", lambda key: ("UNKNOWN", "x = y"))
    assert Sentence("a-b", "It is so.", "a test", (), (Derived("score-mean"),)).adjudication == "undecided"


# How numbers decide.


def numbers(says, exact, relation="equal", **more):
    return Numbers("x", lambda c: says(c.n), lambda c: exact(c.n), cells(n=(1, 10, 100)), relation, **more).find()


def test_relations():
    assert numbers(lambda n: 2.0, lambda n: 2.0).holds == "exactly"
    assert numbers(lambda n: 2.0, lambda n: 2.2).holds == "no"
    assert numbers(lambda n: 2.0, lambda n: 2.2, within=0.1).holds == "exactly"
    assert numbers(lambda n: 2.0, lambda n: 2.0 + 1 / n, "limit").holds == "to leading order"
    assert numbers(lambda n: 2.0, lambda n: 3.0 + 1 / n, "limit").holds == "no"  # it converges, to something else
    assert numbers(lambda n: 2.0, lambda n: 1.0, "at most").holds == "exactly"
    assert numbers(lambda n: 2.0, lambda n: float(n), "at most").words.endswith(
        "at n=10"
    )  # the smallest counterexample
    assert numbers(lambda n: 2.0, lambda n: 1.0, "at least").holds == "no"
    assert numbers(lambda n: 2.0, lambda n: math.nan).holds == "no"
    assert numbers(lambda n: 2.0, lambda n: math.inf, "limit").holds == "no"
    assert numbers(lambda n: 2.0, lambda n: 2.1, "other than").holds == "exactly"
    assert numbers(lambda n: 2.0, lambda n: 2.0, "other than").holds == "no"
    assert numbers(lambda n: 2.0, lambda n: 2.0 + (n == 10), "other than").words.endswith("at n=1")


def test_the_smallest_counterexample_is_sought_from_the_smallest_up_and_changes_no_verdict():
    smaller = cells(n=(2, 3, 4, 5))
    found = numbers(lambda n: 3.5, lambda n: float(n), "at most", smallest=smaller)
    assert found.words.endswith("at n=4")
    assert found.error == pytest.approx(0.965)  # the worst of the practical cases
    assert numbers(lambda n: 200.0, lambda n: float(n), "at most", smallest=smaller).holds == "exactly"


@pytest.mark.parametrize("sentence", PUBLISHED, ids=name)
def test_the_first_case_that_fails_is_shown(sentence, found):
    for ground, finding in zip(sentence.grounds, found[sentence.key].findings, strict=True):
        if not isinstance(ground, Numbers) or finding.holds != "no" or ground.relation == "limit":
            continue
        place, cases = 0, (*ground.smallest, *ground.cells)
        while ground._error(*ground._pair(cases[place])) <= ground.within:
            place += 1
        assert finding.words.endswith(f"at {cases[place]}")


def test_chance_contradicts_a_true_number_less_than_once_in_a_million():
    drawn = sum(len(g.measurable) for s in PUBLISHED for g in s.grounds if isinstance(g, Numbers))
    assert drawn >= 150
    assert drawn * math.erfc(CRITICAL / math.sqrt(2)) <= 1e-6


def test_a_measurement_that_disagrees_decides_nothing():
    def draws(cell, rng, replicates):
        return rng.standard_normal(replicates) + 3.0

    assert numbers(lambda n: 2.0, lambda n: 2.0, sample=draws).holds == "undecided"
    assert numbers(lambda n: 3.0, lambda n: 3.0, sample=draws).holds == "exactly"


def test_measurements_repeat():
    ground = BY_KEY["sigmoid-bias-keeps-row-sums"].grounds[1]
    assert ground.measure(ground.cells[0]) == ground.measure(ground.cells[0])
    assert ground.measure(ground.cells[0]) != ground.measure(ground.cells[1])


def test_malformed_sentences_are_refused():
    with pytest.raises(ValueError, match="lower-case words"):
        Sentence("A b", "x.", "y", (), (Derived("score-mean"),))
    with pytest.raises(ValueError, match="no grounds"):
        Sentence("a-b", "x.", "y", (), ())


# Pages.


def test_command_lists_and_shows(capsys):
    assert main(["published", "frozen-participation", "uniform-rows-pass-most"]) == 0
    out = capsys.readouterr().out
    assert "frozen-participation: true to leading order" in out
    assert "uniform-rows-pass-most: depends on the number of keys" in out
    assert out.index("uniform-rows") < out.index("frozen")  # the more wrong first
    assert main(["published", "score-variance-is-d-k", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["adjudication"] == "true"
    assert record["derivations"] == ["score-variance"]
    assert main(["published", "frozen-particpation"]) == 2
    assert "did you mean 'frozen-participation'?" in capsys.readouterr().err


def test_confirm_takes_the_published_sentences_along(capsys, monkeypatch):
    from analysis.cli import confirm as command

    chosen = [BY_KEY[key].adjudicate() for key in ("key-bias-matters", "score-variance-is-d-k")]
    monkeypatch.setattr(command, "adjudicated", lambda: chosen)
    assert main(["confirm", "cosine-score-bound", "--published"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"the most wrong first:\nkey-bias-matters +false\nscore-variance-is-d-k +true\n", out)
    assert main(["confirm", "cosine-score-bound", "--published", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [record["adjudication"] for record in printed["published"]] == ["false", "true"]
    rows = printed["published"][1]["findings"][3]["rows"]
    assert {row["settings"]["d_k"]: row["says"] for row in rows} == {4: 4, 16: 16, 64: 64, 256: 256}
    assert all(abs(row["measured"] - row["exact"]) <= CRITICAL * row["standard_error"] for row in rows)
    undecided = replace(chosen[0], findings=(Finding("undecided", "", "measurement", "x"),))
    monkeypatch.setattr(command, "adjudicated", lambda: [undecided])
    assert main(["confirm", "cosine-score-bound", "--published"]) == 1
    capsys.readouterr()


def test_list_published(capsys):
    assert main(["list", "published", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [record["key"] for record in listed] == list(BY_KEY)
    assert {"adjudication", "sentence", "source"} <= set(listed[0])


def test_rows_of_the_report(found, tmp_path):
    chosen = [found[key] for key in ("frozen-participation", "one-over-sqrt-d-keeps-order-one", "key-bias-matters")]
    rows = published_view(chosen)["rows"]
    assert [row["key"] for row in rows] == [item.sentence.key for item in by_how_wrong(chosen)]
    assert [len(row["figures"]) for row in rows] == [1, 2, 1]
    with pytest.raises(ValueError, match="published must hold Adjudication"):
        write_report(tmp_path / "r.html", published=[3])


def test_the_figures_leave_room_on_a_page_of_three_megabytes(found):
    figures = [figure for item in found.values() for figure in sentence_view(item)["figures"]]
    assert sum(map(len, figures)) < 1_400_000
    assert max(map(len, figures)) < 30_000
    assert all("currentColor" in figure and "<text" in figure for figure in figures)
    ticks = [re.findall(r"text-anchor: end[^>]*>([^<]+)</text>", figure) for figure in figures]
    assert all(len(set(own)) == len(own) for own in ticks)  # no digit of a label is cut


@pytest.mark.parametrize("sentence", PUBLISHED, ids=name)
def test_every_sentence_opens_to_a_figure(sentence, found):
    curves = [finding for finding in found[sentence.key].findings if finding.rows and curve_of(finding.rows)]
    assert curves
    for finding in curves:
        words = described(finding, curve_of(finding.rows))
        assert re.search(r"Along [a-zσλ].* First .*says .* exact .* Last .*says .* exact ", words)
    assert all(ground.undrawn for ground in sentence.grounds if isinstance(ground, Numbers) and not ground.sample)


def test_a_page_says_why_nothing_is_drawn(found):
    row = sentence_view(found["positive-features-estimate-softmax"])
    assert [words.split(": ")[1] for words in row["plain"]] == ["a few rare draws would decide their mean."]
    assert len(row["figures"]) == 3
    assert all('role="img"' in figure and "<desc" in figure for figure in row["figures"])


def test_a_number_without_a_curve_shows_its_cases(found):
    row = sentence_view(found["alike-tokens-stop-query-and-key"])
    assert any(words.startswith("No curve: the largest entry where tokens are alike") for words in row["plain"])
    assert [words.split(":")[0] for words in row["table"]] == ["n_keys=4", "n_keys=32"]


def test_series_of_a_figure():
    rows = BY_KEY["running-maximum-is-exact"].adjudicate().findings[0].rows
    assert curve_of(rows) == "n_keys"
    assert list(series_of(rows, "n_keys")) == ["spread = 1", "spread = 100"]
    rows = BY_KEY["retrieval-capacity-is-exponential"].adjudicate().findings[0].rows
    assert curve_of(rows) == "d_k"
    assert list(series_of(rows, "d_k")) == [""]  # n_keys follows from d_k
    assert curve_of(rows[:2]) is None


def test_the_page_of_the_documentation_is_what_was_computed(found):
    text = (Path(__file__).parents[2] / "docs" / "published.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| \[(.+)\]\(sentences/\1\.md\) \| ([^|]+) \|$", text, re.MULTILINE)
    ordered = by_how_wrong(list(found.values()))
    assert rows == [(item.sentence.key, item.error_in_words, item.verdict) for item in ordered]
    for item in found.values():
        assert item.sentence.sentence in text
        assert item.sentence.source in text


def test_cells_are_crossed_in_order():
    assert cells(a=(1, 2), b=(3,)) == (Cell((("a", 1), ("b", 3))), Cell((("a", 2), ("b", 3))))
    assert np.isfinite(
        [
            ground.finds(cell)
            for s in PUBLISHED
            for ground in s.grounds
            if isinstance(ground, Numbers)
            for cell in ground.cells
        ]
    ).all()
