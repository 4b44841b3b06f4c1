"""`confirm`: verdicts, families, streams, the table and the command."""

import json

import numpy as np
import pytest

import analysis
from analysis import Claim, ClaimVerdict, Exactly, confirm
from analysis.cli import main


def coin_claim(**changes):
    """A claim about fair coins with values 0 and 1, free of the attention core."""
    fields = {
        "key": "fair-coin",
        "statement": "E X = 1/2",
        "assumptions": ("fair",),
        "source": "a test",
        "derivation": None,
        "predict": lambda cell: 0.5,
        "sample": lambda cell, rng, replicates: rng.integers(0, 2, replicates).astype(float),
        "estimator": "mean",
        "relation": Exactly(),
        "grid": {"coin": (1, 2)},
        "rival": lambda cell: 0.6,
        "replicates": 4000,
    }
    return Claim(**(fields | changes))


def only(claim, **how):
    return confirm([claim], **how).claims[0]


def test_a_true_claim_is_confirmed():
    result = only(coin_claim())
    assert result.verdict is ClaimVerdict.CONFIRMED
    assert all(abs(cell.z_score) < 5 for cell in result.cells)


def test_a_false_claim_is_rejected():
    assert only(coin_claim(predict=lambda cell: 0.6, rival=lambda cell: 0.5)).verdict is ClaimVerdict.REJECTED


def test_json_is_strict_and_complete(capsys):
    assert main(["confirm", "variance-denominator", "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    (claim,) = payload["claims"]
    assert claim["key"] == "variance-denominator"
    assert claim["verdict"] == "confirmed"
    (cell,) = claim["cells"]
    assert {"estimate", "standard_error", "prediction", "z_score"} <= set(cell)


def test_an_unknown_claim_is_named(capsys):
    assert main(["confirm", "score-variancee"]) == 2
    assert "did you mean 'score-variance'?" in capsys.readouterr().err


def test_every_claim_has_its_own_key():
    keys = [claim.key for claim in analysis.CLAIMS]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_no_number(workers):
    first = confirm([coin_claim()], workers=workers).to_records()
    assert first == confirm([coin_claim()]).to_records()


def test_other_claims_change_no_number():
    alone = confirm([coin_claim()])["fair-coin"].cells
    others = [coin_claim(key="other-coin"), coin_claim()]
    assert [c.estimate for c in confirm(others)["fair-coin"].cells] == [c.estimate for c in alone]
    assert not np.array_equal([c.estimate for c in confirm(others)["other-coin"].cells], [c.estimate for c in alone])
