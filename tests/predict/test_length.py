"""A needle and the entropy over lengths of context."""

import json

import pytest

from analysis.cli import main
from analysis.predict.length import over_lengths


def test_a_needle_fades_at_a_fixed_scale_and_stays_with_log_n():
    rows = {(row.formula, row.n_keys): row.needle_weight for row in over_lengths([1024, 16384, 131072])}
    for formula, weights in (("fixed", (0.616, 0.133, 0.021)), ("log n", (0.616, 0.593, 0.561))):
        found = [rows[formula, n] for n in (1024, 16384, 131072)]
        assert found == pytest.approx(weights, abs=1e-3)  # three digits are known


def test_the_command(capsys):
    assert main(["length", "--n-keys", "16,64", "--needle", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["n_keys"] for row in rows] == [16, 64] * 4
    assert main(["length", "--n-keys", "16,64"]) == 0
    assert "YaRN" in capsys.readouterr().out


@pytest.mark.parametrize("lengths", [[], [1, 2], [8, 4], [4, 4]])
def test_lengths_must_rise(lengths):
    with pytest.raises(ValueError, match="n_keys must rise"):
        over_lengths(lengths)
