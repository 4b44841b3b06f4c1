"""One query's numbers, in Python and on the command line."""

import json
import math

import numpy as np
import pytest

import attnsym
from analysis.cli import main

TWO_KEYS = ["explain", "--query", "1", "--keys", "0,1.0986123", "--values", "2,6", "--scale", "unscaled"]


def test_two_keys_on_the_command_line(capsys):
    assert main(TWO_KEYS) == 0
    text = capsys.readouterr().out
    first, second = (line.split() for line in text.splitlines()[3:5])
    assert first == ["0", "0", "0", "0", "1", "0.25", "2", "0.5"]
    assert second == ["1", "1.09861", "1.09861", "1.09861", "3", "0.75", "6", "4.5"]
    assert "output 5\n" in text
    assert "shares of a mixture" in text
    assert "not probabilities that an answer is right" in " ".join(text.split())


def test_two_keys_as_json(capsys):
    assert main([*TWO_KEYS, "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert [row["weight"] for row in payload["rows"]] == pytest.approx([0.25, 0.75], rel=1e-7)
    assert payload["output"] == pytest.approx([5], rel=1e-7)
    assert "shares of a mixture" in payload["note"]


def test_vectors_with_several_components(capsys):
    assert (
        main(["explain", "--query", "1,0", "--keys", "0,1;1,0", "--values", "2,0;0,4", "--scale", "0", "--json"]) == 0
    )
    payload = json.loads(capsys.readouterr().out)
    assert payload["output"] == [1.0, 2.0]
    assert payload["rows"][1]["products"] == [1.0, 0.0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--query", "1,2", "--keys", "1"],
        ["--query", "1,2", "--keys", "1,2;3"],
        ["--query", "x", "--keys", "1"],
        ["--query", "nan", "--keys", "1"],
        ["--query", "1", "--keys", "1,2", "--values", "1"],
        ["--query", "1", "--keys", "1", "--scale", "none"],
        ["--query", "1", "--keys", "1", "--softcap", "-1"],
        ["--query", "1"],
        ["--query", "1", "--keys", ""],
    ],
)
def test_bad_input_is_one_sentence(arguments, capsys):
    assert main(["explain", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("attnsym: error: ")
    assert captured.err.count("\n") == 1


def test_rows_are_the_numbers_of_the_core():
    rng = np.random.default_rng(5)
    q, k, v = rng.standard_normal(16), rng.standard_normal((6, 16)), rng.standard_normal((6, 3))
    mask = np.array([True, True, False, True, True, True])
    result = attnsym.explain(q, k, v, attn_mask=mask, softcap=2.0)
    weights = attnsym.attention_weights(q[None], k, mask, softcap=2.0)[0]
    np.testing.assert_array_equal([row.weight for row in result.rows], weights)
    np.testing.assert_allclose(result.output, weights @ v, rtol=1e-14)
    np.testing.assert_allclose(np.sum([row.contribution for row in result.rows], axis=0), result.output, rtol=1e-13)
    np.testing.assert_allclose(
        [row.exponential / result.exponential_sum for row in result.rows], weights, rtol=1e-14, atol=0
    )
    np.testing.assert_allclose([sum(row.products) for row in result.rows], k @ q, rtol=1e-12)
    assert result.rows[2].score == -math.inf
    assert result.rows[2].exponential == 0
    assert result.entropy == attnsym.entropy(weights)


def test_large_scores_are_shifted_before_exp():
    result = attnsym.explain([1000.0, 0.0], [[1.0, 0.0], [0.999, 0.0]], scale=1)
    assert result.shift == 1000
    assert [row.exponential for row in result.rows] == pytest.approx([1, math.exp(-1)])
    assert "exp(score - 1000)" in str(result)


def test_a_sink_is_one_more_share_that_gives_nothing():
    result = attnsym.explain(1.0, [0.0, math.log(3.0)], [2.0, 6.0], scale=1, sink=0.0)
    assert [row.weight for row in result.rows] == pytest.approx([0.2, 0.6], rel=1e-15)
    assert (result.sink, result.sink_weight) == (0.0, pytest.approx(0.2, rel=1e-15))
    assert result.exponential_sum == pytest.approx(5, rel=1e-15)
    assert result.output == pytest.approx((4.0,), rel=1e-15)
    assert result.entropy == pytest.approx(-0.4 * math.log(0.2) - 0.6 * math.log(0.6), rel=1e-14)
    assert [line.split() for line in str(result).splitlines() if "sink" in line] == [["sink", "0", "1", "0.2"]]
    far = attnsym.explain([1000.0], [[1.0], [0.5]], scale=1, sink=2000.0)
    assert far.shift == 2000
    assert far.sink_weight == 1
    assert "sink" not in str(attnsym.explain(1.0, [0.0, 1.0]))
    for sink in (math.inf, math.nan, "1", True, [0.0]):
        with pytest.raises(ValueError, match="sink must be a finite number"):
            attnsym.explain(1.0, [0.0, 1.0], sink=sink)


def test_the_command_knows_the_sink(capsys):
    assert main([*TWO_KEYS, "--json"]) == 0
    assert not [name for name in json.loads(capsys.readouterr().out) if "sink" in name]
    assert main([*TWO_KEYS, "--sink", "0", "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert payload["sink"] == 0
    assert payload["sink_weight"] == pytest.approx(0.2, rel=1e-7)
    assert main([*TWO_KEYS, "--sink", "inf"]) == 2
    assert "sink must be a finite number" in capsys.readouterr().err
