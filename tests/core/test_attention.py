"""Scores, weights and outputs: every option against the loop, worked numbers, conventions, types, dropout."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from attention_loop import loop_over_heads, normal, random_mask

import attnsym
from attnsym import attention_scores, attention_weights, scaled_dot_product_attention

INF = math.inf
EPS64 = 2.0**-52

OPTIONS = list(
    itertools.product(
        [False, True],  # is_causal
        [None, 2, (1, 0), (None, 1), (0, 0)],  # window
        ["top_left", "bottom_right"],
        [None, 1.5],  # softcap
        ["dot", "cosine"],
        [None, "bool", "float"],
    )
)


@pytest.mark.parametrize(("is_causal", "window", "alignment", "softcap", "score", "mask_kind"), OPTIONS)
def test_every_option_equals_the_loop(is_causal, window, alignment, softcap, score, mask_kind):
    rng = np.random.default_rng(len(str((is_causal, window, alignment, softcap, score, mask_kind))))
    for n_queries, n_keys, kv_heads in ((5, 5, 4), (3, 6, 2), (6, 2, 1)):
        q, k, v = (
            normal(rng, 2, 4, n_queries, 3),
            normal(rng, 2, kv_heads, n_keys, 3),
            normal(rng, 2, kv_heads, n_keys, 2),
        )
        mask = random_mask(rng, mask_kind, (2, 1, n_queries, n_keys))
        got = scaled_dot_product_attention(
            q,
            k,
            v,
            mask,
            is_causal=is_causal,
            window=window,
            causal_alignment=alignment,
            softcap=softcap,
            score=score,
            enable_gqa=True,
        )
        want = loop_over_heads(
            q,
            k,
            v,
            mask,
            is_causal=is_causal,
            window=window,
            softcap=softcap,
            score=score,
            offset=n_keys - n_queries if alignment == "bottom_right" else 0,
        )
        np.testing.assert_allclose(got, want, rtol=0, atol=64 * EPS64)


# --- worked numbers -------------------------------------------------------------------------------------------------


def test_two_keys_mix_two_values():
    query, key = [[1.0]], [[0.0], [math.log(3)]]
    np.testing.assert_allclose(attention_weights(query, key, scale=1), [[0.25, 0.75]], rtol=4 * EPS64)
    mixed = scaled_dot_product_attention(query, key, [[2.0], [6.0]], scale=1)
    np.testing.assert_allclose(mixed, [[5.0]], rtol=4 * EPS64)
    vectors = scaled_dot_product_attention(query, key, [[2.0, 0.0], [0.0, 4.0]], scale=1)
    np.testing.assert_allclose(vectors, [[0.5, 3.0]], rtol=4 * EPS64)


def test_the_scale_at_512_is_one_over_22_6():
    q, k = np.zeros((1, 512)), np.zeros((1, 512))
    q[0, 0], k[0, 0] = 22.6, 1
    assert attention_scores(q, k)[0, 0] == pytest.approx(22.6 / math.sqrt(512), rel=4 * EPS64)
    assert round(math.sqrt(512), 1) == 22.6
    assert attention_scores(q, k)[0, 0] == pytest.approx(1, abs=0.002)


def test_a_query_against_ten_keys_as_columns():
    rng = np.random.default_rng(512)
    query, keys, values = normal(rng, 512, 1), normal(rng, 512, 10), normal(rng, 3, 10)
    scores = attention_scores(query, keys, convention="columns")
    assert scores.shape == (10, 1)
    np.testing.assert_allclose(scores[:, 0], keys.T @ query[:, 0] / math.sqrt(512), rtol=1e-12)
    weights = attention_weights(query, keys, convention="columns")
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=10 * EPS64)
    output = scaled_dot_product_attention(query, keys, values, convention="columns")
    np.testing.assert_allclose(output, values @ weights, rtol=1e-12)
    unscaled = attention_weights(query, keys, scale=1, convention="columns")
    assert unscaled.max() > 0.999 > 0.6 > weights.max()


def test_self_attention_of_ten_tokens():
    rng = np.random.default_rng(10)
    x = normal(rng, 10, 32)
    w_q, w_k, w_v = (normal(rng, 32, 32) / math.sqrt(32) for _ in range(3))
    heatmap = attention_weights(x @ w_q, x @ w_k)
    assert heatmap.shape == (10, 10)
    np.testing.assert_allclose(heatmap.sum(axis=1), 1, rtol=10 * EPS64)
    output = scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v)
    np.testing.assert_allclose(output, heatmap @ (x @ w_v), rtol=1e-12, atol=1e-14)
    whole = attnsym.multi_head_attention(x, x, x, num_heads=1, w_query=w_q, w_key=w_k, w_value=w_v)
    np.testing.assert_allclose(whole, output, rtol=1e-12, atol=1e-14)


# --- conventions, layouts, types ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask_kind", [None, "bool", "float"])
def test_columns_are_rows_transposed(mask_kind):
    rng = np.random.default_rng(0)
    q, k, v = normal(rng, 2, 4, 5, 3), normal(rng, 2, 2, 7, 3), normal(rng, 2, 2, 7, 6)
    mask = random_mask(rng, mask_kind, (2, 1, 5, 7))
    options = {"is_causal": True, "window": (3, None), "enable_gqa": True, "causal_alignment": "bottom_right"}
    turned = [x.swapaxes(-1, -2) for x in (q, k, v)]
    turned_mask = None if mask is None else mask.swapaxes(-1, -2)
    for function, n in ((attention_weights, 2), (scaled_dot_product_attention, 3)):
        rows = function(*(q, k, v)[:n], mask, **options)
        columns = function(*turned[:n], turned_mask, **options, convention="columns")
        np.testing.assert_allclose(columns, rows.swapaxes(-1, -2), rtol=0, atol=8 * EPS64)


def test_a_mask_of_one_axis_follows_the_last_axis_of_the_scores():
    q, k = np.ones((2, 1)), np.ones((3, 1))
    keys_only = attention_weights(q, k, [True, False, True])
    np.testing.assert_array_equal(keys_only, [[0.5, 0, 0.5]] * 2)
    queries_only = attention_weights(q.T, k.T, [True, False], convention="columns")
    np.testing.assert_allclose(queries_only, [[1 / 3, 0]] * 3)


def test_a_mask_of_three_axes_is_by_head():
    rng = np.random.default_rng(4)
    q, k = normal(rng, 2, 2, 3, 4), normal(rng, 2, 2, 3, 4)
    mask = np.ones((2, 3, 3), bool)
    mask[0, :, 0] = False
    weights = attention_weights(q, k, mask)
    assert (weights[:, 0, :, 0] == 0).all()
    assert (weights[:, 1] > 0).all()


def test_batch_items_keep_their_own_padding():
    rng = np.random.default_rng(6)
    q, k, v = normal(rng, 2, 2, 4, 3), normal(rng, 2, 2, 4, 3), normal(rng, 2, 2, 4, 3)
    mask = attnsym.padding_mask([[1, 1, 1, 1], [1, 1, 0, 0]])
    got = scaled_dot_product_attention(q, k, v, mask)
    np.testing.assert_allclose(got[0], scaled_dot_product_attention(q[0], k[0], v[0]), atol=4 * EPS64)
    np.testing.assert_allclose(got[1], scaled_dot_product_attention(q[1], k[1, :, :2], v[1, :, :2]), atol=4 * EPS64)


def test_grouped_heads_are_consecutive():
    rng = np.random.default_rng(8)
    q, k, v = normal(rng, 1, 4, 3, 5), normal(rng, 1, 2, 6, 5), normal(rng, 1, 2, 6, 5)
    grouped = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    repeated = scaled_dot_product_attention(q, k[:, [0, 0, 1, 1]], v[:, [0, 0, 1, 1]])
    np.testing.assert_allclose(grouped, repeated, rtol=1e-14)
    assert np.abs(grouped - scaled_dot_product_attention(q, k[:, [0, 1, 0, 1]], v[:, [0, 1, 0, 1]])).max() > 0.1


def test_leading_axes_broadcast():
    rng = np.random.default_rng(9)
    q, k, v = normal(rng, 3, 1, 4, 5), normal(rng, 2, 6, 5), normal(rng, 6, 2)
    got = scaled_dot_product_attention(q, k, v)
    assert got.shape == (3, 2, 4, 2)
    want = scaled_dot_product_attention(*(np.broadcast_to(x, (3, 2, *x.shape[-2:])) for x in (q, k, v)))
    np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.parametrize(
    ("given_type", "scores_type", "output_type"),
    [
        (np.float16, np.float32, np.float16),
        (ml_dtypes.bfloat16, np.float32, ml_dtypes.bfloat16),
        (np.float32, np.float32, np.float32),
        (np.float64, np.float64, np.float64),
        (np.int64, np.float64, np.float64),
        (np.uint8, np.float64, np.float64),
    ],
)
def test_types(given_type, scores_type, output_type):
    q, k, v = (np.arange(6).reshape(shape).astype(given_type) for shape in ((2, 3), (2, 3), (2, 3)))
    assert attention_scores(q, k).dtype == scores_type
    assert attention_weights(q, k).dtype == scores_type
    assert scaled_dot_product_attention(q, k, v).dtype == output_type


def test_mixed_types_promote():
    half, brain, single, double = (np.ones((1, 1), t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, float))
    assert scaled_dot_product_attention(half, half, single).dtype == np.float32
    assert scaled_dot_product_attention(half, brain, half).dtype == np.float32
    assert scaled_dot_product_attention(single, double, half).dtype == np.float64


def test_small_integers_do_not_wrap():
    assert attention_scores(np.full((1, 2), 100, np.int8), np.full((1, 2), 100, np.int8), scale=1)[0, 0] == 20000
    assert attention_scores(np.full((1, 1), 1, np.uint8), np.full((1, 1), 2, np.uint8), scale=-1)[0, 0] == -2


def test_inputs_are_left_alone():
    rng = np.random.default_rng(1)
    arrays = [normal(rng, 2, 3, 4) for _ in range(3)]
    copies = [x.copy() for x in arrays]
    kept = normal(rng, 2, 3, 3)
    scaled_dot_product_attention(*arrays, scale=3.0, softcap=1.0, score=lambda q, k: kept, is_causal=True)
    for convention in ("rows", "columns"):
        scaled_dot_product_attention(*arrays, is_causal=True, convention=convention)
        attention_scores(arrays[0], arrays[1], score="cosine", convention=convention)
    for x, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(x, copy)


# --- scale, score, soft-cap -----------------------------------------------------------------------------------------


def test_scale_none_zero_and_given():
    q, k = np.ones((1, 4)), np.array([[1.0, 1, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(attention_scores(q, k), [[2.0, 0.0]])
    np.testing.assert_array_equal(attention_scores(q, k, scale=0), [[0.0, 0.0]])
    np.testing.assert_array_equal(attention_weights(q, k, scale=0.0), [[0.5, 0.5]])
    np.testing.assert_array_equal(attention_scores(q, k, scale=-2), [[-8.0, 0.0]])


def test_a_score_function_sees_the_callers_convention_and_is_not_scaled():
    rng = np.random.default_rng(3)
    q, k = normal(rng, 2, 4, 5, 3), normal(rng, 2, 2, 6, 3)
    seen = []

    def distance(query, key):
        seen.append((query.shape, key.shape))
        return -np.abs(query[..., :, None, :] - key[..., None, :, :]).sum(axis=-1)

    def distance_of_columns(query, key):
        return distance(query.swapaxes(-1, -2), key.swapaxes(-1, -2)).swapaxes(-1, -2)

    rows = attention_scores(q, k, score=distance, enable_gqa=True)
    assert seen == [((2, 4, 5, 3), (2, 4, 6, 3))]
    np.testing.assert_array_equal(rows, distance(q, k[:, [0, 0, 1, 1]]))
    turned = [x.swapaxes(-1, -2) for x in (q, k)]
    columns = attention_scores(*turned, score=distance_of_columns, enable_gqa=True, convention="columns")
    np.testing.assert_array_equal(columns, rows.swapaxes(-1, -2))
    np.testing.assert_array_equal(attention_scores(q, k, score=distance, scale=0.5, enable_gqa=True), rows / 2)
    additive = attention_scores(normal(rng, 2, 5), normal(rng, 3, 7), score=lambda query, key: np.zeros((2, 3)))
    assert additive.shape == (2, 3)


@pytest.mark.parametrize("scale", [None, 10.0])
def test_cosine(scale):
    x = np.array([[0.0, 0.0], [1e-200, 1e-200], [1e200, 1e200], [3.0, -4.0]])
    got = attention_scores(x, x, score="cosine", scale=scale) / (scale or 1)
    np.testing.assert_allclose(got[1:3, 1:3], 1, rtol=4 * EPS64)
    np.testing.assert_array_equal(got[0], 0)
    assert got[3, 1] == pytest.approx(-1 / (5 * math.sqrt(2)), rel=8 * EPS64)
    odd = np.array([[0.1, 0.2, 0.3, 0.7]], np.float32)
    assert attention_scores(odd, odd, score="cosine").max() <= 1


def test_softcap_comes_before_the_mask():
    weights = attention_weights([[1.0]], [[1.0], [5.0]], [[0.0, -INF]], softcap=5.0)
    np.testing.assert_array_equal(weights, [[1, 0]])
    capped = attention_scores([[1e30]], [[1e30], [-1e30], [0.0]], softcap=5.0)
    np.testing.assert_array_equal(capped, [[5, -5, 0]])


# --- dropout --------------------------------------------------------------------------------------------------------


def test_dropout():
    rng = np.random.default_rng(2)
    q, k = normal(rng, 8, 4), normal(rng, 50, 4)
    identity = np.eye(50)
    weights = scaled_dot_product_attention(q, k, identity)
    dropped = scaled_dot_product_attention(q, k, identity, dropout_p=0.3, rng=7)
    kept = dropped != 0
    np.testing.assert_allclose(dropped[kept], weights[kept] / 0.7, rtol=1e-15)
    # 400 independent draws: five standard deviations of the share that is kept, a false alarm in 2 million
    assert abs(kept.mean() - 0.7) < 5 * math.sqrt(0.3 * 0.7 / kept.size)
    np.testing.assert_array_equal(dropped, scaled_dot_product_attention(q, k, identity, dropout_p=0.3, rng=7))
    generator = np.random.default_rng(7)
    first = scaled_dot_product_attention(q, k, identity, dropout_p=0.3, rng=generator)
    second = scaled_dot_product_attention(q, k, identity, dropout_p=0.3, rng=generator)
    np.testing.assert_array_equal(first, dropped)
    assert (first != second).any()
    np.testing.assert_array_equal(scaled_dot_product_attention(q, k, identity, dropout_p=0.0), weights)
    np.testing.assert_array_equal(scaled_dot_product_attention(q, k, identity, dropout_p=1.0), np.zeros((8, 50)))
    assert scaled_dot_product_attention(q, k, identity, dropout_p=0.3).shape == (8, 50)
