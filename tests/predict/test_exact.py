"""Exact expectations: their limits, identities between them, and what they refuse."""

import math

import numpy as np
import pytest

import analysis
from analysis.predict import average as exact_average
from analysis.predict import quadrature as exact_quadrature
from analysis.predict.average import gaussian_attention

BY_KEYS = {
    "logsumexp": analysis.expected_logsumexp,
    "entropy": analysis.expected_entropy,
    "power_sum_2": lambda n_keys, **kw: analysis.expected_power_sum(2, n_keys, **kw),
    "power_sum_3": lambda n_keys, **kw: analysis.expected_power_sum(3, n_keys, **kw),
    "jacobian_trace": analysis.expected_jacobian_trace,
    "jacobian_frobenius_squared": analysis.expected_jacobian_frobenius_squared,
    "max_weight": analysis.expected_max_weight,
}
SIGMAS = np.array([1e-3, 0.05, 0.3, 0.99, 1.0, 1.7, 6.0, 22.6, 200.0])
N_KEYS = np.array([2, 3, 10, 1024, 10**6])[:, None]
ROUNDING = 1e-13


def close(actual, expected, rtol=ROUNDING):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=0)


def test_two_keys_by_a_one_dimensional_integral():
    # For n = 2 everything is an average over the difference x ~ N(0, 2σ²), a trapezoid of an analytic function.
    z, step = np.linspace(-9, 9, 2001, retstep=True)
    weight = step * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    for sigma in (1e-3, 0.3, 1.0, 3.0):
        p = 1 / (1 + np.exp(-math.sqrt(2) * sigma * z))
        log_p = -np.logaddexp(0, -math.sqrt(2) * sigma * z)
        close(BY_KEYS["jacobian_trace"](2, sigma=sigma), weight @ (2 * p * (1 - p)))
        close(BY_KEYS["jacobian_frobenius_squared"](2, sigma=sigma), weight @ (2 * p * (1 - p)) ** 2)
        close(BY_KEYS["entropy"](2, sigma=sigma), weight @ (-2 * p * log_p))
        close(BY_KEYS["power_sum_3"](2, sigma=sigma), weight @ (2 * p**3))
        half, w = np.polynomial.legendre.leggauss(80)  # the largest weight has a kink at x = 0
        x = 4.5 * (half + 1)
        larger = 9 * w * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) / (1 + np.exp(-math.sqrt(2) * sigma * x))
        close(BY_KEYS["max_weight"](2, sigma=sigma), larger.sum())


def test_identities_between_quantities():
    values = {name: function(N_KEYS, sigma=SIGMAS) for name, function in BY_KEYS.items()}
    close(values["jacobian_trace"] + values["power_sum_2"], np.ones((5, 9)))
    close(values["logsumexp"], values["entropy"] + SIGMAS**2 * values["jacobian_trace"])
    assert np.all(values["power_sum_2"] ** 2 <= values["power_sum_3"] * (1 + ROUNDING))
    assert np.all(values["max_weight"] ** 2 < values["power_sum_2"])
    assert np.all(values["power_sum_2"] < values["max_weight"])


@pytest.mark.parametrize("name", BY_KEYS)
def test_limits_are_exact(name):
    n = np.array([1, 2, 10, 10**6])
    at_zero = {
        "logsumexp": np.log(n), "entropy": np.log(n), "power_sum_2": 1 / n, "power_sum_3": 1.0 / n**2,
        "jacobian_trace": (n - 1) / n, "jacobian_frobenius_squared": (n - 1) / n**2, "max_weight": 1 / n,
    }[name]  # fmt: skip
    one_key = {"power_sum_2": 1.0, "power_sum_3": 1.0, "max_weight": 1.0}.get(name, 0.0)
    for equal in ({"sigma": 0}, {"d_k": 7, "scale": 0}):
        close(BY_KEYS[name](n, **equal), at_zero, rtol=1e-15)
    assert BY_KEYS[name](1, sigma=3.0) == one_key
    assert BY_KEYS[name](1, d_k=64) == one_key
    assert BY_KEYS[name]([1, 5], d_k=64)[0] == one_key


def test_the_ends_of_the_range_of_floats():
    n = np.array([2, 10, 2**53])
    tiny, huge = ({name: function(n, sigma=sigma) for name, function in BY_KEYS.items()} for sigma in (1e-300, 1e100))
    close(tiny["entropy"], np.log(n))
    close(tiny["max_weight"], 1 / n)
    c = np.array([analysis.normal_maximum(int(keys)).mean for keys in n])
    close(huge["jacobian_trace"] * 1e100, c)
    close(huge["entropy"] * 1e100, c * math.pi**2 / 6)
    close(huge["logsumexp"] / 1e100, c)
    close(huge["jacobian_frobenius_squared"] * 1e100, c / 3)


def test_many_numbers_of_keys_at_once():
    n = np.arange(1, 5001)
    all_at_once = analysis.expected_entropy(n, sigma=2.0)
    for one in (1, 2, 2048, 2049, 5000):
        close(all_at_once[one - 1], analysis.expected_entropy(one, sigma=2.0))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"n_keys": 0, "sigma": 1}, "n_keys.*got 0"),
        ({"n_keys": 2.5, "sigma": 1}, r"n_keys.*got 2\.5"),
        ({"n_keys": [2, math.nan], "sigma": 1}, "n_keys.*got nan"),
        ({"n_keys": True, "sigma": 1}, "n_keys.*got True"),
        ({"n_keys": "10", "sigma": 1}, "n_keys.*got '10'"),
        ({"n_keys": 2**53 + 2, "sigma": 1}, "n_keys.*at most"),
        ({"n_keys": [[1], [2, 3]], "sigma": 1}, "n_keys.*got"),
        ({"n_keys": 2, "sigma": -1}, "sigma.*got -1"),
        ({"n_keys": 2, "sigma": math.nan}, "sigma.*got nan"),
        ({"n_keys": 2, "sigma": math.inf}, "sigma.*got inf"),
        ({"n_keys": 2, "sigma": 1j}, "sigma.*got 1j"),
        ({"n_keys": 2}, "either sigma .* or d_k: got neither"),
        ({"n_keys": 2, "sigma": 1, "d_k": 3}, "either sigma .* or d_k: got both"),
        ({"n_keys": 2, "sigma": 1, "scale": 1}, "scale applies to d_k"),
        ({"n_keys": 2, "d_k": 0}, "d_k.*got 0"),
        ({"n_keys": 2, "d_k": 1.5}, r"d_k.*got 1\.5"),
        ({"n_keys": 2, "d_k": 4, "scale": "none"}, "ambiguous"),
        ({"n_keys": 2, "d_k": 4, "scale": math.nan}, "scale.*got nan"),
        ({"n_keys": 2, "d_k": 4, "scale": 1e100}, "scale.*got scale 1e.100"),
        ({"n_keys": [2, 3], "sigma": [1, 2, 3]}, r"broadcast.*n_keys \(2,\), sigma \(3,\)"),
        ({"n_keys": 2, "sigma": 1, "method": "guess"}, "method.*'guess'"),
    ],
)
def test_bad_input_is_one_sentence(arguments, named):
    with pytest.raises(ValueError, match=named) as error:
        analysis.expected_entropy(**arguments)
    assert "\n" not in str(error.value)


def test_power_sum_knows_two_orders():
    with pytest.raises(ValueError, match="order must be 2 or 3: got 4"):
        analysis.expected_power_sum(4, 10, sigma=1.0)


def test_arrays_broadcast_and_scalars_stay_scalars():
    grid = analysis.expected_entropy([[10], [20]], d_k=[4, 8, 16], scale="sqrt")
    assert grid.shape == (2, 3)
    single = analysis.expected_entropy(20, d_k=8, scale=[1 / math.sqrt(8), "sqrt", "-1/sqrt(d_k)"])
    close(single, np.full(3, grid[1, 1]), rtol=1e-15)
    assert isinstance(analysis.expected_entropy(10, d_k=8), float)
    assert analysis.expected_entropy([], sigma=1.0).shape == (0,)


def test_one_dimension_is_a_mixture_over_a_half_normal():
    # d_k = 1: ‖q‖ is half-normal, a plain average of the values by sigma.
    z, w = np.polynomial.legendre.leggauss(120)
    r = 4.4 * (z + 1)
    weight = 4.4 * w * 2 * np.exp(-(r**2) / 2) / math.sqrt(2 * math.pi)
    for function in BY_KEYS.values():
        close(function(10, d_k=1), weight @ function(10, sigma=r), rtol=1e-12)


def test_second_route_agrees_by_sigma():
    """Other formulas on other nodes; what they lose by cancellation at large σ is in the tolerance."""
    for sigma, n_keys, rtol in ((1e-3, 1024, 1e-12), (0.7, 3, 1e-13), (1.0, 10**6, 1e-13), (22.6, 10, 1e-12)):
        for function in BY_KEYS.values():
            close(function(n_keys, sigma=sigma, method="direct"), function(n_keys, sigma=sigma), rtol=rtol)


def test_second_route_agrees_by_dimension():
    arguments = {"n_keys": 10, "d_k": 256, "scale": "sqrt"}
    close(analysis.expected_entropy(**arguments, method="direct"), analysis.expected_entropy(**arguments), rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("d_k", "scale"), [(2, 1.0), (64, "sqrt"), (512, "unscaled")])
def test_second_route_agrees_by_dimension_for_every_quantity(d_k, scale):
    functions = {**BY_KEYS, "query_gradient": analysis.expected_query_gradient_squared}
    for function in functions.values():
        arguments = {"n_keys": 10, "d_k": d_k, "scale": scale}
        close(function(**arguments, method="direct"), function(**arguments), rtol=1e-11)


@pytest.mark.parametrize("sigma", [450.0, 700.0, 2000.0, 1e6, 1e15])
def test_two_keys_of_very_wide_scores_meet_the_series_in_inverse_sigma(sigma):
    # z1 - z2 ~ N(0, 2σ²); moments of the logistic law: E x² = π²/3, E x⁴ = 7π⁴/15, E x⁶ = 31π⁶/21; H' = -x p (1 - p).
    m2, m4, m6 = math.pi**2 / 3, 7 * math.pi**4 / 15, 31 * math.pi**6 / 21
    a, b = 1 / (4 * sigma**2), 1 / (32 * sigma**4)
    at_zero = 1 / (2 * sigma * math.sqrt(math.pi))
    # Terms of σ⁻⁶ are below rounding here; 40 eps for sums of some hundred terms.
    trace = analysis.expected_jacobian_trace(2, sigma=sigma)
    assert trace == pytest.approx(2 * at_zero * (1 - a * m2 + b * m4), rel=9e-15)
    entropy = analysis.expected_entropy(2, sigma=sigma)
    assert entropy == pytest.approx(at_zero * (m2 - a * m4 / 3 + b * m6 / 5), rel=9e-15)


@pytest.mark.parametrize(("below", "sigma"), [(194, 450.0), (330, 2400.0)])
def test_few_nodes_integrate_a_wide_normal_density(below, sigma):
    # The least σ of the far rule for 2 and for 10¹² keys, over all scores that a double integral reaches.
    for x in (-8.5, -3.0, 0.0, 5.0, 8.5):
        fine, coarse = (
            np.exp(-((x - v / sigma) ** 2) / 2) @ weights
            for v, weights in (exact_quadrature._wide_weights(below), exact_quadrature._far_weights(below))
        )
        np.testing.assert_allclose(coarse, fine, rtol=1e-13)


def test_the_coarse_rule_of_far_queries_loses_nothing(monkeypatch):
    d_k, scale, n_keys = 2, 1e5, (10,)
    coarse = np.array(gaussian_attention(d_k, scale, n_keys))
    nodes = exact_average.chi_rule(d_k, scale, max(n_keys))[0].size
    exact_average.chi_rule.cache_clear()
    monkeypatch.setattr(exact_average, "FAR_BEYOND", math.inf)
    assert exact_average.chi_rule(d_k, scale, max(n_keys))[0].size > nodes
    fine = np.array(gaussian_attention.__wrapped__(d_k, scale, n_keys))
    exact_average.chi_rule.cache_clear()
    np.testing.assert_allclose(coarse, fine, rtol=1e-14)
