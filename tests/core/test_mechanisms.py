"""Sinks, scales for each query, sigmoid and ReLU: against the loop, tiles, central differences, limits and edges."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from attention_loop import loop_over_heads, normal, random_mask

import attnsym
from attnsym import attention_scores, attention_weights, scaled_dot_product_attention, scaled_dot_product_attention_vjp
from attnsym._blocks import as_problem
from attnsym._plain import output_in_blocks, plain_output
from attnsym._scores import read_inputs
from attnsym._settings import read_settings
from attnsym.tiling import Tiles, tiled_attention

INF, NAN = math.inf, math.nan
EPS64 = 2.0**-52
SINKS = {"zero": 0.0, "none": -INF, "per head": [0.5, -2.0, 3.0, -INF]}
MECHANISMS = [
    *({"sink": sink} for sink in SINKS.values()),
    {"normalizer": "sigmoid"},
    {"normalizer": "sigmoid", "normalizer_bias": [0.3, -1.0, 0.0, 2.0]},
    {"normalizer": "relu"},
    {"normalizer": "relu", "normalizer_bias": 0.7},
    {"scale": "queries"},
    {"scale": "heads and queries", "sink": 1.0},
]


def with_scale(options, rng, heads, n_queries):
    shape = {"queries": (n_queries,), "heads and queries": (heads, n_queries)}.get(options.get("scale"))
    return options if shape is None else options | {"scale": rng.standard_normal(shape)}


def problem(seed, n_queries=5, n_keys=7, heads=4, kv_heads=2, dtype=np.float64):
    rng = np.random.default_rng(seed)
    shapes = (heads, n_queries, 3), (kv_heads, n_keys, 3), (kv_heads, n_keys, 2)
    return rng, *(normal(rng, 2, *shape, dtype=dtype) for shape in shapes)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize(
    ("mask_kind", "is_causal", "window", "softcap", "score"),
    [
        (None, False, None, None, "dot"),
        ("bool", False, None, 1.5, "dot"),
        ("float", True, None, None, "cosine"),
        ("bool", True, (1, 0), None, "dot"),
    ],
)
def test_every_mechanism_equals_the_loop(mechanism, mask_kind, is_causal, window, softcap, score):
    rng, q, k, v = problem(1)
    options = with_scale(mechanism, rng, 4, 5) | {"is_causal": is_causal, "window": window}
    options |= {"softcap": softcap, "score": score}
    mask = random_mask(rng, mask_kind, (2, 1, 5, 7))
    want = loop_over_heads(q, k, v, mask, **options)
    got = scaled_dot_product_attention(q, k, v, mask, enable_gqa=True, **options)
    np.testing.assert_allclose(got, want, rtol=0, atol=64 * EPS64)
    turned = scaled_dot_product_attention(
        *(x.swapaxes(-1, -2) for x in (q, k, v)), None if mask is None else mask.swapaxes(-1, -2),
        enable_gqa=True, convention="columns", **options,
    )  # fmt: skip
    np.testing.assert_allclose(turned.swapaxes(-1, -2), want, rtol=0, atol=64 * EPS64)
    weights = attention_weights(q, k, mask, enable_gqa=True, **options)
    np.testing.assert_allclose(weights @ np.repeat(v, 2, axis=1), want, rtol=0, atol=64 * EPS64)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("tiles", [Tiles(1, 1, 1), Tiles(3, 4, 5), Tiles(8, 100, 100)])
@pytest.mark.parametrize("size", [1.0, 20.0])  # without and with a running maximum
def test_tiles_equal_the_whole(mechanism, tiles, size):
    rng, q, k, v = problem(2, n_queries=17, n_keys=23, dtype=np.float32)
    options = with_scale(mechanism, rng, 4, 17)
    for mask_kind, is_causal, softcap in ((None, False, None), ("float", True, None), ("bool", True, 9.0)):
        mask = random_mask(rng, mask_kind, (17, 23))
        settings = read_settings(enable_gqa=True, is_causal=is_causal, softcap=softcap, **options)
        x = read_inputs(np.float32(size) * q, k, v, settings, mask)
        with np.errstate(all="ignore"):
            whole = plain_output(x, settings)
            in_tiles = tiled_attention(as_problem(x, settings), unexpected, tiles=tiles, workers=2)
        # a score up to 200 rounds by 200 eps, and its weight of at most 200 by as much; then the sum over 23 keys
        largest = np.abs(v).max() * (200 if settings.normalizer == "relu" else 23)
        np.testing.assert_allclose(in_tiles, whole, rtol=0, atol=800 * 2.0**-23 * largest)


def unexpected(heads, queries):
    raise AssertionError("a tile of finite numbers fell back to the plain path")


@pytest.mark.parametrize("mechanism", [{"sink": [0.0, 5.0, -INF]}, {"normalizer": "sigmoid"}, {"normalizer": "relu"}])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_both_sides_of_the_threshold_agree_in_every_type(mechanism, dtype, monkeypatch):
    rng = np.random.default_rng(4)
    q, k, v, g = (rng.standard_normal((2, 3, 180, 8)).astype(dtype) for _ in range(4))
    options = mechanism | {"is_causal": True, "scale": np.linspace(0, 1, 180)}
    large = [scaled_dot_product_attention(q, k, v, **options), *scaled_dot_product_attention_vjp(q, k, v, g, **options)]
    monkeypatch.setattr("attnsym._settings._LEAN_SCORES", 1 << 40)
    small = [scaled_dot_product_attention(q, k, v, **options), *scaled_dot_product_attention_vjp(q, k, v, g, **options)]
    eps = {2: 2.0**-7 if dtype is not np.float16 else 2.0**-10, 4: 2.0**-20, 8: 2.0**-48}[np.dtype(dtype).itemsize]
    for left, right in zip(large, small, strict=True):
        assert left.dtype == right.dtype == dtype
        largest = max(1.0, float(np.abs(right).max()))
        np.testing.assert_allclose(left.astype(float), right.astype(float), rtol=0, atol=8 * eps * largest)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize(
    ("mask_kind", "is_causal", "softcap", "score"),
    [(None, False, None, "dot"), ("bool", True, None, "cosine"), ("float", False, 1.5, "dot")],
)
def test_gradients_equal_central_differences(mechanism, mask_kind, is_causal, softcap, score):
    rng, q, k, v = problem(3, n_queries=3, n_keys=4)
    options = with_scale(mechanism, rng, 4, 3) | {"is_causal": is_causal, "softcap": softcap, "score": score}
    options |= {"attn_mask": random_mask(rng, mask_kind, (2, 1, 3, 4)), "enable_gqa": True}
    g = rng.standard_normal((2, 4, 3, 2))
    gradients = scaled_dot_product_attention_vjp(q, k, v, g, **options)
    step = 1e-5
    for i, (x, gradient) in enumerate(zip((q, k, v), gradients, strict=True)):
        direction = rng.standard_normal(x.shape)

        def loss(t, i=i, direction=direction):
            moved = [a + t * direction if j == i else a for j, a in enumerate((q, k, v))]
            return np.sum(g * scaled_dot_product_attention(*moved, **options))

        slope = (loss(step) - loss(-step)) / (2 * step)
        # rounding of a sum of 48 terms over the step, and step² times a third derivative of order 100
        error = 48 * EPS64 * 20 / step + step**2 * 100
        assert np.sum(gradient * direction) == pytest.approx(slope, rel=0, abs=error)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("shape", [(5, 7), (200, 190)])
def test_gradients_equal_those_of_autograd(mechanism, shape):
    torch = pytest.importorskip("torch")
    n_queries, n_keys = shape
    rng, q, k, v = problem(5, n_queries, n_keys)
    options = with_scale(mechanism, rng, 4, n_queries)
    g = rng.standard_normal((2, 4, n_queries, 2))
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    tq, tk, tv = (t.repeat_interleave(4 // t.shape[1], dim=1) for t in tensors)
    scale = torch.as_tensor(options.get("scale", 1 / math.sqrt(3)), dtype=torch.float64)
    scores = tq @ tk.transpose(-1, -2) * (scale[..., None] if scale.ndim else scale)
    scores = scores.masked_fill(~torch.ones(n_queries, n_keys, dtype=torch.bool).tril(), -INF)
    offset = torch.as_tensor(options.get("sink", options.get("normalizer_bias", 0.0)), dtype=torch.float64)
    offset = offset.expand(4)[:, None, None]
    normalizer = options.get("normalizer", "softmax")
    if normalizer == "softmax":
        sink = offset.expand(2, 4, n_queries, 1) if "sink" in options else torch.full((2, 4, n_queries, 1), -INF)
        weights = torch.softmax(torch.cat([scores, sink.to(scores.dtype)], dim=-1), dim=-1)[..., :-1]
    elif normalizer == "sigmoid":
        weights = torch.sigmoid(scores + (offset if "normalizer_bias" in options else -math.log(n_keys)))
    else:
        weights = torch.relu(scores + offset) / n_keys
    (weights @ tv * torch.tensor(g)).sum().backward()
    gradients = scaled_dot_product_attention_vjp(q, k, v, g, is_causal=True, enable_gqa=True, **options)
    for got, want in zip(gradients, tensors, strict=True):
        np.testing.assert_allclose(got, want.grad.numpy(), rtol=0, atol=1e-11)  # sums of 1,600 products of order 10


# --- limits and edges -----------------------------------------------------------------------------------------------


def test_by_hand():
    query, key = [[1.0]], [[0.0], [math.log(3)]]
    np.testing.assert_allclose(attention_weights(query, key, scale=1, sink=0.0), [[0.2, 0.6]], rtol=4 * EPS64)
    np.testing.assert_allclose(
        attention_weights(query, key, scale=1, normalizer="sigmoid", normalizer_bias=0), [[0.5, 0.75]], rtol=4 * EPS64
    )
    np.testing.assert_allclose(
        attention_weights(query, key, scale=1, normalizer="sigmoid"), [[1 / 3, 0.6]], rtol=4 * EPS64
    )
    np.testing.assert_allclose(
        attention_weights(query, key, scale=1, normalizer="relu"), [[0, math.log(3) / 2]], rtol=4 * EPS64
    )


def test_no_sink_is_the_plain_softmax_to_the_bit():
    _, q, k, _ = problem(6)
    plain = attention_weights(q, k, enable_gqa=True)
    np.testing.assert_allclose(attention_weights(q, k, enable_gqa=True, sink=-INF), plain, rtol=0, atol=4 * EPS64)
    np.testing.assert_array_equal(attention_weights(q, k, enable_gqa=True, sink=None), plain)
    same = np.full((4, 5), 1 / math.sqrt(3))
    np.testing.assert_array_equal(attention_weights(q, k, enable_gqa=True, scale=same), plain)


@pytest.mark.parametrize("large", [False, True])
def test_a_sink_takes_rows_that_see_nothing_and_loses_against_an_infinite_score(large):
    n = 400 if large else 3
    q, k, v = np.ones((n, 1)), np.ones((n, 1)), np.ones((n, 1))
    mask = np.zeros((n, n))
    mask[0] = -INF
    mask[1, 2] = INF
    output = scaled_dot_product_attention(q, k, v, mask, scale=1, sink=1.0)
    np.testing.assert_allclose(output[:, 0], [0, 1, *[n / (n + 1)] * (n - 2)], rtol=1e-14)
    np.testing.assert_array_equal(scaled_dot_product_attention(q, k, v, sink=INF), np.zeros((n, 1)))
    np.testing.assert_allclose(scaled_dot_product_attention(q, k, v, scale=1e30, sink=1e30)[:, 0], n / (n + 1))
    np.testing.assert_array_equal(scaled_dot_product_attention(q, k, v, scale=1e30, sink=0.0), np.ones((n, 1)))


def test_a_saturated_row_keeps_the_small_gradient_that_its_sink_leaves():
    for d_k, d_q in ((60.0, 1e-10), (200.0, 1e-60)):  # shares 1 − e^−s and e^−s, of which s is the score
        got = scaled_dot_product_attention_vjp([[d_k]], [[1.0]], [[1.0]], [[1.0]], scale=1, sink=0.0)[0].item()
        assert got == pytest.approx(math.exp(-d_k), rel=1e-12)
        assert got < d_q


@pytest.mark.parametrize("score", [-800.0, -30.0, 0.0, 30.0, 800.0])
def test_sigmoid_keeps_its_tails(score):
    options = {"scale": 1, "normalizer": "sigmoid", "normalizer_bias": 0.0}
    weight = attention_weights([[score]], [[1.0]], **options).item()
    assert weight == pytest.approx(math.exp(score) / (1 + math.exp(score)) if score < 0 else 1 / (1 + math.exp(-score)))
    d_query = scaled_dot_product_attention_vjp([[score]], [[1.0]], [[1.0]], [[1.0]], **options)[0].item()
    assert d_query == pytest.approx(math.exp(-abs(score)) / (1 + math.exp(-abs(score))) ** 2, rel=1e-14)


@pytest.mark.parametrize("normalizer", ["sigmoid", "relu"])
@pytest.mark.parametrize("n", [4, 400])
def test_masked_and_odd_numbers_stay_where_they_are_seen(normalizer, n):
    q, k, v = np.ones((n, 1)), np.ones((n, 1)), np.ones((n, 1))
    mask = np.ones((n, n), bool)
    mask[0] = False
    mask[1, 2:] = False
    k[2], v[3] = NAN, INF
    output = scaled_dot_product_attention(q, k, v, mask, normalizer=normalizer, normalizer_bias=0.0)[:, 0]
    weight = 1 / (1 + math.exp(-1)) if normalizer == "sigmoid" else 1 / n
    np.testing.assert_allclose(output[:2], [0, 2 * weight], rtol=1e-14)
    assert np.isnan(output[2:]).all()
    v[3], k[2] = 1, 1
    v[3] = INF
    output = scaled_dot_product_attention(q, k, v, mask, normalizer=normalizer, normalizer_bias=0.0)[:, 0]
    assert np.isinf(output[2:]).all()
    gradients = scaled_dot_product_attention_vjp(q, k, np.ones((n, 1)), q, mask & False, normalizer=normalizer)
    assert all(not gradient.any() for gradient in gradients)


@pytest.mark.parametrize("options", [{"sink": 0.0}, {"normalizer": "sigmoid"}, {"normalizer": "relu"}])
def test_nothing_to_attend_to_is_zero(options):
    assert not scaled_dot_product_attention(np.ones((2, 3)), np.ones((0, 3)), np.ones((0, 4)), **options).any()
    assert scaled_dot_product_attention(np.ones((0, 3)), np.ones((2, 3)), np.ones((2, 4)), **options).shape == (0, 4)
    assert attention_weights(np.ones((0, 5, 2, 3)), np.ones((0, 5, 4, 3)), **options).shape == (0, 5, 2, 4)
    gradients = scaled_dot_product_attention_vjp(
        np.ones((2, 3)), np.ones((0, 3)), np.ones((0, 4)), np.ones((2, 4)), **options
    )
    assert [g.shape for g in gradients] == [(2, 3), (0, 3), (0, 4)]


@pytest.mark.parametrize("n", [3, 400])
def test_a_scale_of_each_query_is_exact_where_the_scaled_query_overflows(n):
    q, k, v = (np.full((n, 1), x, np.float32) for x in (-1e15, 1e-16, 1.0))
    v[0] = 5
    scale = np.full(n, 1e30)
    scale[0] = 0
    np.testing.assert_allclose(attention_scores(q, k, scale=scale)[:, 0], [0, *[-1e29] * (n - 1)], rtol=1e-6)
    for chosen in (scale, 1e30):
        output = scaled_dot_product_attention(q, k, v, scale=chosen)
        np.testing.assert_allclose(output[:, 0], (n + 4) / n, rtol=1e-5)


def test_many_heads_through_projections():
    rng = np.random.default_rng(8)
    x, w = rng.standard_normal((2, 6, 8)), rng.standard_normal((3, 8, 8))
    options = {"sink": [0.0, 1.0], "scale": rng.standard_normal((2, 6))}
    got = attnsym.multi_head_attention(x, x, x, num_heads=2, w_query=w[0], w_key=w[1], w_value=w[2], **options)
    split = [attnsym.split_heads(x @ matrix, 2) for matrix in w]
    want = attnsym.merge_heads(loop_over_heads(*split, **options))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("large", [False, True])
def test_a_scale_may_have_the_heads_that_the_query_lacks(large):
    rng = np.random.default_rng(9)
    n = 300 if large else 4
    q, k, v = rng.standard_normal((n, 3)), rng.standard_normal((2, 5, n, 3)), rng.standard_normal((2, 5, n, 2))
    scale, sink, g = rng.standard_normal((5, n)), rng.standard_normal(5), rng.standard_normal((2, 5, n, 2))
    spread = np.broadcast_to(q, (2, 5, n, 3))
    options = {"scale": scale, "sink": sink}
    np.testing.assert_allclose(
        scaled_dot_product_attention(q, k, v, **options),
        scaled_dot_product_attention(spread, k, v, **options),
        rtol=0, atol=1e-13,
    )  # fmt: skip
    got = scaled_dot_product_attention_vjp(q, k, v, g, **options)
    want = scaled_dot_product_attention_vjp(spread, k, v, g, **options)
    np.testing.assert_allclose(got[0], want[0].sum(axis=(0, 1)), rtol=0, atol=1e-12)
    np.testing.assert_allclose(got[1], want[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink": NAN}, "sink must not be NaN"),
        ({"sink": [0.0, 1.0]}, r"sink must be a number, or one for each head, that broadcasts to \(3,\)"),
        ({"sink": "big"}, "sink must hold real numbers"),
        ({"sink": True}, "sink must hold real numbers"),
        ({"sink": 0.0, "normalizer": "relu"}, "sink needs normalizer 'softmax'"),
        ({"normalizer": "softplus"}, "normalizer must be one of 'softmax', 'sigmoid', 'relu'"),
        ({"normalizer": None}, "normalizer must be one of"),
        ({"normalizer_bias": 0.0}, "normalizer_bias needs normalizer 'sigmoid' or 'relu'"),
        ({"normalizer": "relu", "normalizer_bias": INF}, "normalizer_bias must be finite"),
        ({"normalizer": "relu", "normalizer_bias": [1.0, 2.0]}, "normalizer_bias must be a number, or one for each"),
        ({"scale": [1.0, 2.0, 3.0]}, r"scale must be a number, or an array over the queries, .* got shape \(3,\)"),
        ({"scale": [1.0, INF]}, "scale must be finite"),
        ({"scale": np.ones((3, 2, 1))}, "scale must be a number, or an array"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(options, message):
    q = np.ones((3, 2, 4))
    for function in (attention_weights, attention_scores):
        with pytest.raises(ValueError, match=message):
            function(q, q, **options)
    for call in (
        lambda: scaled_dot_product_attention(q, q, q, **options),
        lambda: scaled_dot_product_attention_vjp(q, q, q, q, **options),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_sink_and_a_normalizer_leave_the_scores_alone():
    q = np.ones((3, 2, 4))
    for options in ({"sink": 3.0}, {"normalizer": "sigmoid", "normalizer_bias": 2.0}):
        np.testing.assert_array_equal(attention_scores(q, q, **options), attention_scores(q, q))


def test_a_callable_score_takes_a_scale_of_each_query_and_a_sink():
    rng, q, k, _ = problem(10, heads=2)
    scale = rng.standard_normal(5)
    for options in ({}, {"sink": 0.0}, {"normalizer": "sigmoid"}):
        got = attention_weights(q, k, score=lambda a, b: a @ b.swapaxes(-1, -2), scale=scale, **options)
        np.testing.assert_allclose(got, attention_weights(q, k, scale=scale, **options), rtol=0, atol=32 * EPS64)


def test_dropout_falls_on_any_weights():
    _, q, k, _ = problem(11, heads=2)
    values = np.broadcast_to(np.eye(7), (2, 2, 7, 7))  # the output is the weights
    for options, p in itertools.product(({"sink": 0.0}, {"normalizer": "sigmoid"}, {"normalizer": "relu"}), (0.5, 1.0)):
        kept = scaled_dot_product_attention(q, k, values, dropout_p=p, rng=0, **options)
        weights = attention_weights(q, k, **options)
        dropped = (kept == 0) & (weights != 0)
        np.testing.assert_allclose(kept[~dropped], weights[~dropped] / (1 - p if p < 1 else 1), rtol=8 * EPS64)
        assert dropped.any()


def test_dropout_is_the_same_block_by_block():
    rng = np.random.default_rng(12)
    q, k, v = (normal(rng, 1, 2, 300, 4) for _ in range(3))
    for options in ({"sink": [0.0, 1.0]}, {"normalizer": "sigmoid"}):
        settings = read_settings(**options)
        x = read_inputs(q, k, v, settings)
        cut = output_in_blocks(as_problem(x, settings), slice(0, 2), slice(0, 300), 0.3, 5)
        np.testing.assert_allclose(
            scaled_dot_product_attention(q, k, v, dropout_p=0.3, rng=5, **options)[0], cut, atol=1e-14
        )
        np.testing.assert_allclose(plain_output(x, settings, 0.3, 5)[0], cut, rtol=0, atol=1e-14)


def test_relu_of_one_key_is_not_divided():
    """relu(s)/n at n = 1, and its derivative."""
    query, key, value = np.array([[2.0]]), np.array([[3.0]]), np.array([[5.0]])
    assert attention_weights(query, key, scale=1.0, normalizer="relu").tolist() == [[6.0]]
    pulled = scaled_dot_product_attention_vjp(query, key, value, np.array([[1.0]]), scale=1.0, normalizer="relu")
    assert [part.tolist() for part in pulled] == [[[15.0]], [[10.0]], [[6.0]]]
    assert attention_weights(query, key[:0], scale=1.0, normalizer="relu").shape == (1, 0)
