"""Predictions for studies: every kind against draws of real vectors, and None where there is no exact value."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from analysis import expected_entropy, run_study
from analysis.predict import of_cell
from analysis.vocabulary.laws import law_pair, resolve_law
from analysis.vocabulary.quantities import QUANTITIES
from analysis.vocabulary.setting import Setting

CELL = {"d_k": 6, "n_keys": 5, "scale": 0.5}
REPLICATES = 20_000
# Two-sided normal tail 6e-7: with some 60 comparisons on a fixed seed, 4e-5 for a false alarm in the whole file.
Z_LIMIT = 5.0


def predict(quantity, statistic, *, law="normal", **settings):
    laws = law if callable(law) and not hasattr(law, "dist") else law_pair(law)
    return of_cell.predict(Setting(quantity=quantity, laws=laws, **settings), statistic)


def draw(rng, law, shape):
    return resolve_law(law).sample(rng, shape)


def vectors(rng, law=("normal", "normal"), alignment=0.0, key_correlation=0.0, n_queries=1):
    query_law, key_law = (resolve_law(part) for part in law)
    q = query_law.sample(rng, (REPLICATES, n_queries, CELL["d_k"]))
    own = (key_law.sample(rng, (REPLICATES, CELL["n_keys"], CELL["d_k"])) - key_law.mean) / key_law.variance**0.5
    shared = rng.standard_normal((REPLICATES, 1, CELL["d_k"])) * math.sqrt(max(key_correlation - alignment**2, 0))
    along = alignment * (q[:, :1] - query_law.mean) / query_law.variance**0.5
    spread = math.sqrt(1 - max(key_correlation, alignment**2))
    return q, key_law.mean + key_law.variance**0.5 * (along + shared + spread * own)


def softmax(scores):
    w = np.exp(scores - scores.max(-1, keepdims=True))
    return w / w.sum(-1, keepdims=True)


def quantities(rng, q, k, mask=None):
    """Values per replicate, the mean over rows where there are several queries."""
    scores = CELL["scale"] * q @ k.swapaxes(-1, -2)
    p = softmax(scores if mask is None else np.where(mask, scores, -np.inf))
    jacobian = p[..., :, None] * np.eye(p.shape[-1]) - p[..., :, None] * p[..., None, :]
    g = rng.standard_normal((*p.shape, 1))
    gradient = (jacobian @ g)[..., 0]
    entropy = -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=-1)
    values = {
        ("entropy", "mean"): entropy,
        ("jacobian_trace", "mean"): 1 - np.sum(p**2, axis=-1),
        ("max_weight", "mean"): p.max(-1),
        ("jacobian_norm", "rms"): np.sum(jacobian**2, axis=(-1, -2)),
        ("score_gradient_norm", "rms"): np.sum(gradient**2, axis=-1),
        ("query_gradient_norm", "rms"): np.sum((CELL["scale"] * gradient @ k) ** 2, axis=-1),
    }
    return {key: value.mean(-1) for key, value in values.items()}


def assert_agree(prediction, values, squared=False):
    z = (values.mean() - (prediction**2 if squared else prediction)) / (values.std() / math.sqrt(values.size))
    assert abs(z) < Z_LIMIT, (prediction, values.mean(), z)


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"key_correlation": 0.4},
        {"alignment": 0.5, "key_correlation": 0.25},
        {"law": ("rademacher", "normal")},
        {"law": (stats.norm(0, 1.5), stats.norm(2, 0.7))},
    ],
    ids=["plain", "alike keys", "aligned", "rademacher query", "means and widths"],
)
def test_softmax_quantities_meet_draws_of_vectors(setting):
    rng = np.random.default_rng(20240601)
    q, k = vectors(rng, **setting)
    for (quantity, statistic), values in quantities(rng, q, k).items():
        prediction = predict(quantity, statistic, **CELL, **setting)
        if setting.get("law", ("", ""))[0] == "rademacher" and quantity == "query_gradient_norm":
            assert prediction is None
        else:
            assert_agree(prediction, values, squared=statistic == "rms")


def test_causal_rows_have_one_to_n_keys():
    rng = np.random.default_rng(7)
    q, k = vectors(rng, n_queries=CELL["n_keys"])
    for (quantity, statistic), values in quantities(rng, q, k, mask=np.tri(CELL["n_keys"], dtype=bool)).items():
        prediction = predict(quantity, statistic, **CELL, is_causal=True)
        if statistic == "rms":
            assert prediction is None  # a replicate is a mean of norms over rows, whose square has no closed form
        else:
            assert_agree(prediction, values)
    rows = expected_entropy(np.arange(1, 6), d_k=6, scale=0.5)
    assert predict("entropy", "mean", **CELL, is_causal=True) == pytest.approx(rows.mean(), rel=1e-15)


@pytest.mark.parametrize("alignment", [0.0, -0.6, 1.0])
@pytest.mark.parametrize("law", [("normal", "normal"), (stats.gamma(2), stats.norm(1, 2)), ("exponential", "uniform")])
def test_score_moments_meet_draws(law, alignment):
    rng = np.random.default_rng(3)
    q, k = vectors(rng, law=law, alignment=alignment)
    scores = -0.5 * np.sum(q[:, 0] * k[:, 0], axis=-1)
    mean, variance, rms = (
        predict("score", statistic, d_k=6, n_keys=1, scale=-0.5, law=law, alignment=alignment)
        for statistic in ("mean", "variance", "rms")
    )
    assert_agree(mean, scores)
    assert_agree(variance, (scores - mean) ** 2)
    assert rms == pytest.approx(math.sqrt(mean**2 + variance), rel=1e-14)


def test_cosine_score_needs_one_symmetric_side():
    cell = {"d_k": 9, "n_keys": 1, "scale": 3.0, "score": "cosine"}
    for law in (
        ("uniform", "normal"),
        "uniform",
        "student_t3",
        ("exponential", "laplace"),
        (stats.norm(), "exponential"),
    ):
        assert predict("score", "variance", **cell, law=law) == pytest.approx(1.0, rel=1e-15)
        assert predict("score", "mean", **cell, law=law) == 0
        assert predict("score", "mean", **cell, law=law, alignment=0.5) is None
    for law in ("exponential", stats.norm(1), (stats.gamma(2), "exponential")):
        assert predict("score", "variance", **cell, law=law) is None
        assert predict("score", "mean", **cell, law=law) is None


def all_vectors(law, d_k):
    """Every value of a vector of iid components, with its probability; the named law is Rademacher."""
    values = {-1: 0.5, 1: 0.5} if law == "rademacher" else {k: float(law.pmf(k)) for k in range(-1, 4) if law.pmf(k)}
    for vector in itertools.product(values, repeat=d_k):
        yield np.array(vector, float), math.prod(values[component] for component in vector)


def all_scores(law, d_k, score):
    for (q, p_q), (k, p_k) in itertools.product(all_vectors(law[0], d_k), all_vectors(law[1], d_k)):
        lengths = np.linalg.norm(q) * np.linalg.norm(k)
        yield q @ k / (1 if score == "dot" else lengths or 1), p_q * p_k


@pytest.mark.parametrize("d_k", [1, 2, 3])
@pytest.mark.parametrize("key", ["rademacher", stats.randint(0, 3), stats.bernoulli(0.3), stats.randint(1, 3)])
def test_cosine_moments_meet_every_pair_of_vectors(key, d_k):
    scores, weights = np.array(list(all_scores(("rademacher", key), d_k, "cosine"))).T
    cell = {"d_k": d_k, "n_keys": 1, "scale": 1.0, "score": "cosine", "law": ("rademacher", key)}
    assert predict("score", "mean", **cell) == pytest.approx(weights @ scores, abs=1e-15)
    assert predict("score", "variance", **cell) == pytest.approx(weights @ scores**2, rel=1e-13)
    assert predict("score", "rms", **cell) == pytest.approx(math.sqrt(weights @ scores**2), rel=1e-13)


@pytest.mark.parametrize("score", ["dot", "cosine"])
@pytest.mark.parametrize("d_k", [1, 2, 3, 4])
def test_the_median_of_signs_is_predicted_where_it_is_unique(d_k, score):
    scores, weights = np.array(list(all_scores(("rademacher", "rademacher"), d_k, score))).T
    unique = weights[scores < -1e-12].sum() < 0.5 and weights[scores > 1e-12].sum() < 0.5
    cell = {"d_k": d_k, "n_keys": 1, "scale": -2.0, "score": score, "law": "rademacher"}
    assert predict("score", "median", **cell) == (0.0 if unique else None)


@pytest.mark.parametrize("score", ["dot", "cosine"])
@pytest.mark.parametrize("law", ["uniform", "student_t3", ("rademacher", "laplace"), ("uniform", stats.gamma(2))])
def test_the_median_of_a_symmetric_score_meets_draws(law, score):
    rng = np.random.default_rng(23)
    query, key = law if isinstance(law, tuple) else (law, law)
    q, k = (draw(rng, part, (100_000, 3)) for part in (query, key))
    scores = np.sum(q * k, axis=1) / (1 if score == "dot" else np.linalg.norm(q, axis=1) * np.linalg.norm(k, axis=1))
    cell = {"d_k": 3, "n_keys": 1, "scale": 1.0, "score": score, "law": law}
    for level in ("median", 0.5):
        assert predict("score", level, **cell) == 0
    assert predict("score", "median", **cell, alignment=0.5) is None
    below, above = (np.count_nonzero(scores < edge) for edge in (0.0, 0.01))
    assert abs(below - 5e4) < Z_LIMIT * math.sqrt(1e5) / 2
    assert above > below  # mass next to 0: the median is unique


def test_no_median_where_it_is_not_unique():
    assert predict("score", "median", d_k=1, n_keys=1, scale=1.0, law="normal", score="cosine") is None
    assert predict("score", "median", d_k=3, n_keys=1, scale=1.0, law=("rademacher", stats.gamma(2))) is None
    assert predict("score", "median", d_k=3, n_keys=1, scale=1.0, law=("exponential", "exponential")) is None


def test_a_scale_of_zero_makes_every_score_zero():
    for statistic in ("mean", "variance", "rms", "median", 0.9):
        assert predict("score", statistic, d_k=3, n_keys=1, scale=0.0, law="exponential", score="cosine") == 0


@pytest.mark.parametrize(
    "quantity", [q.name for q in QUANTITIES.values() if q.is_constant_for_one_key and q.least_keys == 1]
)
@pytest.mark.parametrize(
    "setting",
    [{}, {"law": "exponential", "score": "cosine"}, {"softcap": 2.0, "sampler": "direct"}, {"is_causal": True},
     {"law": lambda rng, d, n: (rng.standard_normal(d), rng.standard_normal((n, d)))}],
    ids=["conditional", "cosine", "softcap", "causal", "callable"],
)  # fmt: skip
def test_one_key_is_a_constant(quantity, setting):
    statistics = ["mean", "variance", "rms", "median"]
    study = run_study(quantity, d_k=3, n_keys=1, scale=1.0, statistic=statistics, replicates=20, workers=1, **setting)
    assert [row.prediction for row in study.rows] == [row.estimate for row in study.rows]
    assert [row.prediction for row in study.rows] == [study.rows[0].prediction, 0.0, *[study.rows[0].prediction] * 2]


@pytest.mark.parametrize(
    ("quantity", "setting"),
    [
        ("entropy", {"n_keys": 1}),
        ("query_gradient_norm", {"n_keys": [8, 1], "statistic": "mean"}),
        ("effective_keys", {"n_keys": 1, "statistic": "variance"}),
        ("score", {"law": "uniform", "statistic": "median"}),
        ("score", {"law": "uniform", "score": "cosine"}),
        ("score", {"law": "rademacher", "scale": [1.0, 0.0], "statistic": "variance"}),
    ],
)
def test_an_expectation_of_zero_is_refused_before_any_pilot(quantity, setting, monkeypatch):
    def never(*arguments):
        raise AssertionError("a pilot has begun")

    monkeypatch.setattr("analysis.measure.pilot.draw", never)
    with pytest.raises(ValueError, match=r"target_rse: the \w+ of .* is exactly 0"):
        run_study(quantity, d_k=4, target_rse=0.01, workers=1, **{"scale": 1.0, **setting})


@pytest.mark.parametrize(
    "refused",
    [
        {"softcap": 5.0, "law": "uniform"}, {"score": "cosine", "law": "uniform"},
        {"score": np.matmul}, {"law": "uniform"}, {"law": ("uniform", "normal")},
        {"law": max}, {"law": (stats.norm(1), "normal")},
    ],
)  # fmt: skip
def test_no_prediction_where_none_is_exact(refused):
    assert predict("entropy", "mean", **CELL, **refused) is None


@pytest.mark.parametrize(
    ("quantity", "statistic"),
    [
        ("jacobian_norm", "mean"), ("entropy", "median"), ("entropy", 0.9), ("dead_row", "mean"), (len, "mean"),
        ("effective_keys", "mean"),
    ],
)  # fmt: skip
def test_no_prediction_for_a_statistic_without_one(quantity, statistic):
    assert predict(quantity, statistic, **CELL) is None
    assert predict("score", "variance", **CELL, law="student_t3", alignment=0.5) is None


def test_quantiles_of_a_gaussian_score():
    rng = np.random.default_rng(11)
    scores = np.sort(0.5 * np.sum(rng.standard_normal((2, 100_000, 6)).prod(axis=0), axis=-1))
    for level in (0.05, 0.5, 0.99):
        quantile = predict("score", level, d_k=6, n_keys=1, scale=-0.5)
        # The number of draws below a quantile is binomial.
        z = (np.searchsorted(scores, quantile) - 1e5 * level) / math.sqrt(1e5 * level * (1 - level))
        assert abs(z) < Z_LIMIT
    assert predict("score", "median", d_k=6, n_keys=1, scale=0.5) == 0
    assert predict("score", 0.9, d_k=6, n_keys=1, scale=0.0) == 0
    wide = predict("score", 0.9, d_k=6, n_keys=1, scale=0.5, law=(stats.norm(0, 2), "normal"))
    assert wide == pytest.approx(2 * predict("score", 0.9, d_k=6, n_keys=1, scale=0.5), rel=1e-13)
    for refused in ({"law": "uniform"}, {"alignment": 0.5}, {"law": stats.norm(1)}, {"score": "cosine"}):
        assert predict("score", 0.9, d_k=6, n_keys=1, scale=0.5, **refused) is None
