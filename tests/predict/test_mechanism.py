"""Exact expectations with sinks, biases, soft-caps, cosines, needles, unequal keys and causal masks."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import analysis
from analysis.predict.mechanism.grid import Group
from analysis.predict.mechanism.key_law import KeyLaw, legendre_panels, running
from analysis.predict.mechanism.row import expectations

TABLE = json.loads((Path(__file__).parent.parent / "reference" / "mechanisms.json").read_text(encoding="utf-8"))
ROWS = [row for row in TABLE["rows"] if "row_sum" not in row[2]]
ACCURACY = 1e-12

BY_NAME = {
    "logsumexp": analysis.expected_logsumexp,
    "entropy": analysis.expected_entropy,
    "power_sum_2": lambda n, **kw: analysis.expected_power_sum(2, n, **kw),
    "power_sum_3": lambda n, **kw: analysis.expected_power_sum(3, n, **kw),
    "jacobian_trace": analysis.expected_jacobian_trace,
    "jacobian_frobenius_squared": analysis.expected_jacobian_frobenius_squared,
    "max_weight": analysis.expected_max_weight,
    "key_weight": analysis.expected_key_weight,
}
# name -> the mechanism and n_keys.
MECHANISMS = {
    "sink": ({"sink": 0.7}, 6),
    "bias": ({"bias": [0.3, -1.0, 2.0, 0.0, 0.0]}, 5),
    "bias and sink": ({"bias": [0.3, -1.0, 2.0, 0.0, 0.0], "sink": -1.0}, 5),
    "needle": ({"needle": 3.0}, 7),
    "soft-cap": ({"softcap": 2.0}, 4),
    "soft-cap, needle and sink": ({"softcap": 4.0, "needle": 2.0, "sink": 0.0}, 9),
    "key_spread": ({"key_spread": [1.0, 2.0, 0.5]}, 3),
    "causal": ({"is_causal": True, "sink": 0.0}, 4),
    "causal bias": ({"is_causal": True, "bias": [0.5, 0.0, -0.5, -1.0]}, 4),
    "window": ({"is_causal": True, "window": 2, "needle": 1.0}, 4),
}


def close(actual, expected, rtol=ACCURACY):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=0)


def arguments(mechanism, p):
    """Translate a row of the table: n_keys, where the scores come from, and the mechanism."""
    n = p.get("n") or p["n1"] + p["n2"]
    kw = {"sink": p.get("b"), "needle": p.get("mu"), "softcap": p.get("cap"), "window": p.get("window")}
    if "slope" in p:
        kw["bias"] = -p["slope"] * np.arange(n)
    if "n1" in p:
        kw["key_spread"] = [p["sigma1"]] * p["n1"] + [p["sigma2"]] * p["n2"]
    if mechanism in ("causal", "windowed"):
        kw["is_causal"] = True
    if mechanism == "cosine":
        return n, {"d_k": p["d"], "scale": p["tau"], "score": "cosine"}
    if "d_k" in p:
        return n, {"d_k": p["d_k"], "scale": p["scale"], **kw}
    return n, {"sigma": p.get("sigma", 1.0), **kw}


def predicted(mechanism, p, quantity):
    n, kw = arguments(mechanism, p)
    if quantity == "mean_over_rows_2..n_of_E_H/log(keys)":
        rows = np.arange(2, n + 1)
        return np.mean(analysis.expected_entropy(rows, sigma=kw["sigma"], sink=-math.inf) / np.log(rows))
    if quantity in ("E_H", "mean_over_rows_1..n_of_E_H"):
        return analysis.expected_entropy(n, **kw)
    if quantity == "E_sum_p2":
        return analysis.expected_power_sum(2, n, **kw)
    if quantity == "E_p_sink":
        return analysis.expected_sink_weight(n, **kw)
    if quantity in ("E_p_needle", "E_p_distance0"):
        return analysis.expected_key_weight(n, **kw)
    if quantity == "E_mean_distance":
        return analysis.expected_key_weight(n, key=np.arange(n), **kw) @ np.arange(n)
    assert quantity == "E_mass_group1"
    return p["n1"] * analysis.expected_key_weight(n, key=0, **kw)


@pytest.mark.parametrize(("mechanism", "p", "quantity", "value", "digits"), ROWS, ids=lambda x: str(x)[:24])
def test_the_reference_table(mechanism, p, quantity, value, digits):
    close(predicted(mechanism, p, quantity), float(value), rtol=max(1e-13, 10.0 ** (2 - digits)))


@pytest.mark.parametrize(
    ("case", "name"),
    [
        pytest.param(case, name, marks=[pytest.mark.slow] * (name == "max_weight" and "bias" in case))
        for case in MECHANISMS
        for name in BY_NAME
    ],
)
def test_two_routes_agree(case, name):
    mechanism, n = MECHANISMS[case]
    function = BY_NAME[name]
    close(function(n, sigma=0.6, **mechanism), function(n, sigma=0.6, method="direct", **mechanism))


@settings(max_examples=25, derandomize=True)
@given(
    st.sampled_from(sorted(set(BY_NAME) - {"max_weight"})),
    st.floats(-2.5, 1.0),
    st.floats(-4.0, 4.0),
    st.floats(-3.0, 3.0),
    st.lists(st.floats(-3.0, 3.0), min_size=2, max_size=5),
    st.sampled_from([None, 0.7, 3.0]),
)
def test_two_routes_agree_for_all_mechanisms_at_once(name, log_sigma, sink, needle, bias, softcap):
    kw = {"sigma": 10.0**log_sigma, "sink": sink, "needle": needle, "bias": bias, "softcap": softcap}
    function, n = BY_NAME[name], len(bias)
    absolute = 1e-13 if name in ("logsumexp", "entropy") else 0  # differences on the second route
    first, second = function(n, **kw), function(n, method="direct", **kw)
    np.testing.assert_allclose(first, second, rtol=ACCURACY, atol=absolute)


@pytest.mark.parametrize("kw", [{}, {"sink": 0.5}, {"softcap": 2.0}])
@pytest.mark.parametrize(("d_k", "temperature"), [(1, 1.0), (3, 2.0), (64, 12.0)])
def test_two_routes_agree_for_cosines(d_k, temperature, kw):
    for name in ("entropy", "jacobian_frobenius_squared", "max_weight"):
        if d_k < 64 and name == "max_weight":
            continue  # ties at 1, and the second route is slow at 3
        where = dict(d_k=d_k, scale=temperature, score="cosine", **kw)
        close(BY_NAME[name](4, **where), BY_NAME[name](4, method="direct", **where))


@pytest.mark.parametrize(
    ("d_k", "scale"),
    [(64, "sqrt"), pytest.param(3, 1.0, marks=pytest.mark.slow), pytest.param(16, 1.0, marks=pytest.mark.slow)],
)
def test_two_routes_agree_for_vectors(d_k, scale):
    where = {"d_k": d_k, "scale": scale, "sink": 0.3, "needle": 1.5}
    for function in (BY_NAME["power_sum_2"], analysis.expected_query_gradient_squared):
        close(function(6, **where), function(6, method="direct", **where), rtol=1e-10)


@pytest.mark.parametrize("sigma", [1e-3, 0.4, 1.9, 2.1, 7.9, 8.1])
def test_mechanisms_that_do_nothing_give_the_plain_value(sigma):
    n = 12
    nothing = [
        {"sink": -1e5}, {"bias": np.zeros(n)}, {"bias": np.full(n, 3.0)}, {"key_spread": np.ones(n)},
        {"softcap": 1e9}, {"sink": [-1e5, -math.inf]}, {"needle": 1e-300},
    ]  # fmt: skip
    for name, function in BY_NAME.items():
        if name == "key_weight":
            continue
        plain = function(n, sigma=sigma)
        for kw in nothing:
            if name == "logsumexp" and "bias" in kw:
                plain_here = plain + kw["bias"][0]
            elif "softcap" in kw and (sigma > 8 or name == "max_weight"):
                continue  # a cap of 1e9 has no quick value for wide scores
            else:
                plain_here = plain
            close(function(n, sigma=sigma, **kw), np.broadcast_to(plain_here, np.shape(function(n, sigma=sigma, **kw))))


def test_the_general_integral_meets_the_plain_one():
    for sigma in (0.05, 1.0, 3.0, 22.6):
        for n in (2, 10, 1024):
            for name in ("entropy", "power_sum_3", "jacobian_trace", "jacobian_frobenius_squared", "logsumexp"):
                general = expectations(name, [Group(KeyLaw(sigma), 0.0, n)], np.array([[float(n)]]))[0]
                close(general, BY_NAME[name](n, sigma=sigma), rtol=3e-13)


def test_two_keys_and_a_sink_in_closed_form():
    # One key and a sink: p = 1/(1 + e^(b - s)), an average over s alone.
    z, step = np.linspace(-9, 9, 4001, retstep=True)
    weight = step * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    for sigma, b in ((0.3, 0.0), (1.0, -2.0), (3.0, 1.0)):
        p = 1 / (1 + np.exp(b - sigma * z))
        kw = {"sigma": sigma, "sink": b}
        close(analysis.expected_sink_weight(1, **kw), weight @ (1 - p))
        close(analysis.expected_key_weight(1, **kw), weight @ p)
        close(analysis.expected_max_weight(1, **kw), weight @ p)
        close(analysis.expected_jacobian_trace(1, **kw), weight @ (p * (1 - p)))
        close(analysis.expected_jacobian_frobenius_squared(1, **kw), weight @ (p * (1 - p)) ** 2)
        close(analysis.expected_entropy(1, **kw), weight @ -(p * np.log(p) + (1 - p) * np.log1p(-p)))
        close(analysis.expected_logsumexp(1, **kw), weight @ np.logaddexp(b, sigma * z))


def test_one_dimensional_cosines_are_signs():
    # d_k = 1: each score is ±τ with probability 1/2.
    tau = 1.5
    p = 1 / (1 + math.exp(2 * tau))
    entropy = (math.log(2) - (p * math.log(p) + (1 - p) * math.log(1 - p))) / 2
    close(analysis.expected_entropy(2, d_k=1, scale=tau, score="cosine"), entropy)


def test_equal_scores_in_closed_form():
    e = math.e
    close(analysis.expected_sink_weight(4, sigma=0, sink=0), 1 / 5)
    close(analysis.expected_key_weight(4, sigma=0, needle=1.0), e / (e + 3))
    close(analysis.expected_max_weight(4, sigma=0, needle=1.0), e / (e + 3))
    close(analysis.expected_entropy(3, d_k=5, scale=0, sink=0), math.log(4))
    close(analysis.expected_logsumexp(2, sigma=0, bias=[0.0, 1.0], sink=0.0), math.log(2 + e))


def test_weights_add_up():
    n, bias = 40, -0.25 * np.arange(40)
    for kw in ({"sigma": 2.0}, {"d_k": 16}, {"sigma": 2.0, "softcap": 3.0}):
        weights = analysis.expected_key_weight(n, key=np.arange(n), bias=bias, sink=1.0, **kw)
        close(weights.sum() + analysis.expected_sink_weight(n, bias=bias, sink=1.0, **kw), 1.0)
        assert np.all(np.diff(weights) < 0)


def test_many_distinct_biases_are_read_off_one_table():
    rng = np.random.default_rng(5)
    bias = rng.normal(size=300)
    few = bias[:5]
    close(
        analysis.expected_entropy(300, sigma=1.0, bias=bias),
        analysis.expected_entropy(300, sigma=1.0, bias=bias[::-1]),
    )
    # 295 keys so low that nothing is left of them.
    padded = np.concatenate([few, np.linspace(-400, -200, 295)])
    for function in (analysis.expected_entropy, analysis.expected_max_weight):
        close(function(300, sigma=1.0, bias=padded), function(5, sigma=1.0, bias=few))


def test_causal_means_are_means_of_rows():
    n, rows = 6, np.arange(1, 7)
    bias = np.array([0.5, -1.0, 0.0, 2.0, 0.3, 0.1])
    for name, function in BY_NAME.items():
        each = function(rows, sigma=1.3, sink=0.2)
        close(function(n, sigma=1.3, sink=0.2, is_causal=True), np.mean(each))
        each = [function(int(i), sigma=1.3, bias=bias[:i]) for i in rows]
        close(function(n, sigma=1.3, bias=bias, is_causal=True), np.mean(each)), name
    windowed = analysis.expected_entropy(n, sigma=1.3, is_causal=True, window=3)
    close(windowed, np.mean(analysis.expected_entropy(np.minimum(rows, 3), sigma=1.3)))


@pytest.mark.parametrize("kw", [{}, {"sink": 0.0}, {"needle": 2.0}, {"needle": -30.0, "sink": 1.0}, {"softcap": 3.0}])
def test_the_largest_weight_of_all_causal_rows_in_one_integral(kw):
    n = 80
    each = analysis.expected_max_weight(np.arange(1, n + 1), sigma=1.3, **kw)
    close(analysis.expected_max_weight(n, sigma=1.3, is_causal=True, **kw), np.mean(each))


def test_the_largest_weight_of_causal_rows_of_different_keys():
    bias = np.linspace(3.0, -20.0, 30)
    each = [analysis.expected_max_weight(i, sigma=0.7, bias=bias[:i], sink=0.5) for i in range(1, 31)]
    close(analysis.expected_max_weight(30, sigma=0.7, bias=bias, sink=0.5, is_causal=True), np.mean(each))


@pytest.mark.parametrize("kw", [{}, {"sink": 0.5}, {"softcap": 2.0}, {"bias": [2.0, 0.0, 0.0, 1.0]}, {"needle": 9.0}])
def test_the_largest_weight_where_some_keys_are_constant(kw):
    where = {"sigma": 0.8, "key_spread": [0.0, 1.0, 0.0, 2.0], **kw}
    close(analysis.expected_max_weight(4, **where), analysis.expected_max_weight(4, method="direct", **where))


def test_the_largest_of_a_constant_and_a_random_key_in_closed_form():
    # max p = 1/(1 + e^-|s|), s ~ N(0, σ²).
    z, step = np.linspace(0, 9, 20001, retstep=True)
    weight = step * np.exp(-(z**2) / 2) * math.sqrt(2 / math.pi)
    values = weight / (1 + np.exp(-1.7 * z))
    simpson = (values[0] + values[-1] + 4 * values[1:-1:2].sum() + 2 * values[2:-1:2].sum()) / 3
    close(analysis.expected_max_weight(2, sigma=1.7, key_spread=[0.0, 1.0]), simpson)


def test_a_window_hides_the_needle():
    # Rows 1 and 2 of 5 see key 0, the needle.
    seen = [analysis.expected_key_weight(i, sigma=1.0, needle=2.0) for i in (1, 2)]
    close(analysis.expected_key_weight(5, sigma=1.0, needle=2.0, is_causal=True, window=2), sum(seen) / 5)


def test_arrays_broadcast():
    grid = analysis.expected_sink_weight([[4], [8]], sigma=1.0, sink=[-1.0, 0.0, 1.0])
    assert grid.shape == (2, 3)
    close(grid[1, 2], analysis.expected_sink_weight(8, sigma=1.0, sink=1.0))
    assert analysis.expected_entropy(8, sigma=[0.5, 1.0], softcap=[[1.0], [2.0]]).shape == (2, 2)
    assert isinstance(analysis.expected_entropy(8, sigma=1.0, needle=1.0), float)


@pytest.mark.parametrize("sigma", [1e3, 1e6])
def test_very_wide_scores_beside_a_sink(sigma):
    # As σ → ∞ the sink keeps its weight where all n scores are below it; corrections are of order 1/σ.
    for n in (1, 3):
        weight = analysis.expected_sink_weight(n, sigma=sigma, sink=0.0)
        assert weight == pytest.approx(2.0**-n, rel=10 / sigma)
        assert weight == pytest.approx(analysis.expected_sink_weight(n, sigma=sigma, sink=1.0), rel=10 / sigma)


def test_the_gradient_of_the_query_of_cosines():
    # ∂c/∂q is across q, of mean square (d-1)/d / (d-2) per key; for 2 keys J = p(1-p)[[1,-1],[-1,1]].
    d = 5
    value = analysis.expected_query_gradient_squared(2, d_k=d, scale=1e-4, score="cosine")
    across = 2 * (1 / 4) ** 2 * 2 * (d - 1) / d / (d - 2)
    assert value == pytest.approx(1e-8 * across, rel=1e-6)


def test_running_integrals_on_panels():
    edges = np.array([0.0, 0.5, 2.0])
    x, width = legendre_panels(edges)
    np.testing.assert_allclose(running(np.cos(x), np.diff(edges)), np.sin(x), atol=1e-15)
    np.testing.assert_allclose(width @ np.cos(x), math.sin(2.0), rtol=1e-14)


@pytest.mark.parametrize(
    ("kw", "named"),
    [
        ({"sink": math.nan}, "sink.*got nan"),
        ({"sink": math.inf}, r"sink must be -inf or a number of size at most 1e\+12: got inf"),
        ({"sink": "0"}, "sink.*got '0'"),
        ({"softcap": 0.0}, r"softcap must be a number > 0: got 0"),
        ({"softcap": -1.0}, "softcap.*got -1"),
        ({"needle": 1e300}, "needle.*got 1e"),
        ({"bias": [1.0, 2.0]}, "bias must have n_keys numbers: got 2 for n_keys 4"),
        ({"bias": 1.0}, r"bias must have the shape \(n_keys,\)"),
        ({"bias": [0, 0, math.nan, 0]}, "bias.*got nan"),
        ({"key_spread": [1, 1, -1, 1]}, "key_spread.*got -1"),
        ({"score": "euclid"}, "score must be dot or cosine"),
        ({"score": "cosine"}, "score='cosine' takes d_k"),
        ({"is_causal": 1}, "is_causal must be True or False: got 1"),
        ({"window": 2}, "window goes with is_causal=True"),
        ({"is_causal": True, "window": 0}, "window.*got 0"),
    ],
)
def test_bad_input_is_one_sentence(kw, named):
    with pytest.raises(ValueError, match=named) as error:
        analysis.expected_entropy(4, sigma=1.0, **kw)
    assert "\n" not in str(error.value)


def test_refusals_of_keys_and_of_what_has_no_value():
    with pytest.raises(ValueError, match=r"key must be below n_keys .*got 4 for n_keys 4"):
        analysis.expected_key_weight(4, key=4, sigma=1.0)
    with pytest.raises(ValueError, match="key must be a whole number >= 0: got -1"):
        analysis.expected_key_weight(4, key=-1, sigma=1.0)
    with pytest.raises(ValueError, match="sink must be -inf or a number: got None"):
        analysis.expected_sink_weight(4, sink=None, sigma=1.0)
    with pytest.raises(ValueError, match="infinite mean for d_k below 3"):
        analysis.expected_query_gradient_squared(4, d_k=2, score="cosine")
    with pytest.raises(ValueError, match="shifted apart"):
        analysis.expected_max_weight(4, sigma=1.0, softcap=2.0, bias=[0, 1, 2, 3])
    with pytest.raises(TypeError, match="sinks"):
        analysis.expected_entropy(4, sigma=1.0, sinks=0.0)


@pytest.mark.parametrize("n", [2, 3, 10, 1000])
@pytest.mark.parametrize("sigma", [0.0, 1e-300, 1e-9, 1e-4, 30.0, 1e6, 1e100])
def test_values_stay_within_their_ranges(n, sigma):
    where = {"sigma": sigma}
    assert 0 <= analysis.expected_entropy(n, **where) <= math.log(n)
    assert 0 <= analysis.expected_jacobian_trace(n, **where) <= 1 - 1 / n
    assert 1 / n <= analysis.expected_max_weight(n, **where) <= 1
    assert 1 / n <= analysis.expected_power_sum(2, n, **where) <= 1
    assert analysis.expected_power_sum(3, n, **where) <= 1
    assert 0 <= analysis.expected_sink_weight(n, sink=50.0, sigma=min(sigma, 1e6)) <= 1


def test_ranges_by_dimension():
    for scale in (1e-8, 1e4):
        assert analysis.expected_entropy(7, d_k=64, scale=scale) <= math.log(7)
        assert analysis.expected_jacobian_trace(7, d_k=64, scale=scale) <= 1 - 1 / 7
    assert analysis.expected_max_weight(7, d_k=64, scale=1e-8) <= 1


@settings(max_examples=12, derandomize=True)
@given(st.sampled_from(sorted(BY_NAME)), st.floats(0.05, 4.0), st.integers(2, 40))
def test_limits_are_the_plain_case(name, sigma, n):
    function = BY_NAME[name]
    plain = function(n, sigma=sigma)
    slope = -1e-13 * np.arange(n)
    for nearly in ({"sink": -60.0}, {"softcap": 1e9 * sigma}, {"bias": slope}, {"key_spread": 1.0 + slope}):
        close(function(n, sigma=sigma, **nearly), plain, rtol=1e-11)
    assert 0 <= plain <= max(math.log(n) + sigma**2, 1)


@settings(max_examples=12, derandomize=True)
@given(st.floats(0.05, 4.0), st.floats(-4.0, 4.0))
def test_two_keys_in_closed_form(sigma, shift):
    # The difference of the scores is N(shift, 2σ²), and p = 1/(1 + e^-difference).
    z, step = np.linspace(-9.5, 9.5, 4001, retstep=True)
    weight = step * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    p = 1 / (1 + np.exp(-(shift + math.sqrt(2) * sigma * z)))
    kw = {"sigma": sigma, "bias": [shift, 0.0]}
    close(analysis.expected_key_weight(2, **kw), weight @ p)
    close(analysis.expected_jacobian_trace(2, **kw), weight @ (2 * p * (1 - p)))
    close(analysis.expected_power_sum(2, 2, **kw), weight @ (p**2 + (1 - p) ** 2))
    close(analysis.expected_jacobian_frobenius_squared(2, **kw), weight @ (4 * (p * (1 - p)) ** 2))
    close(analysis.expected_key_weight(2, sigma=sigma, needle=shift), weight @ p)


@pytest.mark.parametrize(
    ("sigma", "sink"),
    [(0.5, 60.0), (2.0, 60.0), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2.0, 100.0), (4.0, 120.0)))],
)
def test_what_a_high_sink_leaves_keeps_its_digits(sigma, sink):
    # Then p = e^(s - sink) but for a factor 1 - e^(s - sink), s - sink being below -40 wherever e^s or e^2s matters.
    n, where = 5, {"sigma": sigma, "sink": sink}
    mean = math.exp(sigma**2 / 2 - sink)
    close(analysis.expected_key_weight(n, **where), mean)
    close(analysis.expected_power_sum(2, n, **where), n * math.exp(2 * sigma**2 - 2 * sink))
    close(analysis.expected_jacobian_trace(n, **where), n * mean)
    close(analysis.expected_entropy(n, **where), n * mean * (sink - sigma**2 + 1))
    z, step = np.linspace(-10.0, sigma + 10.0, 4001, retstep=True)
    largest = n * special.ndtr(z) ** (n - 1) * np.exp(sigma * z - z**2 / 2) / math.sqrt(2 * math.pi)
    for method in ("quadrature", "direct"):
        close(analysis.expected_max_weight(n, method=method, **where), step * largest.sum() * math.exp(-sink))


@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.5, 9.0])
def test_what_no_float_holds_is_zero(sigma):
    for beside in ({"sink": 1e3}, {"needle": 1e3}):
        assert analysis.expected_jacobian_trace(5, sigma=sigma, **beside) < 1e-150
        assert analysis.expected_entropy(5, sigma=sigma, **beside) < 1e-150
        assert analysis.expected_key_weight(5, key=1, sigma=sigma, **beside) < 1e-150


@pytest.mark.parametrize(("sigma", "needle"), [(0.1, 200.0), (1.0, 60.0), (3.0, 100.0)])
def test_what_a_high_needle_leaves_keeps_its_digits(sigma, needle):
    # Its weight lacks (n - 1) e^-(difference of two scores) of 1; each key it outweighs adds p(1 - log p) to H.
    rest = 4 * math.exp(sigma**2 - needle)
    close(analysis.expected_jacobian_trace(5, sigma=sigma, needle=needle), 2 * rest)
    close(analysis.expected_entropy(5, sigma=sigma, needle=needle), rest * (needle - 2 * sigma**2 + 1))


@pytest.mark.parametrize("sigma", [5.0, 300.0, 1e4])
def test_the_largest_of_two_wide_keys_and_of_one_beside_a_sink(sigma):
    def lacking(mean, deviation, signs):  # E 1/(1 + e^|d|), d ~ N(mean, deviation²), over d of these signs
        d, weight = legendre_panels(np.linspace(0.0, 45.0, 46))
        density = sum(np.exp(-(((sign * d - mean) / deviation) ** 2) / 2) for sign in signs)
        return float(weight @ (density / (1 + np.exp(d)))) / deviation / math.sqrt(2 * math.pi)

    shift = 0.3 * sigma
    two = 1 - lacking(shift, math.sqrt(2) * sigma, (1, -1))
    close(analysis.expected_max_weight(2, sigma=sigma, bias=[shift, 0.0]), two)
    close(analysis.expected_max_weight(2, sigma=sigma, needle=shift), two)
    one = special.ndtr(-1 / sigma) - lacking(-1.0, sigma, (1,)) + lacking(-1.0, sigma, (-1,))
    close(analysis.expected_max_weight(1, sigma=sigma, sink=1.0), one)


@pytest.mark.parametrize("kw", [{"sigma": 1.0}, {"sigma": 8.0, "sink": 3.0}])
def test_the_largest_of_many_biased_keys_is_the_last_of_the_causal_rows(kw):
    # A whole row moves its keys to a lattice, the causal rows do not.
    n, bias = 48, 2 * np.random.default_rng(3).standard_normal(48)
    before, upto = (m * analysis.expected_max_weight(m, bias=bias[:m], is_causal=True, **kw) for m in (n - 1, n))
    close(analysis.expected_max_weight(n, bias=bias, **kw), upto - before, rtol=1e-11)


@pytest.mark.parametrize("d_k", [3, 12, 31, 32, *(pytest.param(d_k, marks=pytest.mark.slow) for d_k in (8, 64, 128))])
@pytest.mark.parametrize("width", [0.5, 1.5, 3.0])
def test_two_keys_by_the_length_of_the_query(d_k, width):
    # Σ_ij J_ij² = 4 p²(1-p)², and J z = p(1-p)(z₁-z₂)(1,-1); r = ‖q‖, z₁-z₂ ~ N(needle, 2 (scale r)²).
    scale, needle = width / math.sqrt(d_k), 1.0
    r, part = legendre_panels(np.linspace(0.0, math.sqrt(d_k) + 9.0, 60))
    part = part * np.exp(special.xlogy(d_k - 1, r) - r**2 / 2 - math.lgamma(d_k / 2) - (d_k / 2 - 1) * math.log(2))
    z, step = np.linspace(-9.5, 9.5, 1001, retstep=True)
    apart = needle + math.sqrt(2) * scale * r[:, None] * z
    slope = special.expit(apart) * special.expit(-apart)
    squares = (d_k - 1) * 4 * slope**2 + 2 * (slope * apart / (scale * r[:, None])) ** 2
    value = scale**2 * float(part @ squares @ np.exp(-(z**2) / 2)) * step / math.sqrt(2 * math.pi)
    close(analysis.expected_query_gradient_squared(2, d_k=d_k, scale=scale, needle=needle), value, rtol=1e-10)
    half, weight = legendre_panels(np.linspace(0.0, 9.5, 20))
    least = special.expit(-math.sqrt(2) * scale * r[:, None] * half)
    rest = 2 * float(part @ least @ (weight * np.exp(-(half**2) / 2))) / math.sqrt(2 * math.pi)
    close(analysis.expected_max_weight(2, d_k=d_k, scale=scale, bias=[0.5, 0.5]), 1 - rest, rtol=1e-11)


@pytest.mark.parametrize("method", ["quadrature", "direct"])
@pytest.mark.parametrize(
    "kw",
    [{}, {"sink": 1.0}, {"needle": 1.0}, {"bias": [0.0, 1.0, 0.0, 0.3], "sink": -1.0}, {"softcap": 1.0, "sink": 0.0}],
)
def test_the_largest_of_one_dimensional_cosines_over_all_signs(kw, method):
    bias, cap, largest = np.array(kw.get("bias", np.zeros(4))), kw.get("softcap", 1e9), {1: [], 2: [], 3: [], 4: []}
    for signs in itertools.product([-2.0, 2.0], repeat=4):
        scores = np.array(signs) + np.array([kw.get("needle", 0.0), 0.0, 0.0, 0.0])
        weights = np.exp(cap * np.tanh(scores / cap) + bias)
        for row, values in largest.items():
            values.append(weights[:row].max() / (weights[:row].sum() + math.exp(kw.get("sink", -math.inf))))
    where = {"d_k": 1, "score": "cosine", "scale": 2.0, "method": method, **kw}
    close(analysis.expected_max_weight(4, **where), np.mean(largest[4]))
    close(analysis.expected_max_weight(4, is_causal=True, **where), np.mean(list(largest.values())))


def scores_of_one(kw):
    """Nodes and weights for the score of one key: capped normal, or a cosine by Gauss and Jacobi."""
    if "score" not in kw:
        z, step = np.linspace(-9.5, 9.5, 801, retstep=True)
        score = kw["softcap"] * np.tanh(kw["sigma"] * z / kw["softcap"])
        return score, step * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    c, weight = special.roots_jacobi(60, (kw["d_k"] - 3) / 2, (kw["d_k"] - 3) / 2)
    return kw["scale"] * c, weight / weight.sum()


@pytest.mark.parametrize(
    "kw",
    [
        {"sigma": 1.0, "softcap": 3.0},
        {"sigma": 3.0, "softcap": 2.0},
        {"score": "cosine", "d_k": 2, "scale": 3.0},
        {"score": "cosine", "d_k": 3, "scale": 5.0},
        {"score": "cosine", "d_k": 16, "scale": 8.0},
    ],
)
def test_two_capped_keys_and_two_cosines_in_closed_form(kw):
    score, weight = scores_of_one(kw)
    for sink, bias in ((-math.inf, [0.0, 0.0]), (0.5, [1.0, 0.0])):
        first, second = score[:, None] + bias[0], score + bias[1]
        logsumexp = np.logaddexp(np.logaddexp(first, second), sink)
        p, q, rest = np.exp(first - logsumexp), np.exp(second - logsumexp), np.exp(sink - logsumexp)
        where = {**kw, "sink": sink, "bias": bias}
        close(analysis.expected_logsumexp(2, **where), weight @ logsumexp @ weight)
        close(analysis.expected_key_weight(2, **where), weight @ p @ weight)
        close(analysis.expected_entropy(2, **where), weight @ special.entr([p, q, rest]).sum(axis=0) @ weight)
        close(analysis.expected_power_sum(2, 2, **where), weight @ (p**2 + q**2) @ weight)
        close(analysis.expected_jacobian_trace(2, **where), weight @ (p * (1 - p) + q * (1 - q)) @ weight)
        frobenius = (p * (1 - p)) ** 2 + (q * (1 - q)) ** 2 + 2 * (p * q) ** 2
        close(analysis.expected_jacobian_frobenius_squared(2, **where), weight @ frobenius @ weight)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "cap", "shift", "sink"), [(1.0, 3.0, 0.7, None), (2.0, 3.0, 7.0, -1.0)])
def test_the_largest_of_two_capped_keys_that_are_shifted_apart(sigma, cap, shift, sink):
    x, weight = legendre_panels(np.linspace(-9.0, 9.0, 61))
    weight = weight * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    value = 0.0
    for upper, part in zip(cap * np.tanh(sigma * x / cap) + shift, weight, strict=True):
        meet = 9.0 if upper >= cap else min(9.0, cap * math.atanh(upper / cap) / sigma)  # where the other is as large
        for low, high in ((-9.0, meet), (meet, 9.0)):
            y, other = legendre_panels(np.linspace(low, high, 31))
            scores = np.stack([np.full_like(y, upper), cap * np.tanh(sigma * y / cap)])
            total = np.exp(scores).sum(axis=0) + (0.0 if sink is None else math.exp(sink))
            density = other * np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
            value += part * float(density @ (np.exp(scores.max(axis=0)) / total))
    where = {"sigma": sigma, "softcap": cap, "bias": [shift, 0.0], "sink": sink}
    close(analysis.expected_max_weight(2, method="direct", **where), value, rtol=1e-11)
    with pytest.raises(ValueError, match="scores shifted apart: method='direct' has it"):
        analysis.expected_max_weight(2, **where)


def test_a_cosine_needle_above_all_others_is_the_largest():
    # Cosines of temperature 1 stay within 1 of their mean.
    where = {"d_k": 16, "score": "cosine", "needle": 3.0}
    close(analysis.expected_max_weight(4, method="direct", **where), analysis.expected_key_weight(4, **where))
