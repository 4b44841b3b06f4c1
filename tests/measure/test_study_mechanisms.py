"""Studies of rows with a sink, a bias, a norm or another normalizer: what they measure beside what is predicted."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import analysis
from analysis import run_study
from analysis.cli import main
from analysis.measure.study import Study
from analysis.predict.row_sums import row_sum_variance
from analysis.show.plots import study_figure
from analysis.vocabulary.mechanism import RowMechanism, read_bias

# 56 estimates are tried, each against 5 standard errors: by chance one fails in 3 of 100 000 runs of another seed.
Z_LIMIT = 5.0
SMALL = {"d_k": 8, "n_keys": 6, "scale": "sqrt", "replicates": 4000, "workers": 1, "seed": 3}
MECHANISMS = {
    "sink": {"sink": 0.5},
    "bias": {"bias": "alibi:0.5"},
    "softcap": {"softcap": 1.0},
    "norm": {"qk_norm": "rms"},
    "cosine": {"score": "cosine", "scale": 3.0},
    "causal sink": {"sink": 0.0, "is_causal": True},
}
QUANTITIES = ("entropy", "logsumexp", "jacobian_norm", "max_weight", "query_gradient_norm", "key_weight")
# As the others, by factors or another power.
ALIKE = ("entropy_fraction", "power_sum_2", "power_sum_3", "jacobian_trace", "score_gradient_norm")


@pytest.mark.parametrize("quantities", [QUANTITIES, pytest.param(ALIKE, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_is_measured_beside_its_prediction(name, quantities):
    for quantity in quantities:
        statistic = "rms" if quantity.endswith("norm") else "mean"
        if statistic == "rms" and "is_causal" in MECHANISMS[name]:
            continue  # a mean over rows says nothing of a root mean square
        row = run_study(quantity, statistic=statistic, **(SMALL | MECHANISMS[name])).rows[0]
        assert abs(row.z_score) < Z_LIMIT, (quantity, row)


@pytest.mark.parametrize("what", [{"sink": -1.0}, {"bias": [0.0, -1.0, 0.5, 0.0, 2.0, 0.25], "sink": 1.0}])
def test_a_sink_has_its_weight_in_every_quantity(what):
    for quantity in ("sink_weight", "entropy", "score_gradient_norm", "jacobian_norm"):
        statistic = "rms" if quantity.endswith("norm") else "mean"
        assert abs(run_study(quantity, statistic=statistic, **SMALL, **what).rows[0].z_score) < Z_LIMIT


@pytest.mark.parametrize("normalizer", ["sigmoid", "relu"])
def test_row_sums_have_mean_and_variance(normalizer):
    rows = run_study("row_sum", statistic=("mean", "variance"), normalizer=normalizer, **SMALL).rows
    assert all(abs(row.z_score) < Z_LIMIT for row in rows)
    assert rows[1].prediction == row_sum_variance(6, normalizer=normalizer, d_k=8)


def test_a_plain_study_says_nothing_of_mechanisms(tmp_path):
    plain = run_study("entropy", **SMALL)
    plain.to_json(tmp_path / "plain.json")
    row = json.loads((tmp_path / "plain.json").read_text())["rows"][0]
    assert not {"sink", "bias", "normalizer", "normalizer_bias", "qk_norm"} & set(row)
    assert run_study("entropy", sink=np.float32(-math.inf), **SMALL).rows == plain.rows


def test_a_mechanism_is_kept_in_the_file_the_store_the_caption_and_the_figure(tmp_path, capsys):
    what = {"sink": 0.25, "bias": np.linspace(0, -1, 6), "qk_norm": "l2"}
    study = run_study("entropy", store=tmp_path / "s.db", **SMALL, **what)
    study.to_json(tmp_path / "s.json")
    assert Study.from_json(tmp_path / "s.json").rows == study.rows
    assert run_study("entropy", store=tmp_path / "s.db", **SMALL, **what).rows == study.rows
    with pytest.raises(ValueError, match=r"sink is 0\.25 there and 0\.5 here"):
        run_study("entropy", store=tmp_path / "s.db", **SMALL, **(what | {"sink": 0.5}))
    assert "sink 0.25, bias 0.0, ... (6 numbers), qk_norm l2" in study._repr_html_()
    other = run_study("entropy", **SMALL, **(what | {"sink": 0.5}))
    assert {"sink 0.25", "sink 0.5"} == {text.get_text() for text in study_figure(study, other).axes[0].legend_.texts}


def test_lengths_share_one_slope():
    rows = run_study("key_weight", bias="alibi:0.5", **(SMALL | {"n_keys": [2, 9]})).rows
    exact = [analysis.expected_key_weight(n, d_k=8, bias=[-0.5 * j for j in range(n)]) for n in (2, 9)]
    assert [row.prediction for row in rows] == pytest.approx(exact, rel=1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_a_bias_is_kept_to_the_bit(values):
    kept = read_bias(values)
    assert read_bias(kept) == kept
    assert RowMechanism(bias=kept).bias_of(len(values)).tolist() == values


def test_where_a_row_is_shifted_as_a_whole_no_value_is_predicted_beside_a_sink():
    assert run_study("entropy", sink=0.0, alignment=0.3, key_correlation=0.09, **SMALL).rows[0].prediction is None
    assert run_study("entropy", sink=0.0, law="laplace", **SMALL).rows[0].prediction is None


REFUSED = [
    ("entropy", {"sink": "x"}, "sink must be a finite number: got 'x'"),
    ("entropy", {"sink": math.nan}, "sink must be a finite number"),
    ("entropy", {"sink": True}, "sink must be a finite number: got True"),
    ("entropy", {"bias": "alibi"}, "bias must be 'alibi:SLOPE' or n_keys finite numbers: got 'alibi'"),
    ("entropy", {"bias": "alibi:"}, "bias must be 'alibi:SLOPE'"),
    ("entropy", {"bias": "alibi:1,2"}, "bias must be 'alibi:SLOPE'"),
    ("entropy", {"bias": [0.0, math.inf]}, "bias must be 'alibi:SLOPE'"),
    ("entropy", {"bias": [True, False]}, "bias must be 'alibi:SLOPE'"),
    ("entropy", {"bias": 3.0}, "bias must be 'alibi:SLOPE'"),
    ("entropy", {"bias": []}, "bias must be 'alibi:SLOPE'"),
    ("entropy", {"bias": [[0.0] * 6]}, "bias must be 'alibi:SLOPE'"),
    ("entropy", {"bias": [0.0, 1.0]}, "bias must have n_keys numbers: got 2 for n_keys 6"),
    ("entropy", {"normalizer": "softplus"}, "normalizer must be 'softmax', 'sigmoid' or 'relu'"),
    ("entropy", {"normalizer": None}, "normalizer must be 'softmax', 'sigmoid' or 'relu'"),
    ("entropy", {"normalizer": "sigmoid"}, "weights of no fixed sum, which entropy needs"),
    ("row_sum", {}, "row_sum needs normalizer 'sigmoid' or 'relu'"),
    ("row_sum", {"normalizer": "relu", "normalizer_bias": math.inf}, "normalizer_bias must be a finite number"),
    ("row_sum", {"normalizer": "relu", "sink": 0.0}, "sink needs normalizer 'softmax'"),
    ("entropy", {"normalizer_bias": 0.0}, "normalizer_bias needs normalizer"),
    ("entropy", {"qk_norm": "l3"}, "qk_norm must be 'l2' or 'rms': got 'l3'"),
    ("entropy", {"qk_norm": True}, "qk_norm must be 'l2' or 'rms': got True"),
    ("entropy", {"qk_norm": "l2", "score": "cosine"}, "qk_norm goes with score 'dot'"),
    ("sink_weight", {}, "sink_weight needs a sink"),
    ("score", {"sink": 0.0}, "sink acts on a row of scores"),
    ("entropy", {"sink": 0.0, "sampler": "conditional"}, "does not apply to a row with sink"),
    (lambda q, k, s: q[:, 0, 0], {"bias": "alibi:1"}, "bias does not reach a callable quantity"),
]


@pytest.mark.parametrize(("quantity", "arguments", "message"), REFUSED)
def test_bad_input_is_one_sentence(quantity, arguments, message):
    with pytest.raises(ValueError, match=message):
        run_study(quantity, **(SMALL | arguments))


def test_the_command_measures_what_the_function_does(capsys):
    arguments = ["study", "entropy", "--d-k", "8", "--n-keys", "6", "--scale", "sqrt", "--replicates", "500"]
    arguments += ["--sink", "-1", "--bias", "alibi:0.5", "--qk-norm", "rms", "--seed", "3", "--workers", "1"]
    assert main([*arguments, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    own = run_study("entropy", sink=-1, bias="alibi:0.5", qk_norm="rms", **(SMALL | {"replicates": 500})).rows[0]
    assert (row["estimate"], row["sink"], row["bias"], row["qk_norm"]) == (own.estimate, -1.0, "alibi:0.5", "rms")
    assert main([*arguments, "--normalizer", "sigmoid"]) == 2
    assert "sink needs normalizer" in capsys.readouterr().err
