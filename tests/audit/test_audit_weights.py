"""Audit of weights: against scores measured on isotropic tokens, and against dense linear algebra."""

import json

import numpy as np
import pytest

from analysis import audit_tensors, audit_weights, expected_entropy
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
    assert "\x1b" not in repr(audit)
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
