"""`confirm`: verdicts, streams, executors and stores, the table and the commands."""

import importlib
import json
import math
import re

import numpy as np
import pytest

import analysis
import attnsym
from analysis import Claim, ClaimVerdict, Exactly, Identity, confirm
from analysis.cli import main
from analysis.confront import judge as confirming
from analysis.confront.confirmation import cell_table


def coin(cell, rng, replicates):
    return rng.integers(0, 2, replicates).astype(float)


def half(cell):
    return 0.5


def six_tenths(cell):
    return 0.6


def coin_claim(**changes):
    """A claim about fair coins with values 0 and 1, free of the attention core."""
    fields = {
        "key": "fair-coin",
        "statement": "E X = 1/2",
        "assumptions": ("fair",),
        "source": "a test",
        "derivation": None,
        "predict": half,
        "sample": coin,
        "estimator": "mean",
        "relation": Exactly(),
        "grid": {"coin": (1, 2)},
        "rival": six_tenths,
        "replicates": 4000,
    }
    return Claim(**(fields | changes))


def only(claim, **how):
    return confirm([claim], **how).claims[0]


# Verdicts.


def test_a_true_claim_is_confirmed():
    result = only(coin_claim())
    assert result.verdict is ClaimVerdict.CONFIRMED
    assert result.budget_to_separate is None
    assert len(result.cells) == 2


def test_a_false_claim_is_rejected():
    result = only(coin_claim(predict=six_tenths, rival=half))
    assert result.verdict is ClaimVerdict.REJECTED
    assert "coin=" in result.reason


def test_a_claim_without_prediction_is_measured_only():
    claim = coin_claim(predict=None, sample=lambda cell, rng, n: coin(cell, rng, n) - coin(cell, rng, n))
    assert claim.route == "measured only"
    assert only(claim).verdict is ClaimVerdict.CONFIRMED


def test_a_rival_too_near_is_not_separated_until_the_budget_that_is_named():
    claim = coin_claim(rival=lambda cell: 0.505)
    result = only(claim)
    assert result.verdict is ClaimVerdict.NOT_SEPARATED
    assert f"budget {result.budget_to_separate:g}" in result.reason
    assert only(claim, budget=result.budget_to_separate).verdict is ClaimVerdict.CONFIRMED
    smaller = only(claim, budget=0.1)
    assert smaller.verdict is ClaimVerdict.NOT_SEPARATED
    assert smaller.budget_to_separate == pytest.approx(result.budget_to_separate, rel=0.2)


def test_a_rival_that_is_the_prediction_is_never_separated():
    result = only(coin_claim(rival=half))
    assert result.verdict is ClaimVerdict.NOT_SEPARATED
    assert result.budget_to_separate is None


def test_separation_is_asked_only_where_the_rival_differs():
    assert only(coin_claim(rival=lambda cell: 0.5 if cell.coin == 1 else 0.6)).verdict is ClaimVerdict.CONFIRMED


def test_too_few_replicates_confirm_nothing():
    result = only(coin_claim(sample=lambda cell, rng, n: rng.exponential(0.5, n) ** 2))
    assert not any(cell.calibrated for cell in result.cells)
    assert result.verdict is ClaimVerdict.NOT_SEPARATED
    assert result.budget_to_separate > 1


@pytest.mark.parametrize(("derived", "verdict"), [("TRUE", "confirmed"), ("UNKNOWN", "UNKNOWN"), ("FALSE", "rejected")])
def test_the_derivation_counts(monkeypatch, derived, verdict):
    monkeypatch.setattr(confirming, "_derivation_verdict", lambda key: derived)
    confirmation = confirm([coin_claim(derivation="score-mean")])
    assert confirmation.claims[0].verdict == verdict
    assert confirmation.passed == (derived == "TRUE")


def test_a_measurement_against_a_claim_outweighs_an_unknown_derivation(monkeypatch):
    monkeypatch.setattr(confirming, "_derivation_verdict", lambda key: "UNKNOWN")
    claim = coin_claim(derivation="score-mean", predict=six_tenths, rival=half)
    assert only(claim).verdict is ClaimVerdict.REJECTED


def test_the_derivation_is_checked_anew():
    assert only(coin_claim(derivation="score-mean")).derivation_verdict == "TRUE"


def test_the_family_sets_the_critical_value():
    few, many = coin_claim(), coin_claim(key="many-coins", grid={"coin": tuple(range(40))})
    assert confirm([few]).critical_z == pytest.approx(5.026, abs=1e-3)  # two-sided 1e-6 / 2
    assert confirm([few, many], budget=0.1).critical_z > confirm([few]).critical_z
    exact = coin_claim(key="an-identity", relation=Identity(), sample=lambda cell, rng, n: np.full(n, 0.5))
    assert confirm([few, exact]).critical_z == confirm([few]).critical_z


def test_budget_multiplies_the_replicates():
    assert {cell.replicates for cell in only(coin_claim(), budget=10).cells} == {40_000}
    assert {cell.replicates for cell in only(coin_claim(replicates=lambda cell: 100 * cell.coin)).cells} == {100, 200}


OWN_CLAIM = """
import attnsym
from analysis import Claim, Identity

def total(cell, rng, replicates):
    query, key = rng.normal(size=(2, replicates, cell.n_keys, cell.d_k))
    return attnsym.attention_weights(query, key, is_causal=True)[:, 1].sum(axis=-1)

def one(cell):
    return 1.0

def all_keys(cell):
    return 2.0 / cell.n_keys  # weights normalised before the mask

my_claim = Claim("rows-sum-to-one", "the weights of a row sum to 1", ("causal",), "mine", None, one, total, None,
                 Identity(), {"d_k": (4,), "n_keys": (5,)}, all_keys)
"""


def test_a_claim_from_a_users_own_file_passes_untouched(tmp_path, monkeypatch):
    (tmp_path / "my_claims.py").write_text(OWN_CLAIM, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    my_claim = importlib.import_module("my_claims").my_claim
    before = (vars(my_claim).copy(), len(analysis.CLAIMS))
    result = only(my_claim)
    assert result.claim is my_claim
    assert result.verdict is ClaimVerdict.CONFIRMED
    assert before == (vars(my_claim), len(analysis.CLAIMS))
    assert confirm([my_claim, coin_claim()]).passed  # beside others too


# Streams, executors, stores.


def estimates(confirmation, key="fair-coin"):
    return [cell.estimate for cell in confirmation[key].cells]


def test_neither_workers_nor_other_claims_change_a_number():
    alone = confirm([coin_claim()], workers=1)
    other = confirm([coin_claim(key="other-coin"), coin_claim()], workers=3)
    assert estimates(other) == estimates(alone)
    assert estimates(other, "other-coin") != estimates(alone)
    assert len(set(estimates(alone))) == 2  # two cells, two streams


@pytest.mark.slow
def test_processes_draw_the_same_numbers():
    assert estimates(confirm([coin_claim()], executor="processes", workers=2)) == estimates(confirm([coin_claim()]))


def test_a_claim_that_cannot_travel_is_named():
    with pytest.raises(ValueError, match=r"claim 'fair-coin': rival .* cannot be sent to another process"):
        confirm([coin_claim(rival=lambda cell: 0.6)], executor="processes")


def test_seeds_draw_other_numbers():
    assert estimates(confirm([coin_claim()], seed=1)) != estimates(confirm([coin_claim()], seed=0))


def test_a_store_is_resumed_and_belongs_to_one_seed(tmp_path):
    drawn = []

    def sample(cell, rng, replicates):
        drawn.append(replicates)
        return coin(cell, rng, replicates)

    path = tmp_path / "draws.sqlite"
    first = estimates(confirm([coin_claim(sample=sample)], store=path))
    count = len(drawn)
    assert estimates(confirm([coin_claim(sample=sample)], store=path)) == first
    assert len(drawn) == count
    with pytest.raises(ValueError, match="seed"):
        confirm([coin_claim()], store=path, seed=1)


# Refusals.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "Fair Coin"}, "lower-case words"),
        ({"relation": "exactly"}, "relation must be"),
        ({"estimator": "mode"}, "estimator must be one of mean, variance, rms, median"),
        ({"estimator": None}, "estimator must be one of"),
        ({"grid": {}}, None),
        ({"grid": []}, "no cell"),
        ({"grid": {"coin": ()}}, "no cell"),
        ({"grid": {"coin": 3}}, "must be a list of values"),
        ({"grid": {"coin": "12"}}, "must be a list of values"),
        ({"grid": {"coin": (None,)}}, "takes text and numbers"),
        ({"grid": {"coin": (1, 1)}}, "names a cell twice"),
        ({"replicates": 1}, "at least 2"),
        ({"rival": None}, "rival must be callable"),
    ],
)
def test_malformed_claims_are_refused(changes, words):
    if words is None:  # a claim without settings has one cell
        assert len(coin_claim(**changes).cells) == 1
        return
    with pytest.raises(ValueError, match=re.escape(words)):
        coin_claim(**changes)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"budget": 0}, "budget must be a positive number"),
        ({"budget": math.inf}, "budget must be a positive number"),
        ({"family_wise_alpha": 1.0}, "family_wise_alpha must lie between 0 and 1"),
        ({"seed": True}, "seed must be"),
        ({"workers": 0}, "workers must be"),
    ],
)
def test_senseless_arguments_are_refused(how, words):
    with pytest.raises(ValueError, match=words):
        confirm([coin_claim()], **how)


@pytest.mark.parametrize(
    ("claims", "words"),
    [([], "nothing to confirm"), ([3], "Claim records"), ([coin_claim(), coin_claim()], "key 'fair-coin'")],
)
def test_what_is_no_set_of_claims_is_refused(claims, words):
    with pytest.raises(ValueError, match=words):
        confirm(claims)


def test_a_sample_of_the_wrong_shape_is_named():
    with pytest.raises(
        ValueError, match=r"claim 'fair-coin': sample must return one number per replicate.*\(\) at coin=1"
    ):
        confirm([coin_claim(sample=lambda cell, rng, n: 0.5)])


def test_a_sample_that_the_core_refuses_is_a_rejection_with_its_words():
    def refused(cell, rng, n):
        return attnsym.entropy(np.full((n, 2), 0.4))

    result = confirm([coin_claim(sample=refused), coin_claim(key="other-coin")])
    assert [row.verdict for row in result.claims] == [ClaimVerdict.REJECTED, ClaimVerdict.CONFIRMED]
    assert "its sample fails: weights must sum to 1" in result.claims[0].reason
    assert json.dumps(result.to_dict(), allow_nan=False)


def test_a_setting_that_is_not_there_is_named():
    with pytest.raises(AttributeError, match="no setting 'd_k'"):
        confirm([coin_claim(predict=lambda cell: cell.d_k)])


# What is shown.


def test_the_table_reads_at_a_glance():
    confirmation = confirm([coin_claim(), coin_claim(key="biased-coin", predict=six_tenths, rival=half)])
    lines = str(confirmation).splitlines()
    assert lines[0].split() == [
        "claim",
        "route",
        "predicted",
        "allowed",
        "measured",
        *("z", "rival", "rival", "z", "verdict"),
    ]
    assert lines[2].split()[:3] == ["fair-coin", "predicted", "0.5"]
    assert lines[2].endswith("confirmed")
    assert lines[3].endswith("rejected")
    assert lines[-1].startswith("biased-coin: rejected: 2 of 2 judged cells contradict it")
    assert "E X = 1/2" in cell_table(confirmation["fair-coin"])
    assert "coin=2" in cell_table(confirmation["fair-coin"])


def test_html_escapes_what_a_user_wrote():
    html = confirm([coin_claim(statement='<script>alert("x")</script>')])._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_json_and_records_carry_every_cell(tmp_path):
    confirmation = confirm([coin_claim(sample=lambda cell, rng, n: np.full(n, np.nan))])
    confirmation.to_json(tmp_path / "claims.json")
    payload = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert payload["claims"][0]["cells"][1]["estimate"] is None
    assert payload["passed"] is False
    records = confirmation.to_records()
    assert [record["settings"]["coin"] for record in records] == [1, 2]
    assert records[0]["claim"] == "fair-coin"


def test_command_prints_strict_json(capsys):
    assert main(["confirm", "variance-denominator", "independent-streams", "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert [claim["key"] for claim in payload["claims"]] == ["variance-denominator", "independent-streams"]
    (cell,) = payload["claims"][0]["cells"]
    assert cell["estimate"] == pytest.approx(5 / 3)
    assert {"standard_error", "prediction", "z_score"} <= set(cell)


def test_command_fails_with_the_verdict(capsys, monkeypatch):
    assert main(["confirm", "scaled-score-variance", "--budget", "0.0001"]) == 1
    out = capsys.readouterr().out
    assert "not separated: these data would look the same under its rival; budget" in out


def test_command_shows_cells(capsys):
    assert main(["confirm", "causal-row-entropy", "--budget", "0.05", "--cells"]) == 0
    assert "d_k=16 n_keys=12 row=0" in capsys.readouterr().out


def test_command_names_an_unknown_claim(capsys):
    assert main(["confirm", "score-variancee"]) == 2
    assert "unknown claim 'score-variancee': did you mean 'score-variance'?" in capsys.readouterr().err


def test_list_names_derivations_and_claims(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "score-variance " in out
    assert "entropy-lower-bound" in out
    assert main(["list", "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert [claim["key"] for claim in payload["claims"]] == [claim.key for claim in analysis.CLAIMS]
    assert "score-mean" in [derivation["key"] for derivation in payload["derivations"]]
