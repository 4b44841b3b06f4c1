"""Relations on synthetic draws: who agrees, who is separated, and how often chance alone says otherwise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis import AtMost, Exactly, Fits, Identity, ToLeadingOrder
from analysis.confront.cell import Cell
from analysis.confront.evidence import MAX_LOG_INFLATION, evidence_from
from analysis.measure.estimate.accumulators import Moments, OrderStatistics, Sample

CELL = Cell((("d_k", 4), ("n_keys", 2)))
EPS = np.finfo(np.float64).eps


def sample_of(draws):
    return Sample(Moments.of(draws), OrderStatistics.of(draws))


def judge(relation, draws, prediction, rival, *, estimator=None, critical=5.0, cell=CELL):
    return relation.judge(sample_of(np.asarray(draws, dtype=float)), cell, estimator, prediction, rival, critical)


@pytest.mark.parametrize(
    ("estimator", "truth", "rival"), [("mean", 3.0, 3.5), ("variance", 4.0, 2.0), ("rms", math.sqrt(13), 3.0)]
)
def test_exactly_agrees_with_the_truth_and_separates_the_rival(estimator, truth, rival):
    found = judge(Exactly(), np.random.default_rng(1).normal(3, 2, 4000), truth, rival, estimator=estimator)
    assert found.agrees
    assert found.separates
    assert found.calibrated == (estimator == "mean")  # squares are skewed: they need more draws
    assert found.estimate == pytest.approx(truth, abs=5 * found.standard_error)


def test_a_rival_that_coincides_separates_nothing():
    draws = np.random.default_rng(2).normal(size=4000)
    assert judge(Exactly(), draws, 0.0, 0.0, estimator="mean").separates is None


@pytest.mark.parametrize("estimator", ["mean", "variance", "rms", "median"])
def test_false_alarms_come_at_the_nominal_rate(estimator):
    rng, runs, critical = np.random.default_rng(3), 2000, 2.0
    truth = {"mean": 1.0, "variance": 1.0, "rms": math.sqrt(2), "median": 1.0}[estimator]
    alarms = sum(
        not judge(Exactly(), rng.normal(1, 1, 2000), truth, 9.0, estimator=estimator, critical=critical).agrees
        for _ in range(runs)
    )
    low, high = stats.binom.interval(1 - 1e-4, runs, 2 * stats.norm.sf(critical))
    assert low <= alarms <= high


def test_fits_raises_false_alarms_at_the_nominal_rate():
    rng, runs, critical = np.random.default_rng(4), 500, 1.5
    law, rival, relation = stats.norm(), stats.norm(scale=2), Fits(classes=16)
    zs = [judge(relation, rng.normal(size=3200), law, rival, critical=critical).z_score for _ in range(runs)]
    low, high = stats.binom.interval(1 - 1e-4, runs, 2 * stats.norm.sf(critical))
    assert low <= sum(z > critical for z in zs) <= high


def test_a_calibrated_tail_is_at_most_twice_the_normal_one():
    rng, critical, runs = np.random.default_rng(5), 3.0, 20_000
    mean = evidence_from(sample_of(rng.exponential(size=1_000_000)), "mean")
    n = math.ceil(mean.replicates_for_tail(critical))
    below = 0
    for _ in range(40):
        draws = rng.exponential(size=(runs // 40, n))
        below += int(np.sum((draws.mean(axis=1) - 1) * math.sqrt(n) < -critical * draws.std(axis=1, ddof=1)))
    normal = stats.norm.sf(critical) * runs
    assert below <= stats.poisson.ppf(1 - 1e-4, math.exp(MAX_LOG_INFLATION) * normal)
    assert below > normal  # skewed terms do inflate it: the rule is not idle


def test_the_replicates_a_tail_asks_for():
    exponential = replace(evidence_from(sample_of(np.arange(9.0)), "mean"), skewness=2.0, kurtosis=1.0)
    for critical in (3.0, 6.0):
        inflation = 2 * critical**3 / 3 / math.sqrt(exponential.replicates_for_tail(critical))
        assert inflation == pytest.approx(math.log(2), rel=0.05)
    assert replace(exponential, kurtosis=1e6).replicates_for_tail(3.0) == 2.5e8  # one draw must not dominate
    assert replace(exponential, skewness=math.nan).replicates_for_tail(3.0) == math.inf


def test_heavy_tails_are_shown_but_not_judged():
    product = np.prod(np.random.default_rng(6).normal(size=(2, 100_000)), axis=0)  # a score at d_k = 1
    assert not judge(Exactly(), product**4, 9.0, 3.0, estimator="mean").calibrated
    assert judge(Exactly(), product, 0.0, 1.0, estimator="mean").calibrated


@pytest.mark.parametrize("estimator", ["mean", "variance", "median"])
def test_draws_that_are_no_numbers_contradict(estimator):
    for bad in (math.nan, math.inf):
        found = judge(Exactly(), [1.0, 2.0, bad, 3.0], 2.0, 1.0, estimator=estimator)
        assert not found.agrees
        assert found.calibrated


def test_constant_draws_are_judged_as_an_identity():
    same = np.full(100, 4.0)
    assert judge(Exactly(), same, 4.0, 0.0, estimator="mean").agrees
    assert judge(Exactly(), same, 4.0, 0.0, estimator="mean").z_score is None
    assert judge(Exactly(), same, 0.0, 4.0, estimator="variance").agrees
    assert not judge(Exactly(), same, 4.0 + 1e-9, 0.0, estimator="mean").agrees
    assert not judge(Exactly(), same, 0.0, 4.0, estimator="mean").separates


def test_two_valued_draws_have_no_wild_score():
    signs = np.random.default_rng(7).integers(0, 2, (200, 1000)) * 2.0 - 1.0  # kurtosis 1: s² hardly varies
    scores = [judge(Exactly(), row, 1.0, 2.0, estimator="variance").z_score for row in signs]
    assert max(map(abs, scores)) < 3
    assert not judge(Exactly(), 1.01 * signs[0], 1.0, 2.0, estimator="variance").agrees


def test_leading_order_allows_what_it_states_and_no_more():
    relation = ToLeadingOrder("d_k", order=1, constant=0.4)  # ± .1 at d_k = 4
    noise = np.random.default_rng(8).normal(0, 0.01, 4000)
    within = judge(relation, 1.09 + noise, 1.0, 2.0, estimator="mean")
    assert within.z_score == 0.0
    assert within.agrees
    assert within.separates
    beyond = judge(relation, 1.12 + noise, 1.0, 2.0, estimator="mean")
    assert beyond.z_score == pytest.approx(0.02 / beyond.standard_error, rel=0.05)
    assert not beyond.agrees


def test_a_rate_that_is_too_fast_is_contradicted():
    truth = {d: 1 + 1 / math.sqrt(d) for d in (4, 64, 1024)}  # residual d^(-1/2)
    noise = np.random.default_rng(9).normal(0, 0.01, 4000)

    def agrees(order):
        relation = ToLeadingOrder("d_k", order=order, constant=2.0)
        return [
            judge(relation, value + noise, 1.0, 5.0, estimator="mean", cell=Cell((("d_k", d),))).agrees
            for d, value in truth.items()
        ]

    assert all(agrees(0.5))
    assert agrees(1.0) == [True, False, False]


def test_no_budget_separates_a_rival_within_the_allowance():
    draws = np.random.default_rng(12).normal(1, 1, 4000)
    near = judge(ToLeadingOrder("d_k", order=1, constant=0.4), draws, 1.0, 1.05, estimator="mean")
    assert near.separates is False
    assert near.factor == math.inf
    far = judge(ToLeadingOrder("d_k", order=1, constant=0.1), draws, 1.0, 1.12, estimator="mean", critical=7)
    assert far.factor == pytest.approx((10 * far.standard_error / (0.12 - 0.025 * 2.12)) ** 2, rel=1e-9)


def test_leading_order_of_a_function_of_the_cell():
    relation = ToLeadingOrder(lambda cell: cell.d_k**2, order=0.5, constant=lambda cell: 1.0 / cell.n_keys)
    assert relation.allowance(-3.0, CELL) == pytest.approx(3.0 / (2 * 4))


def test_identity_is_a_matter_of_rounding():
    relation = Identity(multiple=8)
    assert judge(relation, [1.0, 1.0 + 16 * EPS], 1.0, 0.0).agrees
    assert not judge(relation, [1.0, 1.0 + 40 * EPS], 1.0, 0.0).agrees
    assert not judge(relation, [1.0, 1.0 - 40 * EPS], 1.0, 0.0).agrees
    assert not judge(relation, [1.0, math.nan], 1.0, 0.0).agrees
    assert judge(relation, [1.0, 1.0], 1.0, 0.0).separates
    assert judge(relation, [1.0, 1.0], 0.0, 1.0).separates is False


def test_at_most_reports_the_tightest_draw():
    assert judge(AtMost(), [0.1, 0.4], 0.5, 0.25).agrees
    assert judge(AtMost(), [0.1, 0.4], 0.5, 0.25).separates
    assert judge(AtMost(), [0.1, 0.4], 0.5, 0.45).separates is False
    assert not judge(AtMost(), [0.1, 0.5 + 1e-9], 0.5, 0.25).agrees
    assert not judge(AtMost(attained=True), [0.1, 0.4], 0.5, 0.25).agrees
    assert judge(AtMost(attained=True), [0.1, 0.5], 0.5, 0.25).agrees
    for bad in (math.nan, -math.inf):
        assert not judge(AtMost(), [0.1, bad], 0.5, 0.25).agrees


def test_fits_tells_laws_apart():
    draws = np.random.default_rng(10).laplace(0, math.sqrt(0.5), 50_000)
    laplace, normal = stats.laplace(scale=math.sqrt(0.5)), stats.norm()
    found = judge(Fits(), draws, laplace, normal)
    assert (found.agrees, found.separates, found.calibrated) == (True, True, True)
    assert not judge(Fits(), draws, normal, laplace).agrees
    assert not judge(Fits(), draws[:1000], laplace, normal).calibrated
    assert not judge(Fits(), [*draws, math.nan], laplace, normal).agrees


def test_the_median_of_a_skewed_law():
    draws = np.random.default_rng(11).exponential(size=2000)
    found = judge(Exactly(), draws, math.log(2), 1.0, estimator="median")
    assert found.agrees
    assert found.separates
    assert found.estimate == pytest.approx(math.log(2), abs=5 * found.standard_error)
    assert found.standard_error == pytest.approx(1 / math.sqrt(2000), rel=0.3)  # 1/(2 f(m) √n) with f(log 2) = 1/2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ToLeadingOrder("d_k", order=0, constant=1), "order must be positive"),
        (lambda: ToLeadingOrder("d_k", order=1, constant=-1), "constant must be positive"),
        (lambda: Fits(classes=4), "classes must be at least 8"),
    ],
)
def test_senseless_relations_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
