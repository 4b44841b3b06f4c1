"""The exact law of the score: digits, symmetry, the scipy.stats interface, and draws of real vectors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from analysis import score_distribution


@pytest.mark.parametrize("d_k", [1, 2, 3, 8, 64, 300])
def test_density_is_the_bessel_form(d_k):
    # kve holds while ν = (d - 1)/2 is small or x is not; Γ and the power are taken in logarithms.
    nu = (d_k - 1) / 2
    x = math.sqrt(d_k) * np.array([0.05, 0.5, 1.0, 2.0, 5.0, 12.0])
    log_bessel = np.log(special.kve(nu, x)) - x
    usable = np.isfinite(log_bessel)
    assert usable.sum() >= 4
    expected = nu * np.log(x) + log_bessel - math.log(math.pi) / 2 - special.gammaln(d_k / 2) - nu * math.log(2)
    actual = score_distribution(d_k, "unscaled").logpdf(x)
    np.testing.assert_allclose(actual[usable], expected[usable], rtol=0, atol=2e-13 * (1 + nu))


def test_one_component_is_a_product_of_two_normals():
    law = score_distribution(1)
    assert law.pdf(0.0) == math.inf
    x = np.array([1e-300, 1e-9, 0.3, 2.0, 30.0])
    np.testing.assert_allclose(law.pdf(x), special.kve(0, x) * np.exp(-x) / math.pi, rtol=1e-14)
    # ∫ K₀ over (0, x), by SciPy's own routine.
    np.testing.assert_allclose(law.cdf(x[2:4]) - 0.5, special.iti0k0(x[2:4])[1] / math.pi, rtol=1e-7)


def test_two_components_are_the_laplace_law():
    x = np.linspace(-30, 30, 61)
    for method in ("pdf", "cdf", "sf", "logpdf", "logsf", "logcdf"):
        np.testing.assert_allclose(
            getattr(score_distribution(2, 1.0), method)(x), getattr(stats.laplace, method)(x), rtol=1e-13, atol=1e-15
        )


@pytest.mark.parametrize("d_k", [4096, 10**6])
def test_large_dimensions_approach_the_normal_law_at_the_first_order(d_k):
    # Edgeworth: density ≈ φ(x)(1 + He₄(x)·(6/d)/24), error of order 1/d².
    x = np.array([0.0, 0.7, 1.5, 3.0])
    edgeworth = stats.norm.pdf(x) * (1 + (x**4 - 6 * x**2 + 3) / (4 * d_k))
    np.testing.assert_allclose(score_distribution(d_k).pdf(x), edgeworth, rtol=40 / d_k**2 + 1e-13)
    # Far out, where the tail underflows, by Chernoff's bound at the saddle point d t/(1 - t²) = x of the unscaled law.
    x = 60 * math.sqrt(d_k)
    t = (math.sqrt(d_k**2 + 4 * x**2) - d_k) / (2 * x)
    bound = -t * x - d_k / 2 * math.log1p(-(t**2))
    assert bound - 10 < score_distribution(d_k).logsf(60.0) < bound


@settings(max_examples=6, derandomize=True)
@given(st.integers(1, 5000), st.floats(1e-12, 1 - 1e-12), st.floats(1e-3, 1e3))
def test_quantiles_invert_the_distribution_function(d_k, level, scale):
    law = score_distribution(d_k, scale)
    x = law.ppf(level)
    # P is known to 1e-13 relative in its tail; seen from the other side, 1 - P.
    assert law.cdf(x) == pytest.approx(level, rel=1e-12)
    assert law.sf(-x) == pytest.approx(level, rel=1e-12)
    assert law.isf(level) == -x
    assert law.pdf(x) == law.pdf(-x)


@pytest.mark.parametrize("d_k", [1, 3, 50])
def test_density_and_distribution_function_agree(d_k):
    law = score_distribution(d_k, 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    low, high = 0.2, 3 * math.sqrt(d_k)
    x = low + (high - low) * (nodes + 1) / 2
    assert (high - low) / 2 * weights @ law.pdf(x) == pytest.approx(law.cdf(high) - law.cdf(low), rel=1e-12)


def test_the_interface_is_that_of_scipy():
    law = score_distribution(16, "1/d_k")
    assert law.stats("mvsk") == pytest.approx((0, 1 / 16, 0, 6 / 16))
    assert law.mean() == 0
    assert law.std() == pytest.approx(0.25)
    assert law.moment(4) == pytest.approx((3 * 16**2 + 6 * 16) / 16**4)
    assert law.ppf([0, 0.5, 1]).tolist() == [-math.inf, 0, math.inf]
    assert law.interval(0.9) == pytest.approx((law.ppf(0.05), law.ppf(0.95)))
    assert law.cdf(np.zeros((2, 3))).shape == (2, 3)
    assert math.isnan(law.pdf(math.nan))
    assert law.cdf([-math.inf, math.inf]).tolist() == [0, 1]


@pytest.mark.parametrize(("d_k", "seed"), [(1, 0), (5, 1)])
def test_draws_of_vectors_follow_the_law(d_k, seed):
    rng = np.random.default_rng(seed)
    scores = np.sum(rng.standard_normal((2, 5_000, d_k)).prod(axis=0), axis=-1) / math.sqrt(d_k)
    law = score_distribution(d_k)
    # Kolmogorov-Smirnov at 1e-6: a false alarm once in a million seeds.
    assert stats.kstest(scores, law.cdf).pvalue > 1e-6
    assert stats.kstest(law.rvs(5_000, random_state=rng), law.cdf).pvalue > 1e-6
    assert stats.kstest(1.25 * scores, law.cdf).pvalue < 1e-6


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((0,), "d_k.*got 0"), ((2.5,), r"d_k.*2\.5"), ((3, 0.0), "scale must not be 0"), ((3, "log(n_keys)"), "n_keys")],
)
def test_bad_input(arguments, named):
    with pytest.raises(ValueError, match=named):
        score_distribution(*arguments)


@pytest.mark.parametrize("d_k", [1, 2, 3, 64, 10**6])
def test_far_tails_join_the_integral_and_end_at_infinity(d_k):
    law = score_distribution(d_k, scale="unscaled")
    beside = np.array([0.999, 1.001]) * 1e8 * d_k  # the slope is -1 + O(d/x): a jump between the routes would show
    for method in (law.logpdf, law.logsf):
        near, far = method(beside)
        assert (near - far) / (beside[1] - beside[0]) == pytest.approx(1, abs=1e-8)
        assert method(1e300) == pytest.approx(-1e300, rel=1e-12)
    assert [law.pdf(np.inf), law.pdf(-np.inf), law.sf(np.inf), law.cdf(-np.inf)] == [0, 0, 0, 0]
    assert [law.cdf(np.inf), law.sf(-np.inf)] == [1, 1]
    assert np.isnan(law.pdf(np.nan))
