"""Moments of the score for any law, against closed forms and against exhaustive enumeration."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from analysis import score_distribution, score_moments


@pytest.mark.parametrize("d_k", [1, 2, 7, 4096])
def test_gaussian_vectors(d_k):
    moments = score_moments(d_k, scale="unscaled")
    assert (moments.mean, moments.variance) == (0, d_k)
    assert moments.fourth_moment == 3 * d_k**2 + 6 * d_k
    assert moments.excess_kurtosis == pytest.approx(6 / d_k, rel=1e-15)
    assert moments.squared_score_correlation == pytest.approx(1 / (d_k + 3), rel=1e-14)
    assert moments.softmax_variance == d_k
    assert score_distribution(d_k, 1.0).moment(4) == pytest.approx(moments.fourth_moment)


def test_rademacher_query_makes_squares_uncorrelated():
    moments = score_moments(5, law=("rademacher", "normal"))
    assert moments.squared_score_correlation == 0
    assert moments.excess_kurtosis == 0  # ‖q‖ is fixed, so that the score is exactly Gaussian


def discrete(values, probabilities):
    return stats.rv_discrete(values=(values, probabilities))()


@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_every_moment_by_enumeration(scale):
    """Two-point laws with means and skew: all vectors of d_k = 2 and two keys, with their probabilities."""
    q_values, q_weights = (-1, 2), (0.3, 0.7)
    k_values, k_weights = (0, 3), (0.6, 0.4)
    rows = []
    for pick in itertools.product(range(2), repeat=6):
        q, k1, k2 = [q_values[i] for i in pick[:2]], [k_values[i] for i in pick[2:4]], [k_values[i] for i in pick[4:]]
        weight = math.prod(q_weights[i] for i in pick[:2]) * math.prod(k_weights[i] for i in pick[2:])
        rows.append((weight, scale * np.dot(q, k1), scale * np.dot(q, k2)))
    p, first, second = np.array(rows).T
    law = (discrete(q_values, q_weights), discrete(k_values, k_weights))
    actual = score_moments(2, scale=scale, law=law)
    mean = p @ first
    central = [p @ (first - mean) ** n for n in range(5)]

    def correlation(x, y):
        cx, cy = x - p @ x, y - p @ y
        return (p @ (cx * cy)) / math.sqrt((p @ cx**2) * (p @ cy**2))

    expected = {
        "mean": mean,
        "variance": central[2],
        "fourth_moment": p @ first**4,
        "fourth_central_moment": central[4],
        "skewness": central[3] / central[2] ** 1.5,
        "excess_kurtosis": central[4] / central[2] ** 2 - 3,
        "score_correlation": correlation(first, second),
        "squared_score_correlation": correlation(first**2, second**2),
        "softmax_variance": p @ (first - second) ** 2 / 2,
    }
    for name, value in expected.items():
        assert getattr(actual, name) == pytest.approx(value, rel=1e-12, abs=1e-13), name


def test_a_mean_of_the_keys_is_a_common_shift_that_softmax_does_not_see():
    moments = score_moments(9, scale=1.0, law=("normal", stats.norm(4, 1)))
    assert moments.variance == pytest.approx(9 * 17)
    assert moments.softmax_variance == pytest.approx(9)
    alike = score_moments(9, scale=1.0, key_correlation=0.75)
    assert alike.variance == 9
    assert alike.softmax_variance == 9 / 4
    assert alike.score_correlation == 0.75
    assert math.isnan(alike.squared_score_correlation)


def test_infinite_moments_stay_infinite():
    moments = score_moments(4, law="student_t3")
    assert moments.variance == 1
    assert moments.fourth_moment == math.inf
    assert not math.isfinite(moments.squared_score_correlation)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"d_k": 0}, "d_k.*got 0"),
        ({"d_k": 3, "law": "cauchy"}, "cauchy"),
        ({"d_k": 3, "law": ("normal",)}, "pair"),
        ({"d_k": 3, "key_correlation": 1.5}, r"key_correlation.*1\.5"),
        ({"d_k": 3, "scale": "none"}, "ambiguous"),
        ({"d_k": 512, "scale": "log(n_keys)"}, r"a score has no n_keys: give the number .*'log\(n_keys\)'"),
    ],
)
def test_bad_input(arguments, named):
    with pytest.raises(ValueError, match=named):
        score_moments(**arguments)


def test_a_scale_of_n_keys_takes_the_number_given():
    moments = score_moments(512, scale="log(n_keys)", n_keys=10)
    assert moments.variance == pytest.approx(512 * math.log(10) ** 2, rel=1e-14)
    assert score_moments(512, scale="log(n_keys)", n_keys=1).variance == 0
    assert score_moments(7, scale="2/sqrt(d_k)").variance == pytest.approx(4, rel=1e-14)
