"""Audit of weights: against scores measured on isotropic tokens, and against dense linear algebra."""

import json

import numpy as np
import pytest
from scipy.special import erf

from analysis import audit_tensors, audit_trends, audit_weights, compare_audits, expected_entropy
from analysis.audit.weights.normalised import unit_moments
from attnsym import split_heads

D_MODEL, D_K = 64, 8


def gaussian(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def weights(seed, heads, size=1.0):
    return size * gaussian(seed, D_MODEL, heads * D_K) / np.sqrt(D_MODEL)


def isotropic(seed, n):
    """Tokens of length √d_model without a preferred direction: n of them whose second moments are exact."""
    x = gaussian(seed, n, D_MODEL)
    return x / np.linalg.norm(x, axis=1, keepdims=True) * np.sqrt(D_MODEL)


GAIN = 1 + 0.5 * np.abs(gaussian(90, D_MODEL))
CASES = {
    "plain": {},
    "grouped": {"num_key_value_heads": 2},
    "gain": {"norm_gain": GAIN},
    "biases": {"bias_query": gaussian(91, 4 * D_K), "bias_key": gaussian(92, 4 * D_K)},
    "scale": {"scale": "1/d_k"},
    "large": {"size": 3.0},
}


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_dense_matrices_and_of_measured_scores(case):
    options = dict(CASES[case])
    size, groups = options.pop("size", 1.0), options.get("num_key_value_heads", 4)
    w_q, w_k = weights(1, 4, size), weights(2, groups, size)
    audit = audit_weights(w_q, w_k, num_heads=4, **options)
    gain = options.get("norm_gain", np.ones(D_MODEL))
    biases = options.get("bias_query", np.zeros(4 * D_K)), options.get("bias_key", np.zeros(groups * D_K))
    scale = audit.heads[0].scale
    assert scale == pytest.approx(1 / D_K if case == "scale" else D_K**-0.5)
    x, y = isotropic(3, 3000) * gain, isotropic(4, 3000) * gain
    measured = audit_tensors(
        split_heads(x @ w_q + biases[0], 4)[None],
        split_heads(y @ w_k + biases[1], groups)[None],
        scale=options.get("scale"),
        enable_gqa=True,
    )
    for head, seen in zip(audit.heads, measured.heads, strict=True):
        own, of_key = (slice(h * D_K, (h + 1) * D_K) for h in (head.head, head.key_head))
        a, b = gain[:, None] * w_q[:, own], gain[:, None] * w_k[:, of_key]
        m = scale * a @ b.T
        shared = scale * b @ biases[0][own]
        assert head.score_variance == pytest.approx((m**2).sum() + (shared**2).sum(), rel=1e-9)
        singular = np.linalg.svd(m, compute_uv=False)
        assert head.largest_singular_value == pytest.approx(singular[0] / scale, rel=1e-9)
        assert head.stable_rank == pytest.approx((singular**2).sum() / singular[0] ** 2)
        assert head.top_direction_share == pytest.approx(1 / head.stable_rank)
        assert head.symmetric_share == pytest.approx((((m + m.T) / 2) ** 2).sum() / (m**2).sum())
        assert head.self_score == pytest.approx(np.trace(m))
        # 3,000 tokens a side: second moments in 64 dimensions to about √(2/3000), a variance of eight components to 5 %
        assert seen.within_row_variance == pytest.approx(head.score_variance, rel=0.1)
        assert seen.largest_score <= head.score_bound
        exact = expected_entropy(1024, sigma=np.sqrt(head.score_variance)) / np.log(1024)
        assert head.entropy_fraction == pytest.approx(exact, rel=1e-12)
        assert head.entropy_bound_fraction <= head.entropy_fraction
        factors = [getattr(head, name) for name in dir(head) if name.startswith("factor_")]
        assert np.prod(factors) == pytest.approx(head.score_variance)


def layer_normalised(x):
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.linalg.norm(x, axis=-1, keepdims=True) * np.sqrt(x.shape[-1])


def rms_normalised(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True) * np.sqrt(x.shape[-1])


SKEWED = np.geomspace(0.1, 5, 4 * D_K)
NORMS = {"rms": rms_normalised, "layer": layer_normalised, "l2": lambda x: rms_normalised(x) / np.sqrt(D_K)}


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("biased", [False, True])
def test_normalised_queries_and_keys_against_measured_scores(kind, biased):
    """Eight batch items are the draws of the standard error: five of it, by Student's t with 7 degrees 1 in 600."""
    w_q, w_k = weights(21, 4) * SKEWED, weights(22, 4) * SKEWED[::-1]
    biases = [gaussian(s, 4 * D_K) * biased for s in (23, 24)]
    gains = [1 + gaussian(s, D_K) / 3 for s in (25, 26)]
    audit = audit_weights(
        w_q, w_k, num_heads=4, qk_norm=kind, query_gain=gains[0], key_gain=gains[1], bias_query=biases[0],
        bias_key=biases[1],
    )  # fmt: skip
    q, k = (
        np.stack([
            NORMS[kind](split_heads(isotropic(100 * side + item, 400) @ w + bias, 4)) * gain for item in range(8)
        ])
        for side, (w, bias, gain) in enumerate(zip((w_q, w_k), biases, gains, strict=True), 1)
    )  # fmt: skip
    for head, seen in zip(audit.heads, audit_tensors(q, k).heads, strict=True):
        shrinkage = 1 - 1 / 400  # a population variance of 400 keys
        error = abs(seen.within_row_variance - shrinkage * head.score_variance)
        assert error < 5 * seen.within_row_variance_standard_error + 0.01 * head.score_variance * biased
        assert seen.largest_score <= head.score_bound
        assert head.normalised
        factors = [getattr(head, name) for name in dir(head) if name.startswith("factor_")]
        assert np.prod(factors) == pytest.approx(head.score_variance)


def test_moments_of_a_direction_where_they_are_known():
    for d in (1, 2, 7, 128):
        mean, second = unit_moments(np.zeros(d), np.eye(d) * 3)
        assert np.allclose(second, np.eye(d) / d, atol=1e-12)
        assert np.allclose(mean, 0)
    _, second = unit_moments(np.zeros(2), np.diag([4.0, 1.0]))
    assert np.allclose(np.diag(second), [2 / 3, 1 / 3], atol=1e-12)  # σ₁/(σ₁ + σ₂) in the plane
    mean, second = unit_moments(np.array([2.0]), np.array([[1.0]]))
    assert mean[0] == pytest.approx(erf(2 / np.sqrt(2)), abs=1e-11)
    assert second[0, 0] == pytest.approx(1, abs=1e-12)
    assert not unit_moments(np.zeros(3), np.zeros((3, 3)))[1].any()


def test_a_layer_norm_takes_the_mean_off_and_adds_its_bias():
    w_q, w_k = weights(31, 2) + 3 / np.sqrt(D_MODEL), weights(32, 2) - 2 / np.sqrt(D_MODEL)
    gain, bias = GAIN, gaussian(33, D_MODEL) / 2
    audit = audit_weights(w_q, w_k, num_heads=2, norm_gain=gain, norm_bias=bias)
    q, k = (
        np.stack([
            split_heads((layer_normalised(isotropic(100 * side + item, 400)) * gain + bias) @ w, 2) for item in range(8)
        ])
        for side, w in enumerate((w_q, w_k), 3)
    )  # fmt: skip
    for head, seen in zip(audit.heads, audit_tensors(q, k).heads, strict=True):
        error = abs(seen.within_row_variance - (1 - 1 / 400) * head.score_variance)
        assert error < 5 * seen.within_row_variance_standard_error
        assert seen.largest_score <= head.score_bound
    plain = audit_weights(w_q, w_k, num_heads=2, norm_gain=gain)
    assert plain.heads[0].score_variance != pytest.approx(audit.heads[0].score_variance, rel=0.05)


def test_rotary_embedding_names_the_one_channel_of_the_pair_that_grew():
    w_q, w_k = weights(5, 1), weights(6, 1)
    w_k[:, 2] *= 30
    head = audit_weights(w_q, w_k, num_heads=1, rotary="half").heads[0]
    assert head.largest_channel == 2
    without = audit_weights(w_q * (np.arange(D_K) != 2), w_k * (np.arange(D_K) != 2), num_heads=1, rotary="half")
    left = without.heads[0].score_variance / head.score_variance
    assert head.largest_channel_share == pytest.approx(1 - left)
    assert head.cause.startswith("one channel: 2 carries")


@pytest.mark.parametrize("kind", ["half", "interleaved"])
def test_rotary_embedding_is_averaged_over_positions(kind):
    w_q, w_k = weights(5, 1), weights(6, 1)
    bias_query, bias_key = gaussian(7, D_K), gaussian(8, D_K)
    head = audit_weights(
        w_q, w_k, num_heads=1, rotary=kind, bias_query=bias_query, bias_key=bias_key, scale="unscaled"
    ).heads[0]
    a, b = w_q.T @ w_q + np.outer(bias_query, bias_query), w_k.T @ w_k + np.outer(bias_key, bias_key)
    rng, variances = np.random.default_rng(9), []
    for _ in range(1000):
        rotation = np.zeros((D_K, D_K))
        for pair, angle in enumerate(rng.uniform(0, 2 * np.pi, D_K // 2)):
            i, j = (pair, pair + D_K // 2) if kind == "half" else (2 * pair, 2 * pair + 1)
            rotation[np.ix_([i, j], [i, j])] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        variances.append(np.trace(a @ rotation @ b @ rotation.T))
        assert np.linalg.svd(w_q @ rotation @ w_k.T, compute_uv=False)[0] * D_MODEL <= head.score_bound
    error = np.std(variances) / np.sqrt(len(variances))
    assert abs(np.mean(variances) - head.score_variance) < 5 * error  # false alarm below 1e-6


@pytest.mark.parametrize(
    ("make", "verdict", "cause"),
    [
        (lambda q, k: (q, k), "ordinary", None),
        (lambda q, k: (6 * q, 6 * k), "saturated", "large norms"),
        (lambda q, k: (0.1 * q, 0.1 * k), "near uniform", "small norms"),
        (lambda q, k: (q * np.r_[np.ones(5), 9.0, 1, 1], k * np.r_[np.ones(5), 9.0, 1, 1]), None, "one channel: 5"),
        (lambda q, k: (2 * q, 2 * (0.95 * q + 0.05 * k)), None, "large norms"),
        (lambda q, k: (q @ ONE, k @ ONE), None, "alignment of q and k"),
    ],
)
def test_the_verdict_and_its_cause(make, verdict, cause):
    w_q, w_k = make(weights(10, 1, 0.98), weights(11, 1, 0.98))
    head = audit_weights(w_q, w_k, num_heads=1).heads[0]
    assert verdict in (None, head.verdict)
    assert (head.cause is None) if cause is None else head.cause.startswith(cause)


ONE = np.full((8, 8), 0.35) * np.outer(*[np.tile([1, -1], 4)] * 2) + 0.1 * np.eye(8)


def test_a_query_bias_is_a_shared_mean_and_a_key_bias_is_not_seen():
    w_q, w_k = weights(12, 2), weights(13, 2)
    plain = audit_weights(w_q, w_k, num_heads=2)
    shifted = audit_weights(w_q, w_k, num_heads=2, bias_key=9 * gaussian(14, 16))
    assert [h.score_variance for h in shifted.heads] == [h.score_variance for h in plain.heads]
    biased = audit_weights(w_q, w_k, num_heads=2, bias_query=4 * gaussian(15, 16))
    assert all(head.cause.startswith("shared mean") for head in biased.heads)


def test_layers_names_json_and_words(tmp_path):
    layers = {"a\x1b[31m": weights(16, 2), "b<img>": weights(17, 2, 5.0)}
    audit = audit_weights(layers, layers, num_heads=2)
    assert [(h.layer, h.head) for h in audit.heads] == [(name, head) for name in layers for head in (0, 1)]
    audit.to_json(tmp_path / "w.json")
    assert json.loads((tmp_path / "w.json").read_text())["heads"] == audit.to_records()
    assert "\x1b" not in str(audit)
    assert "<img>" not in audit._repr_html_()
    assert audit.null in audit.summary()
    as_list = audit_weights(list(layers.values()), list(layers.values()), num_heads=2, names=list(layers))
    assert as_list.to_records() == audit.to_records()


def test_weights_that_are_not_finite_are_told():
    w_q, w_k = weights(18, 2), weights(19, 2)
    w_q[3, 1] = np.nan
    with np.errstate(all="raise"):
        audit = audit_weights(w_q, w_k, num_heads=2)
        assert audit_weights(1e200 * w_k, w_k, num_heads=2).heads[0].verdict == "not finite"
    assert [head.verdict for head in audit.heads] == ["not finite", "ordinary"]
    json.loads(json.dumps(audit.to_dict(), allow_nan=False))


BAD = {
    "heads": ({"num_heads": 3}, "3 heads·d_k"),
    "no heads": ({"num_heads": 0}, "num_heads must be a whole number"),
    "groups": ({"num_key_value_heads": 3}, "must be a multiple"),
    "width": ({"w_key": np.ones((D_MODEL, 8))}, "must have shape"),
    "axes": ({"w_query": np.ones((2, 3, 4))}, "must be .d_model, 4 heads"),
    "bias": ({"bias_query": np.ones(3)}, r"bias_query of layer0 must have shape \(32,\)"),
    "gain": ({"norm_gain": np.ones(3)}, r"norm_gain of layer0 must have shape \(64,\)"),
    "rotary": ({"rotary": "full"}, "rotary must be one of"),
    "names": ({"names": ["a", "b"]}, "count the same layers"),
    "kinds": ({"w_key": [np.ones((D_MODEL, 32))]}, "both be an array"),
    "n_keys": ({"n_keys": 1}, "n_keys must be a whole number"),
    "scale": ({"scale": "none"}, "ambiguous"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case):
    change, message = BAD[case]
    arguments = {"w_query": weights(20, 4), "w_key": weights(21, 4), "num_heads": 4} | change
    with pytest.raises(ValueError, match=message) as caught:
        audit_weights(**arguments)
    assert "\n" not in str(caught.value)


def test_audits_trends_and_comparisons_have_frames_alike():
    pandas = pytest.importorskip("pandas")
    weights_audit = audit_weights([weights(1, 2), weights(1, 2)], [weights(2, 2), np.nan * weights(2, 2)], num_heads=2)
    tensors = audit_tensors(gaussian(3, 1, 2, 9, 8), gaussian(4, 1, 2, 9, 8))
    for audit in (weights_audit, tensors, compare_audits(tensors, tensors)):
        frame = audit.to_dataframe()
        assert list(frame.columns) == list(audit.to_records()[0])
        assert list(zip(frame["layer"], frame["head"], strict=True)) == [(h.layer, h.head) for h in audit.heads]
    frame = weights_audit.to_dataframe()
    assert frame["score_variance"].dtype == np.float64
    assert frame["score_variance"].isna().tolist() == [False, False, True, True]
    trends = audit_trends({0: weights_audit, 10: weights_audit}).to_dataframe()
    assert isinstance(trends, pandas.DataFrame)
    assert trends["step"].tolist() == [0, 10] * 4
    assert trends["variance"].tolist()[:2] == [weights_audit.heads[0].score_variance] * 2
