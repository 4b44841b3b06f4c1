"""Published sentences: records that say their source, verdicts that are computed, and false variants that flip them."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis import PUBLISHED
from analysis.cli import main
from analysis.confront.cell import Cell
from analysis.confront.published import ground as grounds
from analysis.confront.published.ground import Claimed, Derived, Follows, Numbers, cells
from analysis.confront.published.sentence import Sentence, by_how_wrong
from analysis.confront.relation_draws import AtMost
from analysis.show.published_view import published_view
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
    assert finds("sharp-transition", at=1) == pytest.approx(2.594 / math.log(1024), abs=1e-3)
    assert finds("frozen-participation") == pytest.approx(0.531, abs=1e-3)
    assert finds("attention-loses-rank") == pytest.approx(3.0, abs=1e-3)


# Planted variants.


def clearly(value, sign):
    return value + sign * max(2 * abs(value), 0.1)


def planted(ground, holds):
    """Return the ground of a sentence that says what is true there, or something clearly false."""
    if isinstance(ground, Numbers):
        exact = ground.finds
        if holds:
            return replace(ground, says=exact, relation="equal")
        sign = {"at most": -1, "at least": 1}.get(ground.relation, 1)
        return replace(ground, says=lambda cell: clearly(exact(cell), sign))
    if isinstance(ground, Follows):
        truth = grounds._proved(ground.lhs, ground.rhs, ground.assuming).truth.value == "TRUE"
        return replace(ground, follows=truth if holds else not truth)
    if isinstance(ground, Derived):
        return (
            ground if holds else Follows("E(Dot(k, q))", "d_k", ("independent(q, k)", "zero_mean(q)"), regime="planted")
        )
    claim = ground.claim
    if holds:
        return ground
    factor = 0.5 if isinstance(claim.relation, AtMost) else 1.5
    return Claimed(replace(claim, predict=lambda cell: factor * claim.predict(cell)))


@pytest.mark.parametrize("sentence", PUBLISHED, ids=name)
def test_a_false_variant_flips_the_verdict(sentence, found):
    false = replace(sentence, grounds=tuple(planted(ground, holds=False) for ground in sentence.grounds)).adjudicate()
    true = replace(sentence, grounds=tuple(planted(ground, holds=True) for ground in sentence.grounds)).adjudicate()
    assert false.kind == "false", false
    assert true.kind == "true", true
    assert found[sentence.key].kind in ("true to leading order", "depends", "true", "false")


def test_a_withdrawn_assumption_flips_a_sentence_about_what_is_needed():
    """Without uncorrelated components the variance does not follow: then the sentence would have been right."""
    sentence = BY_KEY["all-components-independent"]
    (ground,) = sentence.grounds
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


def test_list_published(capsys):
    assert main(["list", "published", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [record["key"] for record in listed] == list(BY_KEY)
    assert {"adjudication", "sentence", "source"} <= set(listed[0])


def test_rows_of_the_report(found, tmp_path):
    chosen = [found[key] for key in ("frozen-participation", "one-over-sqrt-d-keeps-order-one", "key-bias-matters")]
    rows = published_view(chosen)["rows"]
    assert [row["key"] for row in rows] == [item.sentence.key for item in by_how_wrong(chosen)]
    assert [len(row["figures"]) for row in rows] == [0, 2, 1]
    with pytest.raises(ValueError, match="published must hold Adjudication"):
        write_report(tmp_path / "r.html", published=[3])


def test_the_page_of_the_documentation_is_what_was_computed(found):
    text = (Path(__file__).parents[2] / "docs" / "published.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    assert rows == [(item.sentence.key, item.verdict) for item in by_how_wrong(list(found.values()))]
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
