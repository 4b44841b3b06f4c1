"""Each expansion against the exact values: the error must shrink at the rate that is claimed for it."""

import math

import numpy as np
import pytest

import analysis
from analysis.predict.asymptotics import high_temperature, low_temperature, normal_maximum, random_energy
from analysis.predict.decay import gradient_decay

EXACT = {
    "logsumexp": analysis.expected_logsumexp,
    "entropy": analysis.expected_entropy,
    "jacobian_trace": analysis.expected_jacobian_trace,
    "power_sum_2": lambda n_keys, **where: analysis.expected_power_sum(2, n_keys, **where),
    "jacobian_frobenius_squared": analysis.expected_jacobian_frobenius_squared,
    "max_weight": analysis.expected_max_weight,
}


def error(expansion, quantity, n_keys, sigma):
    return EXACT[quantity](n_keys, sigma=sigma) - expansion(quantity, n_keys, sigma).value


def power(order):
    """Read "σ⁻³" as -3."""
    return int(order.removeprefix("σ").translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")))


@pytest.mark.parametrize("quantity", ["logsumexp", "entropy", "jacobian_trace", "power_sum_2"])
@pytest.mark.parametrize("n_keys", [2, 10, 1024])
def test_high_temperature_errs_by_its_next_term(quantity, n_keys):
    sigma = 0.3 if n_keys == 2 else 0.5
    halved, expansion = sigma / 2, high_temperature(quantity, n_keys, sigma)
    errors = [error(high_temperature, quantity, n_keys, s) for s in (sigma, halved)]
    if abs(errors[1]) > 1e-12:
        assert math.log2(errors[0] / errors[1]) == pytest.approx(power(expansion.error_order), abs=1.0)
    assert 0.3 < errors[0] / expansion.next_term < 2


def test_high_temperature_of_the_jacobian_norm_rises_from_five_keys_on():
    for n_keys in (2, 4, 5, 1024):
        errors = [error(high_temperature, "jacobian_frobenius_squared", n_keys, s) for s in (0.04, 0.02)]
        assert math.log2(errors[0] / errors[1]) == pytest.approx(4, abs=0.1)
        slope = np.diff(EXACT["jacobian_frobenius_squared"](n_keys, sigma=[0.1, 0.2]))[0]
        assert (slope > 0) == (n_keys >= 5)


@pytest.mark.parametrize("quantity", EXACT)
@pytest.mark.parametrize("n_keys", [2, 10, 1024])
def test_low_temperature_errs_at_its_order(quantity, n_keys):
    expansion = low_temperature(quantity, n_keys, 200.0)
    errors = [error(low_temperature, quantity, n_keys, s) for s in (100.0, 200.0)]
    rate = math.log2(errors[1] / errors[0])
    claimed = power(expansion.error_order)
    if quantity == "max_weight" and n_keys == 2:
        assert rate == pytest.approx(-3, abs=0.1)  # the term in σ⁻² vanishes for two keys
    else:
        assert rate == pytest.approx(claimed, abs=0.15)
    if not math.isnan(expansion.next_term):
        assert errors[1] / expansion.next_term == pytest.approx(1, abs=0.05)


def test_constants_of_the_largest_normal():
    two, three = normal_maximum(2), normal_maximum(3)
    assert two.mean == pytest.approx(1 / math.sqrt(math.pi), rel=1e-14)
    assert two.second == 0
    assert two.third == pytest.approx(-7 * math.pi**4 / (1440 * math.sqrt(math.pi)), rel=1e-13)
    assert two.gap == pytest.approx(math.sqrt(2) * 0.6744897501960817, rel=1e-12)  # |z₁ - z₂| is half-normal
    assert three.mean == pytest.approx(3 / (2 * math.sqrt(math.pi)), rel=1e-14)
    assert three.second == pytest.approx(math.sqrt(3) / math.pi, rel=1e-13)
    draws = np.sort(np.random.default_rng(5).standard_normal((40_000, 10)), axis=1)
    ten = normal_maximum(10)
    largest = draws[:, -1]
    assert abs(largest.mean() - ten.mean) < 5 * largest.std() / 200
    assert abs((largest**2).mean() - 1 - ten.second / 2) < 5 * (largest**2).std() / 200
    assert abs(np.mean(largest - draws[:, -2] > ten.gap) - 0.5) < 5 * 0.5 / 200


def test_random_energy_limit_is_approached_and_only_slowly():
    n_keys = 10**12
    critical = math.sqrt(2 * math.log(n_keys))
    for quantity in ("entropy", "logsumexp", "jacobian_trace", "power_sum_2", "jacobian_frobenius_squared"):
        for ratio in (0.4, 0.75, 2.0, 3.0):
            gaps = [
                abs(error(random_energy, quantity, n, ratio * math.sqrt(2 * math.log(n)))) / scale
                for n, scale in ((10**3, math.log(10**3)), (n_keys, math.log(n_keys)))
            ]
            assert gaps[1] < max(0.9 * gaps[0], 1e-5), (quantity, ratio, gaps)
    at_transition = EXACT["entropy"](n_keys, sigma=critical)
    assert at_transition > 0.2 * math.log(n_keys)  # the limit is 0 in this unit
    assert random_energy("entropy", n_keys, critical / 4).value == pytest.approx(math.log(n_keys) * 15 / 16)


@pytest.mark.parametrize("expansion", [high_temperature, low_temperature, random_energy])
def test_bad_input(expansion):
    with pytest.raises(ValueError, match=r"quantity must be one of .*: got 'spread'"):
        expansion("spread", 10, 1.0)
    with pytest.raises(ValueError, match=r"sigma.*got -1"):
        expansion("entropy", 10, -1.0)
    with pytest.raises(ValueError, match=r"n_keys.*got 0"):
        expansion("entropy", 0, 1.0)
    with pytest.raises(ValueError, match="sigma must be > 0"):
        low_temperature("entropy", 10, 0.0)
    with pytest.raises(ValueError, match="n_keys must be at least 2"):
        gradient_decay(1)


def simulated(d_k, scale, n_keys=10, replicates=40_000):
    """Draw ‖q‖ and the scores; return tr J, ‖J g‖ and ‖∂(gᵀp)/∂q‖, formed without cancellation."""
    rng = np.random.default_rng(d_k)
    z, g = rng.standard_normal((2, replicates, n_keys))
    x = scale * np.sqrt(rng.chisquare(d_k, (replicates, 1))) * z
    top = np.argmax(x, axis=1)[:, None]
    e = np.exp(x - np.take_along_axis(x, top, 1))
    others = e.copy()
    np.put_along_axis(others, top, 0.0, 1)
    total = 1 + others.sum(1, keepdims=True)
    p, others = e / total, others / total
    rest = others.sum(1)
    trace = rest * (2 - rest) - np.sum(others**2, 1)
    centred = g - np.take_along_axis(g, top, 1)
    gradient = p * (centred - np.sum(others * centred, 1, keepdims=True))
    squared = np.sum(gradient**2, 1)
    along = np.sum(z * gradient, 1)
    query = abs(scale) * np.sqrt(along**2 + rng.chisquare(d_k - 1, replicates) * squared)
    return {"jacobian_trace": trace, "score_gradient_norm": np.sqrt(squared), "query_gradient_norm": query}


STATISTIC = {"mean": np.mean, "rms": lambda x: math.sqrt(np.mean(x**2)), "median": np.median}


def test_decay_laws_meet_simulation():
    laws = {(law.quantity, law.statistic, law.scale): law for law in gradient_decay(10)}
    for d_k, tolerance in ((1024, 0.12), (16384, 0.06)):  # the laws are leading orders, next ones are O(d_k^(-1/2))
        for scale, factor in (("unscaled", 1.0), ("sqrt", 1 / math.sqrt(d_k))):
            for quantity, values in simulated(d_k, factor).items():
                for statistic, function in STATISTIC.items():
                    leading = laws[quantity, statistic, scale].leading(d_k)
                    if leading is None:
                        continue
                    # The median moves as exp(-g√d_k): its sampling error is that of the median gap times √d_k.
                    slack = 0.2 if statistic == "median" and scale == "unscaled" else 0.0
                    assert function(values) == pytest.approx(leading, rel=tolerance + 2 * slack), (quantity, statistic)


def test_scaled_statistics_are_flat_and_unscaled_ones_follow_their_exponent():
    laws = {(law.quantity, law.statistic, law.scale): law for law in gradient_decay(10)}
    few, many = simulated(1024, 1 / 32), simulated(16384, 1 / 128)
    for quantity in few:
        for statistic, function in STATISTIC.items():
            assert laws[quantity, statistic, "sqrt"].exponent == 0
            assert function(many[quantity]) == pytest.approx(function(few[quantity]), rel=0.02)
    few, many = simulated(1024, 1.0), simulated(16384, 1.0)
    for quantity in few:
        for statistic in ("mean", "rms"):
            measured = math.log(STATISTIC[statistic](many[quantity]) / STATISTIC[statistic](few[quantity])) / math.log(
                16
            )
            assert measured == pytest.approx(laws[quantity, statistic, "unscaled"].exponent, abs=0.04)
