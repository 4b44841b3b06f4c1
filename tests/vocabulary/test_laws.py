"""Input laws: names, moments against independent values, samples against their law, and what is refused."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis.vocabulary.laws import STANDARDISED, Law, resolve_law

NAMED = [*STANDARDISED, "student_t10", "student_t4.5"]
SCIPY_TWIN = {
    "normal": stats.norm(),
    "uniform": stats.uniform(-math.sqrt(3), 2 * math.sqrt(3)),
    "laplace": stats.laplace(scale=math.sqrt(0.5)),
    "exponential": stats.expon(-1),
    "logistic": stats.logistic(scale=math.sqrt(3) / math.pi),
    "student_t10": stats.t(10, scale=math.sqrt(0.8)),
    "student_t4.5": stats.t(4.5, scale=math.sqrt(2.5 / 4.5)),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_laws_are_standardised(name):
    law = resolve_law(name)
    assert (law.name, law.mean, law.variance) == (name, 0.0, 1.0)
    assert [law.raw_moment(n) for n in range(3)] == [1.0, 0.0, 1.0]
    assert law.is_standardised


@pytest.mark.parametrize(
    ("name", "order"),
    [(name, order) for name in sorted(SCIPY_TWIN) for order in (3, 4, 5, 6, 8) if name != "student_t4.5" or order < 5],
)
def test_moments_agree_with_quadrature_of_the_density(name, order):
    expected = SCIPY_TWIN[name].expect(lambda x: x**order)
    assert resolve_law(name).raw_moment(order) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert resolve_law(name).central_moment(order) == resolve_law(name).raw_moment(order)


@pytest.mark.parametrize(
    ("name", "fourth", "sixth"),
    [("normal", 3, 15), ("rademacher", 1, 1), ("uniform", 9 / 5, 27 / 7), ("laplace", 6, 90), ("student_t10", 4, 40)],
)
def test_even_moments_of_the_textbook(name, fourth, sixth):
    law = resolve_law(name)
    assert (law.raw_moment(4), law.raw_moment(6)) == (fourth, sixth)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", NAMED)
def test_samples_follow_their_law(name, dtype):
    draws = resolve_law(name).sample(np.random.default_rng(1), (200, 100), dtype)
    assert draws.shape == (200, 100)
    assert draws.dtype == dtype
    if name == "rademacher":
        assert set(np.unique(draws)) == {-1.0, 1.0}
        assert abs(draws.mean()) < 5 / math.sqrt(draws.size)
    else:  # one sample per law, false alarm 1e-5 each
        assert stats.kstest(draws.ravel().astype(float), SCIPY_TWIN[name].cdf).pvalue > 1e-5


@pytest.mark.parametrize(
    ("law", "order", "expected"),
    [
        (stats.t(3), 2, 3.0),
        (stats.t(3), 3, math.nan),
        (stats.t(3), 4, math.inf),
        (stats.t(3), 8, math.inf),  # SciPy's quadrature answers -564.95
        (stats.cauchy(), 1, math.nan),
        (stats.cauchy(), 8, math.inf),
        (stats.levy(), 1, math.inf),
        (stats.pareto(3.5), 3, 7.0),
        (stats.pareto(3.5), 6, math.inf),
        (stats.lognorm(1), 8, math.exp(32.0)),  # SciPy's quadrature is a factor of 200 below
        (stats.t(10), 8, 10**4 * 105 / (8 * 6 * 4 * 2)),
        (stats.norm(2, 3), 6, 2**6 + 15 * 16 * 9 + 15 * 4 * 3 * 81 + 15 * 729),
        (stats.uniform(-1, 2), 6, 1 / 7),
        (stats.poisson(3), 2, 12.0),
        ("student_t4.5", 4, (2.5**2) * 3 / (2.5 * 0.5)),
        ("student_t4.5", 6, math.inf),
        ("student_t4.5", 5, math.nan),
    ],
)
def test_moments_that_do_not_exist_are_not_invented(law, order, expected):
    assert resolve_law(law).raw_moment(order) == pytest.approx(expected, rel=1e-6, nan_ok=True)


def test_frozen_laws_are_used_as_given():
    law = resolve_law(stats.gamma(2, scale=3))
    assert law.name == "gamma(2, scale=3)"
    assert (law.mean, law.variance) == pytest.approx((6.0, 18.0))
    assert law.central_moment(3) == pytest.approx(2 * 2 * 27)
    assert law.central_moment(4) == pytest.approx((3 + 6 / 2) * 18**2)
    assert law.central_moment(6) == pytest.approx(stats.gamma(2, scale=3).expect(lambda x: (x - 6) ** 6))
    assert not law.is_standardised
    assert resolve_law(law) is law


def test_central_moments_survive_a_large_mean():
    law = resolve_law(stats.norm(1e6, 1))
    assert [law.central_moment(n) for n in (1, 2, 3, 4)] == pytest.approx([0, 1, 0, 3], abs=1e-9)


def test_a_users_distribution_is_told_apart_by_its_quantiles():
    laws = [resolve_law(stats.rv_histogram((counts, [0, 1, 2])).freeze()) for counts in ([1, 3], [3, 1])]
    assert laws[0].name != laws[1].name


@pytest.mark.parametrize(
    ("law", "sentence"),
    [
        ("gauss", "unknown law 'gauss'"),
        ("student_t2", "degrees of freedom above 2"),
        ("student_t", "degrees of freedom above 2"),
        ("student_tnan", "degrees of freedom above 2"),
        (3.0, "law must be a name"),
        (stats.norm, "law must be a frozen distribution"),
        (stats.norm([0, 1], 1), "one distribution of one number"),
        (stats.multivariate_normal([0, 0]), "law must be a name"),
    ],
)
def test_what_is_no_law_is_refused(law, sentence):
    with pytest.raises(ValueError, match=sentence):
        resolve_law(law)


@pytest.mark.parametrize("order", [-1, 1.5, True, "2"])
def test_orders_are_whole_numbers(order):
    with pytest.raises(ValueError, match="order of a moment"):
        resolve_law("normal").raw_moment(order)


def test_a_law_is_a_plain_record():
    assert isinstance(resolve_law("laplace"), Law)
    assert repr(resolve_law("laplace")) == "Law(name='laplace', mean=0.0, variance=1.0)"
