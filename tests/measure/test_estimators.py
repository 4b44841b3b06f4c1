"""Accumulators merge without loss, estimates are what they claim, and the tail is trusted only where it may be."""

import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.measure.estimate.accumulators import MAX_ENTRIES, Moments, OrderStatistics, Sample
from analysis.measure.estimate.estimators import bernoulli_mean, estimate, quantile_ranks

COVERAGE_ALARM = 1e-6


def sample_of(values) -> Sample:
    return Sample(Moments.of(values), OrderStatistics.of(values))


def product_scores(rng, d: int, shape) -> np.ndarray:
    """Scores kᵀq of Gaussian vectors, by their exact mixture."""
    return np.sqrt(rng.chisquare(d, shape)) * rng.standard_normal(shape)


@settings(max_examples=60, derandomize=True)
@given(
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=60),
    st.integers(1, 58),
    st.sampled_from([0.0, 1e6, -1e12]),
)
def test_merging_is_the_moments_of_the_whole(values, cut, offset):
    x = np.array(values) + offset
    cut = min(cut, x.size - 1)
    whole, merged = Moments.of(x), Moments.of(x[:cut]).merge(Moments.of(x[cut:]))
    assert (merged.count, merged.minimum, merged.maximum) == (x.size, x.min(), x.max())
    spread = max(float(np.ptp(x)), 1e-300)
    assert merged.mean == pytest.approx(whole.mean, abs=4 * 2.0**-52 * (spread + abs(offset)))
    for order in range(2, 9):
        # rounding relative to the largest possible sum of that order
        scale = x.size * spread**order
        assert merged.central[order] == pytest.approx(whole.central[order], abs=1e-12 * scale)


def test_an_offset_of_1e12_costs_no_digits():
    # one-pass updating errs by 4e-6 here, E[x²] − E[x]² by everything
    x = 1e12 + np.random.default_rng(0).random(200_000)
    y = x - 1e12  # exact
    merged = reduce(Moments.merge, [Moments.of(part) for part in np.array_split(x, 7)])
    for order in (2, 3, 4, 6, 8):
        wanted = np.mean((y - y.mean()) ** order)
        assert merged.averages[order] == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_float32_values_are_summed_in_double():
    x = (1e4 + np.random.default_rng(0).standard_normal(100_000)).astype(np.float32)
    assert Moments.of(x).averages[2] == pytest.approx(np.var(x.astype(float)), rel=1e-12)


def test_the_variance_has_divisor_n_minus_1():
    assert estimate(sample_of([3.0, 0.0, 1.0, 2.0]), "variance", 0.95).estimate == pytest.approx(5 / 3)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.99])
def test_order_statistics_are_exact_while_they_fit(p):
    x = np.random.default_rng(1).standard_normal(50_000)
    merged = reduce(OrderStatistics.merge, [OrderStatistics.of(part) for part in np.array_split(x, 6)])
    assert estimate(Sample(Moments.of(x), merged), p, 0.95).estimate == pytest.approx(np.quantile(x, p), rel=1e-15)


def test_order_statistics_beyond_that_are_known_to_a_bin():
    x = np.random.default_rng(1).standard_normal(4 * MAX_ENTRIES) * 10.0 ** np.arange(4 * MAX_ENTRIES).clip(0, 3)
    merged = reduce(OrderStatistics.merge, [OrderStatistics.of(part) for part in np.array_split(x, 9)])
    assert merged.count == x.size
    assert merged.counts.size < 1.5 * MAX_ENTRIES
    for p in (0.001, 0.25, 0.6, 0.999):
        assert merged.value(p * (x.size - 1)) == pytest.approx(np.quantile(x, p), rel=2.0**-14)


def test_order_statistics_of_discrete_values_stay_exact():
    x = np.random.default_rng(1).integers(-3, 4, 3 * MAX_ENTRIES).astype(float)
    merged = reduce(OrderStatistics.merge, [OrderStatistics.of(part) for part in np.array_split(x, 4)])
    assert [merged.value(rank) for rank in (0, x.size // 2, x.size - 1)] == [-3.0, np.median(x), 3.0]


def test_values_that_would_share_a_bin_stay_apart_while_they_fit():
    x = 1.0 + np.arange(1000) * 1e-9
    merged = OrderStatistics.of(x[::2]).merge(OrderStatistics.of(x[1::2]))
    assert merged.counts.size == 1000
    assert [merged.value(rank) for rank in (-1.0, 0, 1, 500, 2000)] == [x[0], x[0], x[1], x[500], x[999]]


def test_within_a_bin_ranks_are_spread_evenly():
    binned = OrderStatistics(np.array([1.0, 5.0]), np.array([2.0, 5.0]), np.array([3, 1]))
    assert [binned.value(rank) for rank in (0, 0.5, 1, 2, 2.5, 3)] == [1.0, 1.25, 1.5, 2.0, 3.5, 5.0]


def test_bins_begin_beyond_the_entries_that_fit():
    fitting = OrderStatistics.of(1.0 + np.arange(MAX_ENTRIES) * 1e-12)
    assert fitting.counts.size == MAX_ENTRIES
    one_more = fitting.merge(OrderStatistics.of([1.5]))
    assert (one_more.counts.size, one_more.count) == (2, MAX_ENTRIES + 1)


def test_no_bin_is_wider_than_its_digits():
    tiny = OrderStatistics.of(-np.geomspace(1e-9, 1e-3, 3 * MAX_ENTRIES))
    assert tiny.counts.size > MAX_ENTRIES
    assert np.all((tiny.low - tiny.high) / tiny.low < 2.0**-14)
    assert np.any(tiny.counts > 1)


def test_a_sample_without_order_statistics_stays_without_when_merged():
    with_them, without = sample_of([1.0, 2.0]), Sample(Moments.of([3.0]))
    assert with_them.ordered is not None
    assert with_them.merge(without).ordered is without.merge(with_them).ordered is None


def test_the_influence_of_a_replicate_is_exact():
    x = np.array([0.0, 1.0, 2.0, 5.0])
    moments = Moments.of(x)
    influences = {"mean": x - 2.0, "variance": (x - 2.0) ** 2 - 3.5, "rms": x**2 - 7.5}
    for statistic, influence in influences.items():
        for power in (1, 2, 3):
            expected = pytest.approx(np.mean(influence**power), abs=1e-12)
            assert moments.expect(moments.influence(statistic), power) == expected


def test_the_error_of_the_variance_follows_the_kurtosis():
    # E s² for s = q·k, d = 1, n = 100: √((9 − 97/99)/100) = .2832, where normal theory says .1421
    rng = np.random.default_rng(4)
    found = [estimate(sample_of(x), "variance", 0.95).standard_error for x in product_scores(rng, 1, (200, 20_000))]
    assert np.mean(found) * math.sqrt(20_000 / 100) == pytest.approx(0.2832, rel=0.02)


@pytest.mark.parametrize("x", [[0.0, 1.0, 2.0, 5.0, 5.5], [1.0, 1.0, 1.0, -3.0], [-2.0, 2.0, 2.0, -2.1, 2.0, 0.5] * 9])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_are_their_formulas(x, level):
    """Student's t; Bonett's interval of the variance with 2n/(κ − 1) degrees of freedom; a logarithm for rms."""
    n, mean, tail = len(x), np.mean(x), (1 + level) / 2
    deviations = np.asarray(x) - mean
    m2, m4 = np.mean(deviations**2), np.mean(deviations**4)
    kurtosis = m4 / m2**2
    found = estimate(sample_of(x), "mean", level)
    error = math.sqrt(m2 / (n - 1))
    reach = stats.t.ppf(tail, n - 1) * error
    assert (found.standard_error, *found.interval) == pytest.approx((error, mean - reach, mean + reach))
    found = estimate(sample_of(x), "variance", level)
    square = n * m2 / (n - 1)
    error = math.sqrt((m4 - m2**2 * (n - 3) / (n - 1)) / n)
    centre = square * n / max(n - stats.norm.ppf(tail), 1.0)
    reach = stats.t.ppf(tail, max(2 * n / (kurtosis - 1), 1.0)) * centre / square
    reach *= math.sqrt((kurtosis - (n - 3) / n) / (n - 1))
    expected = (square, error, centre * math.exp(-reach), centre * math.exp(reach))
    assert (found.estimate, found.standard_error, *found.interval) == pytest.approx(expected)
    found = estimate(sample_of(x), "rms", level)
    squares = np.asarray(x) ** 2
    value, relative = math.sqrt(np.mean(squares)), np.std(squares, ddof=1) / math.sqrt(n) / np.mean(squares)
    reach = stats.t.ppf(tail, n - 1) * relative / 2
    expected = (value, value * relative / 2, value * math.exp(-reach), value * math.exp(reach))
    assert (found.estimate, found.standard_error, *found.interval) == pytest.approx(expected)


def test_the_tail_of_a_quantile_is_trusted_where_its_rarer_side_and_its_density_allow():
    even = np.linspace(0.0, 1.0, 5001)
    assert estimate(sample_of(even), 0.1, 0.95).calibrated
    assert estimate(sample_of(even), 0.9, 0.95).calibrated
    assert not estimate(sample_of(even), 0.099, 0.95).calibrated  # 495 values below
    assert not estimate(sample_of(even), 0.901, 0.95).calibrated
    for ratio, calibrated in ((1.9, True), (2.4, False)):
        kinked = np.where(even < 0.5, even, 0.5 + ratio * (even - 0.5))
        assert estimate(sample_of(kinked), 0.5, 0.95).calibrated is calibrated
        assert estimate(sample_of(-kinked), 0.5, 0.95).calibrated is calibrated


@pytest.mark.parametrize("p", [0.1, 0.9])
def test_the_error_of_a_quantile_is_read_off_its_neighbours(p):
    """Over three binomial deviations either side, or as far as the sample goes."""
    for n in (10, 1000):
        x, rank, spread = np.arange(n) ** 2.0, p * (n - 1), math.sqrt(n * p * (1 - p))
        reach = min(3 * spread, 0.1 * (n - 1))
        expected = (np.interp(rank + reach, range(n), x) - np.interp(rank - reach, range(n), x)) * spread / (2 * reach)
        assert estimate(sample_of(x), p, 0.95).standard_error == pytest.approx(expected, rel=1e-12)


def test_the_unit_of_a_quantity_changes_no_flag():
    rng = np.random.default_rng(0)
    for x in (rng.standard_normal(2000), rng.exponential(size=2000)):
        flags = {statistic: estimate(sample_of(x), statistic, 0.95).calibrated for statistic in ("mean", "variance")}
        for unit in (1e-3, 1e3):
            assert flags == {name: estimate(sample_of(unit * x), name, 0.95).calibrated for name in flags}
    assert flags == {"mean": False, "variance": False}


def test_certain_events_end_at_1_and_two_values_have_an_interval():
    assert bernoulli_mean(Moments.of(np.ones(50)), 0.95).interval[1] == 1.0
    assert estimate(sample_of([0.0, 1.0]), "variance", 0.95).interval[0] < 0.5 * 2  # c = n: Bonett's n − z is below 1
    assert np.prod(estimate(sample_of([0.0, 1.0]), "variance", 0.95).interval) == pytest.approx((0.5 * 2) ** 2)


def test_a_sample_of_zeros_has_no_error_and_no_tail():
    for statistic in ("variance", "rms"):
        assert vars(estimate(sample_of(np.zeros(1000)), statistic, 0.95)) == {
            "estimate": 0.0,
            "standard_error": 0.0,
            "interval": (0.0, 0.0),
            "calibrated": False,
        }
    assert not estimate(sample_of(np.zeros(1000)), "mean", 0.95).calibrated


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize("d", [1, 4, 64])
def test_the_interval_of_the_variance_covers(d, n):
    # at n = 100 the χ² interval covers .70 at d = 1 and .86 at d = 4
    rng = np.random.default_rng(d)
    intervals = [estimate(sample_of(x), "variance", 0.95).interval for x in product_scores(rng, d, (1000, n))]
    covered = sum(low <= d <= high for low, high in intervals)
    floor = 0.93 if n == 1000 or d > 1 else 0.905
    assert stats.binom.cdf(covered, 1000, floor) > COVERAGE_ALARM


@pytest.mark.parametrize("statistic", ["mean", "rms", "median", 0.9])
def test_intervals_cover_at_their_level(statistic):
    rng = np.random.default_rng(7)
    truth = {"mean": 0.0, "rms": 1.0, "median": 0.0, 0.9: stats.norm.ppf(0.9)}[statistic]
    for level in (0.8, 0.95):
        intervals = [estimate(sample_of(x), statistic, level).interval for x in rng.standard_normal((1000, 300))]
        covered = sum(low <= truth <= high for low, high in intervals)
        assert stats.binom.cdf(covered, 1000, level - 0.005) > COVERAGE_ALARM
        # order statistics are discrete and cover a little more
        assert (
            stats.binom.sf(covered - 1, 1000, level + (0.03 if statistic in ("median", 0.9) else 0.005))
            > COVERAGE_ALARM
        )


def test_five_values_use_students_t():
    found = estimate(sample_of([1.0, 2.0, 3.0, 4.0, 5.0]), "mean", 0.95)
    assert found.standard_error == pytest.approx(math.sqrt(2.5 / 5))
    assert found.interval[1] - 3.0 == pytest.approx(2.776445 * found.standard_error, rel=1e-6)


@pytest.mark.parametrize(("n", "p"), [(6, 0.5), (100, 0.5), (1000, 0.01), (1000, 0.99), (37, 0.3)])
def test_ranks_cover_by_the_binomial(n, p):
    low, high = quantile_ranks(n, p, 0.95)
    cover = stats.binom.cdf(high, n, p) - stats.binom.cdf(low, n, p)
    assert cover >= 0.95
    assert stats.binom.cdf(low + 1, n, p) > 0.025
    assert stats.binom.sf(high - 1, n, p) > 0.025
    assert quantile_ranks(5, 0.5, 0.95) == (-1, 5)


def test_no_events_are_not_certainty():
    nothing = bernoulli_mean(Moments.of(np.zeros(300)), 0.95)
    assert nothing.interval == pytest.approx((0.0, 1 - 0.025 ** (1 / 300)))
    some = bernoulli_mean(Moments.of(np.r_[np.ones(7), np.zeros(93)]), 0.95)
    assert some.interval == pytest.approx(stats.binomtest(7, 100).proportion_ci(0.95, "exact"))


def test_constant_values_have_no_error_and_no_tail():
    for statistic in ("mean", "variance", "rms", "median"):
        found = estimate(sample_of(np.full(5000, 2.0)), statistic, 0.95)
        assert (found.standard_error, found.calibrated) == (0.0, False)
        assert found.interval == (found.estimate, found.estimate)


def test_the_variance_of_signs_is_not_called_calibrated():
    # s² = (1 − mean²) n/(n − 1): with y = n·mean² ~ χ²₁ the z-score is (1 − y)/√(4y + 2), never above .71
    rng = np.random.default_rng(0)
    found = [estimate(sample_of(x), "variance", 0.95) for x in rng.choice([-1.0, 1.0], (300, 2000))]
    assert all(x.estimate - 1.0 < 0.72 * x.standard_error for x in found)
    assert not any(x.calibrated for x in found)


def test_huge_values_are_not_called_calibrated():
    found = estimate(sample_of(np.random.default_rng(0).standard_normal(5000) * 1e60), "variance", 0.95)
    assert math.isfinite(found.standard_error)
    assert not found.calibrated


def test_fourth_powers_of_scores_are_relabelled():
    # |z| > 3 happens in 2 to 9 % of runs at these sizes: the flag must say so nearly always
    rng = np.random.default_rng(3)
    flags = [
        estimate(sample_of(product_scores(rng, 1, n) ** 4), "mean", 0.95).calibrated
        for n in (1000, 10_000, 100_000)
        for _ in range(30)
    ]
    assert not any(flags)


CALIBRATION = {
    "score, d = 1": (
        lambda rng, n: product_scores(rng, 1, n),
        {"mean": 0.0, "variance": 1.0, "rms": 1.0, "median": 0.0},
    ),
    "score, d = 64": (lambda rng, n: product_scores(rng, 64, n), {"mean": 0.0, "variance": 64.0, "rms": 8.0}),
    "uniform": (
        lambda rng, n: rng.random(n),
        {"mean": 0.5, "variance": 1 / 12, "rms": 3**-0.5, "median": 0.5, 0.9: 0.9},
    ),
    "exponential": (
        lambda rng, n: rng.standard_exponential(n),
        {"mean": 1.0, "variance": 1.0, "rms": 2**0.5, "median": math.log(2), 0.9: -math.log(0.1)},
    ),
    "lognormal": (
        lambda rng, n: np.exp(rng.standard_normal(n)),
        {"mean": math.exp(0.5), "variance": (math.e - 1) * math.e, "rms": math.e, "median": 1.0},
    ),
    "fourth power of a score": (lambda rng, n: product_scores(rng, 1, n) ** 4, {"mean": 9.0}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("replicates", "repeats"), [(1000, 8000), (20_000, 3000)])
@pytest.mark.parametrize("law", CALIBRATION)
def test_tails_are_calibrated_where_the_flag_says_so(law, replicates, repeats):
    draw, truths = CALIBRATION[law]
    rng = np.random.default_rng(sum(map(ord, law)) + replicates)
    beyond, judged = dict.fromkeys(truths, 0), dict.fromkeys(truths, 0)
    for _ in range(repeats):
        sample = sample_of(draw(rng, replicates))
        for statistic, truth in truths.items():
            found = estimate(sample, statistic, 0.95)
            judged[statistic] += found.calibrated
            beyond[statistic] += found.calibrated and abs(found.estimate - truth) > 3 * found.standard_error
    for statistic, number in judged.items():
        # nominal rate .27 %; a third more is allowed for, and then a false alarm of 1e-5
        assert stats.binom.sf(beyond[statistic] - 1, number, 0.0027 * 4 / 3) > 1e-5, (statistic, beyond, judged)
    if law in ("uniform", "score, d = 64"):
        assert judged["mean"] == repeats, "the flag must not be thrown at everything"
    if law == "fourth power of a score":
        assert judged["mean"] == 0


@pytest.mark.parametrize(("level", "width"), [(0.95, 1.959964), (0.5, 0.674490)])
@pytest.mark.parametrize("statistic", ["mean", "variance", "rms", "median", 0.9])
def test_an_interval_of_a_large_normal_sample_is_the_normal_one(statistic, level, width):
    """Intervals tend to ± z standard errors: of moments, within 1 %; of quantiles, read off some 100 spacings, 10 %."""
    found = estimate(sample_of(np.random.default_rng(0).standard_normal(20_000)), statistic, level)
    low, high = found.interval
    assert low < found.estimate < high
    tolerance = 0.05 if statistic in ("mean", "variance", "rms") else 0.4  # 4 deviations
    assert (high - low) / 2 == pytest.approx(width * found.standard_error, rel=tolerance)


def test_ties_are_one_value_whatever_their_sign_of_zero():
    x = np.concatenate([np.zeros(60_000), -np.zeros(60_000), np.ones(10)])
    ordered = sample_of(x).ordered
    assert (ordered.value(0.0), ordered.value(x.size - 1)) == (0.0, 1.0)
    assert ordered.count == x.size
