"""What a study refuses, in one sentence each, and how target_rse spends its replicates."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis import run_study
from analysis.vocabulary.quantities import QUANTITIES

BASE = {"d_k": 4, "n_keys": 5, "replicates": 100, "workers": 1}


def zero(query, key):
    return np.zeros((*query.shape[:-1], key.shape[-2]))


REFUSED = [
    ("entropie", {}, r"unknown quantity 'entropie': did you mean 'entropy'\? known are score, entropy"),
    ("entropy", {"d_k": 0}, r"d_k must be a whole number of at least 1: got 0"),
    ("entropy", {"d_k": [4, -1]}, r"d_k must be .* got -1"),
    ("entropy", {"d_k": 4.0}, r"d_k must be .* got 4\.0"),
    ("entropy", {"d_k": True}, r"d_k must be .* got True"),
    ("entropy", {"d_k": []}, r"at least one value of each setting"),
    ("entropy", {"d_k": []}, r"^d_k: .* got \[\]"),
    ("entropy", {"scale": ()}, r"^scale: .* got \(\)"),
    ("entropy", {"statistic": []}, r"^statistic: .* got \[\]"),
    ("entropy", {"target_rse": 0.1, "max_replicates": 1}, r"at least 2 replicates: got max_replicates 1"),
    (
        "entropy",
        {"law": lambda rng, d, n: rng.standard_normal(d)},
        r"a pair \(query, key\): got ndarray .* \(4,\)",
    ),
    ("entropy", {"law": lambda rng, d, n: None}, r"a pair \(query, key\): got NoneType"),
    ("score", {"n_keys": None, "scale": "log(n_keys)"}, r"a score has no n_keys: give the number .*'log\(n_keys\)'"),
    ("score", {"n_keys": None, "scale": ["sqrt", lambda d, n: 1 / n]}, r"a score has no n_keys: .*'<lambda>'"),
    ("entropy", {"d_k": "4"}, r"d_k must be .* got '4'"),
    ("entropy", {"d_k": np.array(4.5)}, r"d_k must be .* got array"),
    ("entropy", {"n_keys": 0}, r"n_keys must be a whole number"),
    ("entropy", {"n_keys": None}, r"n_keys is missing"),
    ("entropy", {"scale": "none"}, r"scale 'none' is ambiguous"),
    ("entropy", {"scale": math.inf}, r"scale must be"),
    ("entropy", {"scale": [lambda d, n: 1.0, lambda d, n: 2.0]}, r"two scales are called '<lambda>'"),
    ("entropy", {"scale": "1/(d_k - 4)"}, r"has no value at d_k=4, n_keys=5"),
    ("entropy", {"law": "gauss"}, r"unknown law 'gauss'"),
    ("entropy", {"law": ("normal",)}, r"a pair for query and key: got 1 laws"),
    ("entropy", {"alignment": 1.5}, r"alignment is a correlation"),
    ("entropy", {"alignment": math.nan}, r"alignment must be a finite number"),
    ("entropy", {"alignment": 0.5}, r"no 5 keys have correlation 0\.5 .* at least 0\.0625 \(0\.25 makes"),
    ("entropy", {"key_correlation": -0.5}, r"no 5 keys have correlation 0 with the query and -0\.5"),
    ("entropy", {"alignment": 0.1, "law": stats.cauchy()}, r"finite, positive variance"),
    ("entropy", {"alignment": 0.1, "law": lambda rng, d, n: None}, r"do not apply to a callable law"),
    ("entropy", {"alignment": 0.1, "is_causal": True}, r"alignment is between one query and its keys"),
    ("score", {"key_correlation": 0.1}, r"key_correlation does not apply to the quantity 'score'"),
    ("entropy", {"score": "euclid"}, r"score must be 'dot', 'cosine' or a callable"),
    ("query_gradient_norm", {"score": zero}, r"derivative of the score"),
    (lambda q, k, s: q[:, 0, 0], {"score": "cosine"}, r"do not reach a callable quantity"),
    (lambda q, k, s: q[:, 0, 0], {"is_causal": True}, r"a callable masks itself"),
    ("entropy", {"softcap": 0}, r"softcap must be positive"),
    ("entropy", {"softcap": math.inf}, r"softcap must be a finite number"),
    ("score", {"is_causal": True}, r"a score has no mask"),
    ("entropy", {"is_causal": 1}, r"is_causal must be True or False"),
    ("entropy", {"statistic": "mode"}, r"unknown statistic 'mode'"),
    ("entropy", {"statistic": 1.0}, r"a quantile must lie between 0 and 1"),
    ("entropy", {"statistic": ()}, r"at least one value"),
    ("entropy", {"statistic": 0.001}, r"100 replicates are too few for an interval of the quantile 0\.001"),
    ("entropy", {"replicates": 1}, r"at least 2 replicates"),
    ("entropy", {"replicates": 1e5}, r"replicates must be a whole number"),
    ("entropy", {"max_replicates": 10}, r"max_replicates caps what target_rse asks for"),
    ("entropy", {"target_rse": 0.0}, r"target_rse must lie between 0 and 1"),
    ("entropy", {"confidence_level": 95}, r"confidence_level must lie between 0 and 1"),
    ("entropy", {"sampler": "exact"}, r"sampler must be 'auto', 'direct' or 'conditional'"),
    ("entropy", {"sampler": "conditional", "law": "uniform"}, r"does not apply to keys that are not standard normal"),
    ("entropy", {"sampler": "conditional", "score": "cosine"}, r"a score other than the dot product"),
    ("entropy", {"sampler": "conditional", "is_causal": True}, r"a causal mask, whose rows share their keys"),
    (
        "entropy",
        {"sampler": "conditional", "softcap": 2.0, "key_correlation": 0.5},
        r"soft-cap of correlated",
    ),
    (lambda q, k, s: q[:, 0, 0], {"sampler": "conditional"}, r"does not apply to a callable quantity"),
    ("entropy", {"precision": "half"}, r"precision must be 'double' or 'single'"),
    ("entropy", {"seed": True}, r"seed must be a whole number"),
    ("entropy", {"name": " "}, r"name must be a text"),
    ("score", {"law": stats.t(1.5)}, r"mean of 'score' needs a finite moment of order 2, which the law t\(1\.5\)"),
    ("score", {"law": stats.t(3), "statistic": "variance"}, r"variance of 'score' needs a finite moment of order 4"),
    ("query_gradient_norm", {"law": ("normal", stats.cauchy())}, r"needs a finite moment of order 2"),
]


@pytest.mark.parametrize(("quantity", "changes", "sentence"), REFUSED)
def test_what_makes_no_sense_is_refused(quantity, changes, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        run_study(quantity, **{**BASE, **changes})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("quantity", "changes"),
    [
        ("score", {"n_keys": None, "scale": "1/d_k"}),
        ("score", {"law": stats.t(3), "statistic": ("mean", "median", 0.9)}),
        ("score", {"law": stats.cauchy(), "statistic": "median"}),
        ("score", {"alignment": 0.5, "law": "laplace"}),
        ("entropy", {"law": stats.cauchy()}),
        ("entropy", {"score": "cosine", "scale": 8.0}),
        ("entropy", {"score": zero}),
        ("entropy", {"scale": [lambda d_k, n_keys: 1 / n_keys, "log(n_keys)/sqrt(d_k)", 0]}),
        ("entropy", {"law": ("rademacher", stats.norm(1, 2))}),
        ("query_gradient_norm", {"is_causal": True, "softcap": 2.0}),
        ("query_gradient_norm", {"score": "cosine"}),
        ("max_weight", {"alignment": 0.3, "key_correlation": 0.2, "law": "uniform"}),
        ("dead_row", {"n_keys": 1}),
        ("jacobian_norm", {"d_k": 1, "n_keys": 1, "statistic": ("mean", "variance", "rms")}),
        ("score_gradient_norm", {"scale": 0, "precision": "single"}),
    ],
)
def test_what_makes_sense_runs(quantity, changes):
    for row in run_study(quantity, **{**BASE, **changes}).rows:
        assert math.isfinite(row.estimate)
        assert row.interval[0] <= row.estimate <= row.interval[1]


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_auto_names_its_choice(quantity):
    assert run_study(quantity, **BASE).rows[0].sampler == "conditional"
    assert run_study(quantity, **BASE, law="uniform").rows[0].sampler == "direct"


def test_repeated_settings_make_one_row():
    study = run_study("entropy", d_k=[4, 4], n_keys=(5, 5), scale=("sqrt", None, "sqrt"), replicates=10, workers=1)
    assert len(study.rows) == 1


def test_a_scale_of_zero_is_zero():
    row = run_study("entropy", **BASE, scale=0).rows[0]
    assert (row.scale, row.estimate, row.standard_error) == ("0.0", pytest.approx(math.log(5)), 0.0)
    assert row.z_score is None


# target_rse


def test_target_rse_is_reached():
    study = run_study("entropy", d_k=[4, 64], n_keys=16, target_rse=3e-3, workers=1)
    for row in study.rows:
        assert row.standard_error / row.estimate == pytest.approx(3e-3, rel=0.15)
        assert abs(row.z_score) < 5


def test_rare_events_need_a_larger_pilot():
    row = run_study("dead_row", d_k=8, n_keys=16, scale="unscaled", target_rse=0.05, workers=1).rows[0]
    assert row.estimate < 1e-3, "none or one of the first pilot's 4,096 rows is dead"
    assert row.standard_error / row.estimate == pytest.approx(0.05, rel=0.3)


def test_max_replicates_caps_it():
    study = run_study("jacobian_trace", d_k=64, n_keys=16, scale="unscaled", target_rse=1e-4, max_replicates=5000)
    assert study.rows[0].replicates == 5000
    few = run_study("entropy", d_k=4, n_keys=16, scale="sqrt", statistic="median", target_rse=1e-3, max_replicates=50)
    assert few.rows[0].replicates == 50


def test_the_pilot_is_on_a_stream_of_its_own():
    planned = run_study("entropy", d_k=4, n_keys=16, scale="sqrt", target_rse=5e-3, workers=1)
    plain = run_study("entropy", d_k=4, n_keys=16, scale="sqrt", replicates=planned.rows[0].replicates, workers=1)
    assert planned == plain


def test_a_zero_expectation_has_no_relative_error():
    with pytest.raises(ValueError, match=r"the mean of 'score' at d_k=4, .* is exactly 0"):
        run_study("score", d_k=4, target_rse=0.01)

    def noise(query, key, scale):
        return query[:, 0, 0]

    with pytest.raises(ValueError, match=r"the mean of .*noise.* cannot be told from 0 by \d+ replicates"):
        run_study(noise, d_k=1, n_keys=1, target_rse=0.01)


def test_target_rse_is_unbiased():
    # stopping when the error looks small would bias this skewed mean by about +1 % at 10 %
    def skewed(query, key, scale):
        return query[:, 0, 0] ** 4

    def relative_error(seed: int) -> tuple[float, float]:
        row = run_study(skewed, d_k=1, n_keys=1, scale="sqrt", target_rse=0.1, seed=seed, workers=1).rows[0]
        return row.estimate / 3 - 1, row.replicates

    errors, sizes = np.transpose([relative_error(seed) for seed in range(150)])
    assert abs(errors.mean()) < 5 * errors.std() / math.sqrt(len(errors))
    assert abs(np.corrcoef(errors, sizes)[0, 1]) < 5 / math.sqrt(len(errors))
