"""Studies: reproducible to the bit whatever runs them, right against exact values, refused where they make no sense."""

import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

from analysis import Study, run_study

SMALL = {"d_k": [2, 8], "n_keys": 5, "replicates": 3000, "seed": 5, "workers": 1}
Z_LIMIT = 5.0  # a false alarm in 1.7 million per z-score


def estimates(study: Study) -> list[float]:
    return [row.estimate for row in study.rows]


class ShuffledExecutor(Executor):
    """Answers late and out of order: what a cluster may do."""

    _max_workers = 4

    def __init__(self):
        self._pool = ThreadPoolExecutor(4)
        self._delays = iter(np.random.default_rng(0).permutation(1000))

    def submit(self, fn, /, *args, **kwargs) -> Future:
        delay = int(next(self._delays)) % 7 / 500

        def late():
            time.sleep(delay)
            return fn(*args, **kwargs)

        return self._pool.submit(late)


def test_workers_and_executors_change_no_bit():
    arguments = {**SMALL, "n_keys": 256, "replicates": 20_000, "statistic": ("mean", "variance", "median")}  # 4 shards
    one = run_study("entropy", **arguments)
    for workers in (2, 4):
        assert run_study("entropy", **{**arguments, "workers": workers}) == one
    assert run_study("entropy", **{**arguments, "workers": None, "executor": ShuffledExecutor()}) == one


def test_the_direct_sampler_is_equal_for_any_workers():
    arguments = {**SMALL, "d_k": 64, "n_keys": 64, "replicates": 2000, "sampler": "direct"}
    assert run_study("entropy", **arguments) == run_study("entropy", **{**arguments, "workers": 3})


def test_another_cell_changes_no_number():
    alone = run_study("effective_keys", **{**SMALL, "d_k": 8, "scale": "sqrt"})
    among = run_study("effective_keys", **{**SMALL, "d_k": [3, 8, 2], "n_keys": [9, 5], "scale": ("unscaled", "sqrt")})
    assert alone.rows[0] in among.rows


def test_another_statistic_changes_no_number():
    both = run_study("entropy", statistic=("variance", "mean"), **SMALL)
    assert run_study("entropy", statistic="mean", **SMALL).rows == both.rows[1::2]


def test_seeds_names_and_samplers_are_independent_streams():
    studies = [
        run_study("entropy", **SMALL),
        run_study("entropy", **{**SMALL, "seed": 0}),
        run_study("entropy", **SMALL, name="another"),
        run_study("entropy", **SMALL, sampler="direct"),
        run_study("entropy", **SMALL, precision="single"),
    ]
    assert len({estimates(study)[0] for study in studies}) == len(studies)


def test_a_longer_run_begins_with_the_shorter_one():
    seen: list[np.ndarray] = []

    def spy(query, key, scale):
        value = (query * key).sum(axis=(1, 2)) * scale
        seen.append(value)
        return value

    def values(replicates):
        seen.clear()
        run_study(spy, d_k=3, n_keys=1, scale="sqrt", replicates=replicates, workers=1)
        return np.concatenate(seen)

    short, long = values(20), values(20_000)
    assert np.array_equal(long[:20], short[:20])
    assert len(np.unique(long)) == len(long), "no two replicates are alike"


@pytest.mark.parametrize("sampler", ["direct", "conditional"])
@pytest.mark.parametrize(
    ("quantity", "statistic"),
    [
        ("score", ("mean", "variance", "rms")),
        ("entropy", "mean"),
        ("jacobian_trace", "mean"),
        ("jacobian_norm", "rms"),
        ("max_weight", "mean"),
        ("score_gradient_norm", "rms"),
        ("query_gradient_norm", "rms"),
    ],
)
def test_estimates_meet_the_exact_values(quantity, statistic, sampler):
    study = run_study(quantity, d_k=[2, 16], n_keys=6, statistic=statistic, replicates=40_000, sampler=sampler, seed=11)
    for row in study.rows:
        assert row.prediction is not None
        assert abs(row.z_score) < Z_LIMIT
        assert row.sampler == sampler


@pytest.mark.parametrize(
    ("quantity", "statistic", "settings"),
    [
        ("entropy", "mean", {"sampler": "conditional", "d_k": 64, "n_keys": 8}),
        ("entropy", "mean", {"sampler": "conditional", "d_k": 64, "n_keys": 8, "precision": "single"}),
        ("score", "variance", {"sampler": "conditional", "d_k": 64}),
        ("score", "variance", {"sampler": "direct", "d_k": 4}),
    ],
)
def test_a_scale_off_by_one_percent_would_be_seen(quantity, statistic, settings):
    row = run_study(quantity, scale="unscaled", statistic=statistic, replicates=1_000_000, seed=4, **settings).rows[0]
    slope = {"entropy": -1.0, "score": 2.0}[quantity]  # d log estimand / d log scale, nearly
    assert abs(row.z_score) < Z_LIMIT
    assert abs(slope) * 0.01 * row.prediction > 1.5 * Z_LIMIT * row.standard_error, "the test has the power it claims"


def test_rows_carry_every_setting():
    row = run_study("entropy", softcap=3.0, statistic=0.25, **{**SMALL, "d_k": 8}).rows[1]
    assert (row.quantity, row.statistic, row.law, row.d_k, row.n_keys) == ("entropy", "quantile_0.25", "normal", 8, 5)
    assert (row.scale, row.softcap, row.is_causal, row.replicates, row.seed) == ("unscaled", 3.0, False, 3000, 5)
    assert row.interval[0] < row.estimate < row.interval[1]
    assert (row.prediction, row.z_score, row.confidence_level) == (None, None, 0.95)
