"""Every quantity is one record, and every wing has it by all its names; a record added here passes the same tests."""

import json
import math

import numpy as np
import pytest

from analysis import run_study, scale_for
from analysis.cli import main
from analysis.predict.meanings import predictions
from analysis.show.plots import study_figure
from analysis.vocabulary.quantities import QUANTITIES, find_quantity
from analysis.vocabulary.quantity import Exact, Quantity

NAMES = [name for record in QUANTITIES.values() for name in (record.name, *record.aliases)]
OF_WEIGHTS = [record for record in QUANTITIES.values() if record.reads == "weights"]
# |z| of a mean of 4,000 skewed values beyond 5: with some 40 comparisons on a fixed seed, below 1e-4 for the file.
Z_LIMIT = 5.0

GINI = Quantity(
    "gini",
    formula="1 − Σ p²",
    unit="1",
    words="the chance that two draws differ",
    label="Gini impurity",
    value=lambda w: 1.0 - np.sum(np.asarray(w, dtype=float) ** 2, axis=-1),
    at_equal=lambda n: 1.0 - 1.0 / n,
    at_one_hot=0.0,
    exact=Exact("1 − E Σ p²", "expected_jacobian_trace", lambda value, n: f"{value:.3g} of at most 1"),
    aliases={"gini_impurity": None},
)


@pytest.fixture
def gini(monkeypatch):
    monkeypatch.setitem(QUANTITIES, "gini", GINI)


def check_everywhere(name, capsys):
    record = find_quantity(name)
    for sampler in ("direct", "auto"):
        statistic = "mean" if record.exact is None or name != record.name else record.exact.statistic
        study = run_study(name, d_k=8, n_keys=6, statistic=statistic, sampler=sampler, replicates=4000, workers=1)
        assert {row.quantity for row in study.rows} == {record.name}
        for row in study.rows:
            if record.exact is not None:
                assert row.statistic == record.exact.statistic
                assert abs(row.z_score) < Z_LIMIT
        assert record.label in study_figure(study).axes[0].get_title()
    assert main(["list", "quantities", "--json"]) == 0
    listed = [entry for entry in json.loads(capsys.readouterr().out) if name in (entry["name"], *entry["aliases"])]
    assert len(listed) == 1
    if record.exact is None:
        with pytest.raises(ValueError, match=f"{record.name} has no exact value"):
            predictions(name, d_k=[8], n_keys=[6])
        return
    exact = predictions(name, d_k=[8], n_keys=[6], scale=["sqrt"])[0].value
    assert exact == pytest.approx(study.rows[0].prediction, rel=1e-12)
    if record.exact.is_monotone:
        target = predictions(name, sigma=[0.7], n_keys=[6])[0].value
        assert scale_for(name, target, 6) == pytest.approx(0.7, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_known_everywhere(name, capsys):
    check_everywhere(name, capsys)


@pytest.mark.parametrize("name", ["gini", "gini_impurity"])
def test_a_record_is_all_that_a_quantity_needs(name, gini, capsys):
    check_everywhere(name, capsys)


@pytest.mark.parametrize("record", [*OF_WEIGHTS, GINI], ids=lambda record: record.name)
@pytest.mark.parametrize("n", [1, 2, 7, 2048])
def test_limits_are_the_values_there(record, n):
    if n < record.least_keys:
        return
    # 8 n eps: a sum of n terms, then a function that at most doubles a relative error, of values of at most n
    assert record.value(np.full((1, n), 1 / n))[0] == pytest.approx(record.at_equal(n), rel=8 * n * 2.0**-52, abs=1e-15)
    if n > 1:
        assert record.value(np.eye(n)[:1])[0] == record.at_one_hot


@pytest.mark.parametrize("name", [record.name for record in QUANTITIES.values() if record.reads == "scores"])
@pytest.mark.parametrize("shift", [{"alignment": 0.5, "key_correlation": 0.3}, {"is_causal": True}])
def test_what_shifts_a_row_moves_a_quantity_of_its_scores(name, shift):
    row = run_study(name, d_k=8, n_keys=6, scale="sqrt", replicates=20_000, workers=1, **shift).rows[0]
    assert row.sampler == "direct"
    assert abs(row.z_score) < Z_LIMIT


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": ""}, "name must be a text"),
        ({"label": None}, "quantity 'gini': label must be a text: got None"),
        ({"reads": "vectors"}, "reads must be one of score, scores, weights"),
        ({"value": None}, "value must be callable"),
        ({"at_equal": 0.0}, "at_equal must be callable"),
    ],
)
def test_half_a_record_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        Quantity(**{**vars(GINI), **changes})


def test_an_expectation_that_is_not_there_is_named(monkeypatch):
    lost = Quantity(**{**vars(GINI), "exact": Exact("?", "expected_gini", lambda value, n: "")})
    monkeypatch.setitem(QUANTITIES, "gini", lost)
    for call in (
        lambda: run_study("gini", d_k=4, n_keys=4, replicates=10, workers=1),
        lambda: predictions("gini", d_k=[4], n_keys=[4]),
        lambda: scale_for("gini", 0.1, 4),
    ):
        with pytest.raises(ValueError, match=r"quantity 'gini': .* has no expectation 'expected_gini'"):
            call()


def test_a_statistic_in_the_name_leaves_no_room_for_another():
    row = run_study("score_variance", d_k=16, scale="unscaled", workers=1, replicates=2000).rows[0]
    assert (row.quantity, row.statistic, row.prediction) == ("score", "variance", 16.0)
    plain = run_study("score", d_k=16, scale="unscaled", statistic="variance", workers=1, replicates=2000).rows[0]
    assert row == plain
    assert run_study("Score-Variance", d_k=16, scale="unscaled", workers=1, replicates=2000).rows[0] == row
    with pytest.raises(ValueError, match="score_variance is the variance of 'score': leave statistic out, got 'rms'"):
        run_study("score_variance", d_k=16, statistic="rms")


def test_a_fraction_of_no_entropy_is_refused():
    for call in (
        lambda: run_study("entropy_fraction", d_k=4, n_keys=[8, 1]),
        lambda: predictions("entropy_fraction", d_k=[4], n_keys=[1]),
    ):
        with pytest.raises(ValueError, match="entropy_fraction needs n_keys of at least 2: got 1"):
            call()


def test_a_share_of_events_has_the_interval_of_a_proportion():
    row = run_study("dead_row", d_k=4, n_keys=64, scale=1e-3, replicates=100, workers=1).rows[0]
    assert row.estimate == 0.0
    assert row.interval[1] == pytest.approx(1 - 0.025**0.01)
    assert math.isclose(row.interval[0], 0.0)
