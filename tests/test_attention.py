"""Scores, weights and outputs: against the loop, at the edges where libraries disagree, and refusals."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from attention_loop import loop_over_heads
from hypothesis import given, settings
from hypothesis import strategies as st

import attnsym
from attnsym import attention_scores, attention_weights, scaled_dot_product_attention

INF, NAN = math.inf, math.nan
EPS32, EPS64 = 2.0**-23, 2.0**-52

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


def normal(rng, *shape, dtype=np.float64):
    return rng.standard_normal(shape).astype(dtype)


def random_mask(rng, kind, shape):
    if kind is None:
        return None
    if kind == "bool":
        return rng.random(shape) < 0.7
    return np.where(rng.random(shape) < 0.2, -INF, rng.standard_normal(shape))


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


# --- edges: each row of the table in docs/attention.md --------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("mask", [np.zeros((1, 3), bool), np.full((1, 3), -INF)])
def test_a_fully_masked_query_attends_to_nothing(dtype, mask):
    q, k, v = np.array([[1.0]], dtype), np.array([[1.0], [2], [3]], dtype), np.array([[1.0], [2], [6]], dtype)
    np.testing.assert_array_equal(attention_weights(q, k, mask), [[0, 0, 0]])
    np.testing.assert_array_equal(scaled_dot_product_attention(q, k, v, mask), [[0]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("mask_dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_a_finite_bias_is_a_bias_however_large(dtype, mask_dtype):
    q, k, v = np.array([[0.0]], dtype), np.array([[1.0], [2], [3]], dtype), np.array([[1.0], [2], [6]], dtype)
    lowest = float(ml_dtypes.finfo(mask_dtype).min)
    mask = np.full((1, 3), lowest, mask_dtype)
    np.testing.assert_allclose(scaled_dot_product_attention(q, k, v, mask).astype(float), [[3]], rtol=1e-3)
    mask[0, 0] = 0
    np.testing.assert_array_equal(attention_weights(q, k, mask), [[1, 0, 0]])


def test_a_finite_bias_on_a_large_score_saturates():
    lowest = np.finfo(np.float32).min
    weights = attention_weights(np.float32([[1]]), np.float32([[-1e35], [-1e34]]), np.full((1, 2), lowest), scale=1)
    np.testing.assert_array_equal(weights, [[0.5, 0.5]])


def test_minus_1e9_is_no_mask():
    q, k = np.array([[1.0]]), np.array([[1.0], [2.0], [3.0]])
    biased = attention_weights(q, k, np.full((1, 3), -1e9), scale=1)
    np.testing.assert_allclose(biased, attention_weights(q, k, scale=1), rtol=1e-6)
    np.testing.assert_array_equal(attention_weights(q, k, np.zeros((1, 3), bool), scale=1), [[0, 0, 0]])


def test_plus_infinity_in_a_mask_takes_all_the_weight():
    q, k = np.zeros((1, 1)), np.zeros((3, 1))
    np.testing.assert_array_equal(attention_weights(q, k, [[0.0, INF, INF]]), [[0, 0.5, 0.5]])


@pytest.mark.parametrize(
    ("n_queries", "n_keys", "alignment", "allowed_keys"),
    [
        (2, 5, "top_left", [1, 2]),
        (2, 5, "bottom_right", [4, 5]),
        (5, 2, "top_left", [1, 2, 2, 2, 2]),
        (5, 2, "bottom_right", [0, 0, 0, 1, 2]),
        (1, 7, "top_left", [1]),
        (1, 7, "bottom_right", [7]),
    ],
)
def test_causal_alignment(n_queries, n_keys, alignment, allowed_keys):
    weights = attention_weights(
        np.zeros((n_queries, 1)), np.zeros((n_keys, 1)), is_causal=True, causal_alignment=alignment
    )
    assert (weights > 0).sum(axis=1).tolist() == allowed_keys
    for row, n in zip(weights, allowed_keys, strict=True):
        np.testing.assert_allclose(row[:n], 1 / n if n else 0, rtol=EPS64)


def test_causal_and_mask_and_window_intersect():
    q = k = np.zeros((4, 1))
    mask = np.ones((4, 4), bool)
    mask[:, 1] = False
    weights = attention_weights(q, k, mask, is_causal=True, window=3)
    assert (weights > 0).astype(int).tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]]


def test_window_of_the_position_itself_returns_the_value():
    rng = np.random.default_rng(0)
    q, k, v = normal(rng, 4, 3), normal(rng, 4, 3), normal(rng, 4, 2)
    np.testing.assert_array_equal(scaled_dot_product_attention(q, k, v, window=(0, 0)), v)
    np.testing.assert_array_equal(scaled_dot_product_attention(q, k, v, window=1), v)


@pytest.mark.parametrize("grouped", [False, True])
def test_empty_axes(grouped):
    def shapes(batch, n_queries, n_keys, d_k, d_v):
        return (
            np.ones((batch, 2, n_queries, d_k)),
            np.ones((batch, 1 + (not grouped), n_keys, d_k)),
            np.ones((batch, 1 + (not grouped), n_keys, d_v)),
        )

    no_keys = scaled_dot_product_attention(*shapes(2, 3, 0, 4, 5), enable_gqa=grouped)
    np.testing.assert_array_equal(no_keys, np.zeros((2, 2, 3, 5)))
    assert scaled_dot_product_attention(*shapes(2, 0, 3, 4, 5), enable_gqa=grouped).shape == (2, 2, 0, 5)
    assert scaled_dot_product_attention(*shapes(0, 2, 3, 4, 5), enable_gqa=grouped).shape == (0, 2, 2, 5)
    assert scaled_dot_product_attention(*shapes(2, 2, 3, 4, 0), enable_gqa=grouped).shape == (2, 2, 2, 0)
    assert attention_weights(*shapes(2, 3, 0, 4, 5)[:2], enable_gqa=grouped, is_causal=True).shape == (2, 2, 3, 0)


def test_no_components_give_the_mean_of_the_values():
    got = scaled_dot_product_attention(np.zeros((1, 0)), np.zeros((3, 0)), [[1.0], [2.0], [6.0]])
    np.testing.assert_allclose(got, [[3.0]], rtol=4 * EPS64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e4, 1e30])
def test_huge_scores_are_exact(dtype, size):
    q, k, v = np.array([[size]], dtype), np.array([[1.0], [0.5], [1.0]], dtype), np.array([[1.0], [9], [3]], dtype)
    np.testing.assert_array_equal(scaled_dot_product_attention(q, k, v, scale=1), [[2.0]])
    np.testing.assert_array_equal(attention_scores(q, k, scale=1), np.array([[size, size / 2, size]], dtype))


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 2.0**66), (np.float64, 2.0**530)])
def test_a_product_may_overflow_where_the_scaled_score_does_not(dtype, size):
    q = np.full((1, 4), size, dtype)
    k = np.array([[size] * 4, [size, -size, size, -size], [size / 2] * 4], dtype)
    np.testing.assert_array_equal(attention_scores(q, k, scale=size**-2), [[4, 0, 2]])
    cancelling = attention_scores(q, k[1:2], scale=1)
    np.testing.assert_array_equal(cancelling, [[0]])


@pytest.mark.parametrize("score", ["dot", "cosine", lambda q, k: q @ k.swapaxes(-1, -2)])
def test_a_scale_outside_the_range_of_the_type(score):
    q, k = np.float32([[1, 0]]), np.float32([[1, 0], [0, 1], [-1, 0]])
    np.testing.assert_array_equal(attention_scores(q, k, scale=1e300, score=score), [[INF, 0, -INF]])
    np.testing.assert_array_equal(attention_scores(q, k, scale=2.0**-140, score=score), [[2.0**-140, 0, -(2.0**-140)]])


def test_a_score_beyond_the_range_of_its_type_is_infinite_and_shares():
    q, k = np.float32([[1e30]]), np.float32([[1e30], [2e30], [-1e30], [1]])
    np.testing.assert_array_equal(attention_scores(q, k, scale=1), np.float32([[INF, INF, -INF, 1e30]]))
    np.testing.assert_array_equal(attention_weights(q, k, scale=1), [[0.5, 0.5, 0, 0]])


def test_half_precision_accumulates_in_single():
    h = np.full((1, 64), 40, np.float16)
    assert attention_scores(h, h, scale=1)[0, 0] == 102400
    assert attention_scores(h, h)[0, 0] == 12800
    np.testing.assert_array_equal(scaled_dot_product_attention(h, h, h, scale=1), h)


@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize("where", ["key", "value", "both"])
@pytest.mark.parametrize("mask", [[[True, False, True]], [[0.0, -INF, 0.0]]])
def test_a_masked_key_counts_as_if_it_were_not_there(poison, where, mask):
    rng = np.random.default_rng(0)
    q, k, v = normal(rng, 1, 2), normal(rng, 3, 2), normal(rng, 3, 2)
    keep = [0, 2]
    want = scaled_dot_product_attention(q, k[keep], v[keep])
    if where != "value":
        k[1] = poison
    if where != "key":
        v[1] = poison
    np.testing.assert_allclose(scaled_dot_product_attention(q, k, v, mask), want, rtol=4 * EPS64)
    np.testing.assert_allclose(attention_weights(q, k, mask)[:, keep], attention_weights(q, k[keep]), rtol=4 * EPS64)
    assert attention_weights(q, k, mask)[0, 1] == 0


def test_non_finite_inputs_reach_the_rows_that_see_them():
    rng = np.random.default_rng(0)
    q, k, v = normal(rng, 4, 2), normal(rng, 4, 2), normal(rng, 4, 3)
    clean = scaled_dot_product_attention(q, k, v, is_causal=True)
    v_bad = v.copy()
    v_bad[1, 0], v_bad[2, 1], v_bad[3, 1] = NAN, INF, -INF
    got = scaled_dot_product_attention(q, k, v_bad, is_causal=True)
    want = clean.copy()
    want[1:, 0], want[2, 1], want[3, 1] = NAN, INF, NAN
    np.testing.assert_allclose(got, want, rtol=1e-14)
    q_bad = q.copy()
    q_bad[2] = NAN
    rows = np.isnan(scaled_dot_product_attention(q_bad, k, v, is_causal=True))
    assert rows.all(axis=1).tolist() == rows.any(axis=1).tolist() == [False, False, True, False]
    k_bad = k.copy()
    k_bad[2] = NAN
    rows = np.isnan(scaled_dot_product_attention(q, k_bad, v, is_causal=True))
    assert rows.any(axis=1).tolist() == [False, False, True, True]


def test_mixing_the_largest_values_stays_finite():
    largest = np.finfo(np.float32).max
    for n in (3, 7, 10):
        got = scaled_dot_product_attention(
            np.float32([[0.3]]), np.linspace(0, 1, n, dtype=np.float32)[:, None], np.full((n, 1), largest)
        )
        np.testing.assert_allclose(got, largest, rtol=n * EPS32)


extremes = st.sampled_from([0.0, 1.0, -2.5, 1e-30, 1e18, -1e30, 3e38, -3e38, NAN, INF, -INF])


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_no_nan_that_the_input_did_not_bring_into_that_row(data):
    n_queries, n_keys, d = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64]))

    def array(*shape):
        drawn = data.draw(st.lists(extremes, min_size=math.prod(shape), max_size=math.prod(shape)))
        with np.errstate(over="ignore"):
            return np.array(drawn).reshape(shape).astype(dtype)

    q, k, v = array(n_queries, d), array(n_keys, d), array(n_keys, 2)
    options = {
        "is_causal": data.draw(st.booleans()),
        "softcap": data.draw(st.sampled_from([None, 5.0])),
        "scale": data.draw(st.sampled_from([None, 1.0, 0.0])),
    }
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n_keys, max_size=n_keys)))
    output = scaled_dot_product_attention(q, k, v, mask, **options)
    seen = np.broadcast_to(mask, (n_queries, n_keys)) & (
        np.tri(n_queries, n_keys, dtype=bool) | (not options["is_causal"])
    )
    brought = ~np.isfinite(q).all(axis=1) & seen.any(axis=1)
    brought |= (seen & ~(np.isfinite(k).all(axis=1) & np.isfinite(v).all(axis=1))).any(axis=1)
    assert not np.isnan(output[~brought]).any()
    assert (output[~seen.any(axis=1)] == 0).all()


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_single_precision_stays_near_the_loop(data):
    n_queries, n_keys, d = (data.draw(st.integers(1, 6)) for _ in range(3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    size = data.draw(st.sampled_from([1e-20, 0.1, 1.0, 3.0]))
    q, k, v = (normal(rng, 1, 1, n, d, dtype=np.float32) for n in (n_queries, n_keys, n_keys))
    q, k = q * np.float32(size), k * np.float32(size)
    is_causal = data.draw(st.booleans())
    got = scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    want = loop_over_heads(q, k, v, is_causal=is_causal)
    # an error of d·eps·Σ|kᵢqᵢ| in a score moves a weight by that factor
    largest = np.abs(q).max() * np.abs(k).max() * d
    bound = (d * largest + n_keys + 8) * EPS32 * np.abs(v).max()
    np.testing.assert_allclose(got, want, rtol=0, atol=2 * bound)


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


# --- refusals -------------------------------------------------------------------------------------------------------

Q, K, V = np.ones((2, 3, 4)), np.ones((2, 5, 4)), np.ones((2, 5, 6))

REFUSED = {
    "d_k": ((Q, np.ones((2, 5, 3)), V), {}, r"share their last axis d_k: got query \(2, 3, 4\) and key \(2, 5, 3\)"),
    "n_keys": ((Q, K, np.ones((2, 4, 6))), {}, "share the axis n_keys"),
    "one axis": ((np.ones(4), K, V), {}, "query must have at least two axes"),
    "leading": ((np.ones((3, 3, 4)), K, V), {}, "leading axes must broadcast.*enable_gqa"),
    "groups": ((np.ones((5, 3, 4)), K, V), {"enable_gqa": True}, "must divide"),
    "kv heads": ((Q, K, np.ones((1, 5, 6))), {"enable_gqa": True}, "same number of heads"),
    "gqa axes": ((Q[0], K[0], V[0]), {"enable_gqa": True}, "head axis"),
    "integer mask": ((Q, K, V, np.ones((3, 5), int)), {}, "attn_mask must be boolean"),
    "text mask": ((Q, K, V, np.full((3, 5), "x")), {}, "attn_mask must be boolean"),
    "mask shape": ((Q, K, V, np.ones((3, 4), bool)), {}, r"scores' shape \(2, 3, 5\): got \(3, 4\)"),
    "mask axes": ((Q, K, V, np.ones((2, 2, 3, 5), bool)), {}, "scores' shape"),
    "column mask": (
        (Q, np.ones((2, 3, 4)), V[..., :4].swapaxes(-1, -2), np.ones((3, 4), bool)),
        {"convention": "columns"},
        "share the axis n_keys",
    ),
    "dropout": ((Q, K, V), {"dropout_p": -0.1}, "dropout_p"),
    "dropout above": ((Q, K, V), {"dropout_p": 1.5}, "dropout_p"),
    "dropout nan": ((Q, K, V), {"dropout_p": NAN}, "dropout_p"),
    "dropout bool": ((Q, K, V), {"dropout_p": True}, "dropout_p"),
    "scale nan": ((Q, K, V), {"scale": NAN}, "scale must be a finite number"),
    "scale text": ((Q, K, V), {"scale": "sqrt"}, "scale must be None"),
    "scale bool": ((Q, K, V), {"scale": True}, "scale"),
    "scale array": ((Q, K, V), {"scale": [1.0, 2.0]}, "scale"),
    "softcap": ((Q, K, V), {"softcap": 0}, "softcap must be positive"),
    "score": ((Q, K, V), {"score": "sine"}, "score must be"),
    "score shape": ((Q, K, V), {"score": lambda q, k: np.ones((3, 5))}, r"must return the shape \(2, 3, 5\)"),
    "score kind": ((Q, K, V), {"score": lambda q, k: np.full((2, 3, 5), "x")}, "the result of score"),
    "window": ((Q, K, V), {"window": 0}, "window"),
    "window fraction": ((Q, K, V), {"window": 1.5}, "window"),
    "window bool": ((Q, K, V), {"window": True}, "window"),
    "window side": ((Q, K, V), {"window": (-1, 0)}, "each side of window"),
    "window triple": ((Q, K, V), {"window": (1, 2, 3)}, "window"),
    "alignment": ((Q, K, V), {"causal_alignment": "centre"}, "causal_alignment must be one of"),
    "convention": ((Q, K, V), {"convention": "cols"}, "convention must be one of"),
    "rng": ((Q, K, V), {"dropout_p": 0.5, "rng": True}, "rng must be"),
    "rng text": ((Q, K, V), {"dropout_p": 0.5, "rng": "seed"}, "rng must be"),
    "complex": ((Q * 1j, K, V), {}, "query must hold real numbers"),
    "boolean": ((Q > 0, K, V), {}, "query must hold real numbers"),
    "objects": ((Q, K, [[None]]), {}, "value must hold real numbers"),
    "ragged": (([[1.0], [1.0, 2.0]], K, V), {}, "query must be an array of numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_one_sentence(name):
    arguments, options, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as caught:
        scaled_dot_product_attention(*arguments, **options)
    assert "\n" not in str(caught.value)
