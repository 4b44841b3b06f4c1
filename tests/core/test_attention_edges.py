"""Attention at the edges where libraries disagree or fail: each row of the table in docs/attention.md."""

import math

import ml_dtypes
import numpy as np
import pytest
from attention_loop import loop_over_heads, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from attnsym import attention_scores, attention_weights, scaled_dot_product_attention

INF, NAN = math.inf, math.nan
EPS32, EPS64 = 2.0**-23, 2.0**-52


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
@settings(max_examples=100)
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
@settings(max_examples=100)
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
