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
    assert [row["n_keys"] for row in rows if not row["formula"].startswith("keeps")] == [16, 64] * 5
    assert main(["length", "--n-keys", "16,64"]) == 0
    assert "YaRN" in capsys.readouterr().out


def test_the_exact_factors_keep_what_the_first_length_has():
    rows = over_lengths([1024, 131072])
    first = rows[0]
    for formula, field in (
        ("keeps the needle", "needle_weight"),
        ("keeps entropy / log n", "entropy_fraction"),
        ("keeps effective keys", "effective_keys"),
    ):
        found = [row for row in rows if row.formula == formula]
        assert [row.n_keys for row in found] == [1024, 131072]
        assert found[0].factor == 1
        assert found[1].factor > 1
        assert getattr(found[1], field) == pytest.approx(getattr(first, field), rel=1e-10)


def test_a_needle_that_no_factor_keeps_has_no_row():
    # At 1σ above the rest it is never the largest among many.
    assert [row.n_keys for row in over_lengths([64, 4096], needle=1.0) if row.formula == "keeps the needle"] == [64]


def test_the_plot(tmp_path, capsys):
    target = tmp_path / "length.svg"
    assert main(["length", "--n-keys", "16,64", "--plot", str(target)]) == 0
    assert "<svg" in target.read_text(encoding="utf-8")
    capsys.readouterr()
    for bad, named in (("length.txt", "--plot must name"), ("none/length.svg", "--plot: cannot write")):
        assert main(["length", "--n-keys", "16,64", "--plot", str(tmp_path / bad)]) == 2
        assert named in capsys.readouterr().err


@pytest.mark.parametrize("lengths", [[], [1, 2], [8, 4], [4, 4]])
def test_lengths_must_rise(lengths):
    with pytest.raises(ValueError, match="n_keys must rise"):
        over_lengths(lengths)
