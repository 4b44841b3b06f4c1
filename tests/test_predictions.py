"""Predictions for studies: every kind against draws of real vectors, and None where there is no exact value."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis import expected_entropy
from analysis.laws import resolve_law
from analysis.predictions import predict

CELL = {"d_k": 6, "n_keys": 5, "scale": 0.5}
REPLICATES = 20_000
# Two-sided normal tail 6e-7: with some 60 comparisons on a fixed seed, 4e-5 for a false alarm in the whole file.
Z_LIMIT = 5.0


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


def test_cosine_score_needs_one_isotropic_side():
    cell = {"d_k": 9, "n_keys": 1, "scale": 3.0, "score": "cosine"}
    assert predict("score", "variance", **cell, law=("uniform", "normal")) == pytest.approx(1.0, rel=1e-15)
    assert predict("score", "mean", **cell) == 0
    assert predict("score", "variance", **cell, law="uniform") is None


@pytest.mark.parametrize(
    "refused",
    [
        {"softcap": 5.0}, {"score": "cosine"}, {"score": np.matmul}, {"law": "uniform"}, {"law": ("uniform", "normal")},
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
