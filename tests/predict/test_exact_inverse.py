"""scale_for and the commands predict and solve."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from analysis.cli import main
from analysis.predict import average as exact_average
from analysis.predict.inverse import scale_for
from analysis.predict.of_quantity import value_of
from analysis.predict.quadrature import gaussian_softmax
from analysis.vocabulary.quantities import QUANTITIES

MONOTONE = {name: value_of(record) for name, record in QUANTITIES.items() if record.exact and record.exact.is_monotone}


@settings(max_examples=40, derandomize=True)
@given(st.sampled_from(sorted(MONOTONE)), st.integers(2, 10**7), st.floats(math.log(0.05), math.log(300)))
def test_it_inverts_the_expectation(quantity, n_keys, log_sigma):
    sigma = math.exp(log_sigma)
    target = float(MONOTONE[quantity](n_keys, sigma=sigma))
    found = scale_for(quantity, target, n_keys)
    assert float(MONOTONE[quantity](n_keys, sigma=found)) == pytest.approx(target, rel=1e-13)
    # Next to a limit many σ give one target to rounding; the worst here moves 1e-12 of the target for 1e-3 of σ.
    assert found == pytest.approx(sigma, rel=1e-3)


def test_by_dimension_and_broadcasting():
    found = scale_for("entropy_fraction", [[0.5], [0.9]], 128, d_k=[16, 512])
    assert found.shape == (2, 2)
    fraction = analysis.expected_entropy(128, d_k=[[16, 512]], scale=found) / math.log(128)
    np.testing.assert_allclose(fraction, [[0.5, 0.5], [0.9, 0.9]], rtol=1e-12)
    assert scale_for("entropy_fraction", 1, 128, d_k=16) == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("entropy", -1.0, 10), "no scale gives entropy -1 .*from 2.30259 at scale 0 to 0"),
        (("entropy", 3.0, 10), "no scale gives entropy 3"),
        (("entropy", math.nan, 10), "no scale gives entropy nan"),
        (("max_weight", 1.0, 10), "no scale gives max_weight 1"),
        (("entropy", "a", 10), "target must be a number: got 'a'"),
        (("entropy", 0.1, 1), "n_keys must be at least 2"),
        (("entropy", 0.1, 2.5), r"n_keys.*got 2\.5"),
        (("jacobian_frobenius_squared", 0.1, 10), "not monotone"),
        (("speed", 0.1, 10), "unknown quantity 'speed': known are score, entropy"),
        (("entropy_fraction", 1e-40, 10), "within rounding of its limit"),
        (("entropy", [1.0, 0.9], [2, 3, 4]), "broadcast"),
    ],
)
def test_bad_targets(arguments, named):
    with pytest.raises(ValueError, match=named):
        scale_for(*arguments)


def run(capsys, *arguments):
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_predict_prints_values_with_their_meaning(capsys):
    code, out, _ = run(capsys, "predict", "entropy", "--d-k", "512", "--n-keys", "10", "--scale", "sqrt,unscaled")
    assert code == 0
    for scale in ("sqrt", "unscaled"):
        value = analysis.expected_entropy(10, d_k=512, scale=scale)
        assert f"{value:.13g}" in out
        assert f"{value / math.log(10):.2%} of log n_keys" in out


@pytest.mark.parametrize("quantity", ["entropy", "logsumexp", "power_sum_2", "power_sum_3", "jacobian_trace",
                                      "jacobian_frobenius_squared", "max_weight"])  # fmt: skip
def test_predict_by_sigma_as_json(capsys, quantity):
    code, out, _ = run(capsys, "predict", quantity, "--sigma", "0,1.5", "--n-keys", "1,8", "--json")
    assert code == 0
    rows = json.loads(out)
    assert [(row["sigma"], row["n_keys"]) for row in rows] == [(0, 1), (0, 8), (1.5, 1), (1.5, 8)]
    assert all(row["meaning"] for row in rows)
    assert all(row["d_k"] is None for row in rows)


def test_the_gradient_of_the_query_is_predicted(capsys):
    code, out, _ = run(capsys, "predict", "query_gradient_squared", "--d-k", "64", "--n-keys", "10", "--json")
    assert code == 0
    assert json.loads(out)[0]["value"] == analysis.expected_query_gradient_squared(10, d_k=64)


@pytest.mark.parametrize("method", ["quadrature", "direct"])
def test_the_variance_of_a_score_is_predicted(capsys, method):
    arguments = [
        "predict",
        "score_variance",
        "--d-k",
        "512",
        "--scale",
        "sqrt,unscaled,0",
        "--method",
        method,
        "--json",
    ]
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert [row["value"] for row in json.loads(out)] == pytest.approx([1, 512, 0], rel=1e-14)


@pytest.mark.parametrize("method", ["quadrature", "direct"])
def test_the_variance_of_a_score_shows_the_n_keys_that_its_scale_was_given(capsys, method):
    arguments = ["predict", "score_variance", "--d-k", "512", "--scale", "log(n_keys)", "--method", method]
    code, out, _ = run(capsys, *arguments, "--n-keys", "10,1000", "--json")
    assert code == 0
    rows = json.loads(out)
    assert [row["n_keys"] for row in rows] == [10, 1000]
    assert [row["value"] for row in rows] == pytest.approx([512 * math.log(n) ** 2 for n in (10, 1000)], rel=1e-13)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert "a score has no n_keys: give the number" in err


def test_solve(capsys):
    code, out, _ = run(capsys, "solve", "entropy_fraction", "0.5", "--n-keys", "1024", "--d-k", "64")
    assert code == 0
    assert f"scale {scale_for('entropy_fraction', 0.5, 1024, d_k=64):.13g}" in out
    code, out, _ = run(capsys, "solve", "entropy_fraction", "0.5", "--n-keys", "64,1024", "--json")
    assert [row["sigma"] for row in json.loads(out)] == [scale_for("entropy_fraction", 0.5, n) for n in (64, 1024)]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["predict", "entropy", "--n-keys", "3"], "either|neither"),
        (["predict", "entropy", "--d-k", "3"], "--n-keys"),
        (["predict", "entropy", "--n-keys", "3", "--d-k", "2", "--sigma", "1"], "both"),
        (["predict", "entropy", "--n-keys", "3", "--sigma", "1", "--scale", "sqrt"], "both"),
        (["predict", "entropy", "--n-keys", "0", "--sigma", "1"], "n_keys"),
        (["predict", "entropy", "--n-keys", "3", "--d-k", "4", "--scale", "none"], "ambiguous"),
        (["predict", "entropy", "--n-keys", "3", "--d-k", "4", "--scale", ""], "--scale is empty"),
        (["predict", "entropy", "--n-keys", "3", "--d-k", "4", "--method", "guess"], "method"),
        (["predict", "speed", "--n-keys", "3", "--sigma", "1"], "speed"),
        (["predict", "query_gradient_squared", "--n-keys", "3", "--sigma", "1"], "--d-k"),
        (["solve", "entropy", "9", "--n-keys", "3"], "no scale"),
        (["solve", "entropy", "1", "--n-keys", "x"], "--n-keys"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(capsys, arguments, named):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert any(part in err for part in named.split("|"))


def test_a_far_target_takes_few_evaluations(monkeypatch):
    target = 1e-9
    tables = []

    def counted(sigma, n_keys):
        tables.append(sigma)
        return gaussian_softmax(sigma, n_keys)

    monkeypatch.setattr(exact_average, "gaussian_softmax", counted)
    exact_average.gaussian_attention.cache_clear()
    found = scale_for("entropy_fraction", target, 10, d_k=1)
    assert len(tables) < 8000, len(tables)
    assert analysis.expected_entropy(10, d_k=1, scale=found) / math.log(10) == pytest.approx(target, rel=1e-12)
