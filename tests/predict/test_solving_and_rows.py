"""scale_for beside mechanisms, row sums of sigmoid and ReLU weights, the commands, and the edges of arguments."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest

import analysis
from analysis.cli import main

TABLE = json.loads((Path(__file__).parent.parent / "reference" / "mechanisms.json").read_text(encoding="utf-8"))
SUMS = [row for row in TABLE["rows"] if "row_sum" in row[2]]


def run(capsys, *arguments):
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("method", ["quadrature", "direct"])
@pytest.mark.parametrize(("mechanism", "p", "quantity", "value", "digits"), SUMS, ids=lambda x: str(x)[:20])
def test_row_sums_of_the_reference_table(mechanism, p, quantity, value, digits, method):
    function = analysis.row_sum_variance if quantity == "Var_row_sum" else analysis.expected_row_sum
    normalizer = "relu" if "relu" in mechanism else "sigmoid"
    actual = function(p["n"], sigma=p["sigma"], normalizer=normalizer, method=method)
    np.testing.assert_allclose(actual, float(value), rtol=max(1e-13, 10.0 ** (2 - digits)))


def test_row_sums_by_two_routes_and_in_their_limits():
    for normalizer in ("sigmoid", "relu"):
        for function in (analysis.expected_row_sum, analysis.row_sum_variance):
            where = {"normalizer": normalizer, "normalizer_bias": -0.7}
            for scores in ({"sigma": [0.5, 2.0, 30.0]}, {"d_k": [2, 64]}):
                first, second = (function(9, **scores, **where, method=m) for m in ("quadrature", "direct"))
                np.testing.assert_allclose(first, second, rtol=1e-9)  # the edge of ReLU at d_k = 2
    assert analysis.expected_row_sum(7, sigma=0) == pytest.approx(7 / 8, rel=1e-15)  # sigmoid(-log 7) = 1/8
    assert analysis.row_sum_variance(7, sigma=0) == 0
    # σ → ∞: a fair coin for each key.
    assert analysis.expected_row_sum(7, sigma=1e8) == pytest.approx(3.5, rel=1e-7)
    assert analysis.row_sum_variance(7, sigma=1e8) == pytest.approx(7 / 4, rel=1e-7)
    # The two forms for wide scores meet.
    near, far = (analysis.row_sum_variance(7, sigma=s) for s in (2.999e4, 3.001e4))
    assert near == pytest.approx(far, rel=1e-6)


def test_the_temperature_that_gives_half_of_log_n():
    found = analysis.scale_for("entropy_fraction", 0.5, 4096, d_k=64, score="cosine")
    entropy = analysis.expected_entropy(4096, d_k=64, scale=found, score="cosine")
    assert entropy / math.log(4096) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("quantity", "function", "scale", "kw"),
    [
        ("entropy", analysis.expected_entropy, 0.7, {"sink": 0.0}),
        ("key_weight", analysis.expected_key_weight, 1.5, {"needle": 6.0}),
        ("jacobian_trace", analysis.expected_jacobian_trace, 2.0, {"bias": 0.1 * np.arange(8)}),
        ("entropy", analysis.expected_entropy, 1.0, {"is_causal": True}),
        ("row_sum", analysis.expected_row_sum, 1.2, {}),
    ],
)
def test_scale_for_beside_a_mechanism(quantity, function, scale, kw):
    target = function(8, sigma=scale, **kw)
    assert analysis.scale_for(quantity, target, 8, **kw) == pytest.approx(scale, rel=1e-10)


def test_a_target_that_several_scales_give_is_refused_with_them():
    with pytest.raises(ValueError, match=r"does not determine the scale: those near [\d.]+, [\d.]+ give it"):
        analysis.scale_for("entropy", 0.7, 10, sink=5.0)
    with pytest.raises(ValueError, match=r"no scale gives key_weight 0.5 .* stays between"):
        analysis.scale_for("key_weight", 0.5, 128, needle=4.0)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["entropy", "--sigma", "1", "--n-keys", "128", "--sink", "2"], 4.364911266833405),
        (["sink_weight", "--d-k", "64", "--n-keys", "128", "--sink", "0"], 0.0047957354999379677),
        (["key_weight", "--sigma", "1", "--n-keys", "1024", "--needle", "8"], 0.6159191954750581),
        (["entropy", "--sigma", "1", "--n-keys", "128", "--bias", "alibi:0.0625"], 3.3362279875990304),
        (["entropy", "--score", "cosine", "--d-k", "64", "--n-keys", "128", "--scale", "10"], 4.1258891758292711),
        (["row_sum", "--sigma", "8", "--n-keys", "4096", "--normalizer", "sigmoid"], 635.85986517436327),
        (["entropy", "--sigma", "3", "--n-keys", "1024", "--causal"], 2.8223956594104611),
    ],
)
def test_the_commands_predict_mechanisms(capsys, arguments, value):
    code, out, _ = run(capsys, "predict", *arguments, "--json")
    assert code == 0
    assert json.loads(out)[0]["value"] == pytest.approx(value, rel=1e-12)
    code, out, _ = run(capsys, "predict", *arguments)
    assert code == 0
    assert "With " in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["predict", "row_sum", "--sigma", "1", "--n-keys", "8", "--sink", "0"], "without sink"),
        (["predict", "entropy", "--sigma", "1", "--n-keys", "8", "--key", "3"], "key goes with key_weight"),
        (["predict", "sink_weight", "--sigma", "1", "--n-keys", "8"], "needs a sink"),
        (["predict", "score_variance", "--d-k", "8", "--sink", "0"], "without sink"),
        (["predict", "score_variance", "--d-k", "8", "--scale", "1e308"], "scale must be at most"),
        (["predict", "entropy", "--sigma", "1", "--n-keys", "8,9", "--bias", "alibi:1"], "one number of keys"),
        (["predict", "entropy", "--d-k", "8", "--n-keys", "8", "--sink", "1e308"], "sink"),
        (["predict", "entropy", "--d-k", "8", "--n-keys", "8", "--scale", "1e308"], "scale"),
        (["predict", "row_sum", "--sigma", "1", "--n-keys", "8", "--normalizer", "max"], "normalizer"),
        (["solve", "entropy", "1e308", "--n-keys", "10"], "no scale"),
        (["solve", "entropy", "-1e308", "--n-keys", "10"], "no scale"),
        (["solve", "entropy", "-4", "--n-keys", "10"], "no scale"),
        (["solve", "entropy_fraction", "1e-320", "--n-keys", "10"], "within rounding"),
        (["solve", "entropy", "1", "--n-keys", "9223372036854775808"], "n_keys"),
    ],
)
def test_absurd_arguments_are_refused_in_one_sentence(capsys, arguments, named):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert named in err


@pytest.mark.parametrize("state", ["raise", "warn"])
def test_no_error_state_of_the_caller_breaks_a_prediction(state):
    with np.errstate(all=state), warnings.catch_warnings():
        warnings.simplefilter("error")
        for sigma in (0.0, 1e-320, 1.0, 1e100):
            analysis.expected_entropy(10, sigma=sigma)
            analysis.expected_max_weight(10, sigma=min(sigma, 1e3))
        for kw in ({"sink": 0.0}, {"softcap": 1e-320}, {"softcap": 1e308}, {"needle": -1e6}, {"bias": [-1e12, 1e12]}):
            analysis.expected_entropy(2, d_k=8, scale=1e-200, **kw)
            analysis.expected_query_gradient_squared(2, d_k=8, scale=1e-200, **kw)
        analysis.expected_row_sum(10, sigma=1e100)
        analysis.scale_for("entropy_fraction", 0.5, 10, d_k=8)
        law = analysis.score_distribution(8)
        far = np.array([-np.inf, -1e308, 0.0, 1e308, np.inf])
        for name in ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf"):
            values = getattr(law, name)(far)
            assert not np.any(np.isnan(values)), name
        assert law.ppf([0.0, 1e-320, 0.5, 1.0]).tolist()[0] == -np.inf


@pytest.mark.parametrize("d_k", [1, 2, 64])
def test_the_law_of_a_score_at_infinity(d_k):
    law = analysis.score_distribution(d_k)
    ends = np.array([-np.inf, np.inf])
    assert law.pdf(ends).tolist() == [0, 0]
    assert law.logpdf(ends).tolist() == [-np.inf, -np.inf]
    assert law.cdf(ends).tolist() == [0, 1]
    assert law.sf(ends).tolist() == [1, 0]
    assert law.logsf(ends).tolist() == [0, -np.inf]
    assert law.ppf([0, 1]).tolist() == ends.tolist()
    assert law.isf([1, 0]).tolist() == ends.tolist()
    assert law.logsf(1e30) < -1e29
