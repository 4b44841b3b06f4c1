"""Splitting and merging heads, and attention between projections, against one head at a time."""

import math

import numpy as np
import pytest

import attnsym
from attnsym import merge_heads, multi_head_attention, scaled_dot_product_attention, split_heads


def test_split_by_hand():
    x = np.arange(12).reshape(1, 3, 4)
    heads = split_heads(x, 2)
    assert heads[0].tolist() == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]
    np.testing.assert_array_equal(merge_heads(heads), x)


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize("num_heads", [1, 2, 3, 6])
def test_merge_undoes_split(lead, num_heads):
    x = np.random.default_rng(0).standard_normal((*lead, 5, 6))
    heads = split_heads(x, num_heads)
    assert heads.shape == (*lead, num_heads, 5, 6 // num_heads)
    for h in range(num_heads):
        width = 6 // num_heads
        np.testing.assert_array_equal(heads[..., h, :, :], x[..., h * width : (h + 1) * width])
    np.testing.assert_array_equal(merge_heads(heads), x)


def layer(rng, d_query, d_key, d_value, heads, kv_heads, d_k, d_v, d_out):
    return {
        "num_heads": heads,
        "num_key_value_heads": kv_heads,
        "w_query": rng.standard_normal((d_query, heads * d_k)),
        "w_key": rng.standard_normal((d_key, kv_heads * d_k)),
        "w_value": rng.standard_normal((d_value, kv_heads * d_v)),
        "w_output": rng.standard_normal((heads * d_v, d_out)),
    }


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": (1, 1), "softcap": 2.0, "scale": 0.3}])
def test_equals_one_head_at_a_time(kv_heads, options):
    rng = np.random.default_rng(kv_heads)
    weights = layer(rng, 6, 5, 7, 4, kv_heads, 3, 2, 8)
    query, key, value = (rng.standard_normal(shape) for shape in ((2, 4, 6), (2, 5, 5), (2, 5, 7)))
    got = multi_head_attention(query, key, value, **weights, **options)
    merged = np.empty((2, 4, 8))
    for h in range(4):
        g = h // (4 // kv_heads)
        q = query @ weights["w_query"][:, 3 * h : 3 * h + 3]
        k = key @ weights["w_key"][:, 3 * g : 3 * g + 3]
        v = value @ weights["w_value"][:, 2 * g : 2 * g + 2]
        merged[..., 2 * h : 2 * h + 2] = scaled_dot_product_attention(q, k, v, **options)
    np.testing.assert_allclose(got, merged @ weights["w_output"], rtol=1e-12, atol=1e-12)
    del weights["w_output"]
    np.testing.assert_allclose(multi_head_attention(query, key, value, **weights, **options), merged, atol=1e-13)


def test_the_default_scale_is_that_of_one_head():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 8)), np.eye(8)
    got = multi_head_attention(x, x, x, num_heads=2, w_query=w, w_key=w, w_value=w)
    explicit = multi_head_attention(x, x, x, num_heads=2, w_query=w, w_key=w, w_value=w, scale=1 / math.sqrt(4))
    np.testing.assert_array_equal(got, explicit)


def test_mask_has_the_axes_of_the_heads():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 4, 6))
    w = {name: rng.standard_normal((6, 6)) for name in ("w_query", "w_key", "w_value")}
    padded = multi_head_attention(x, x, x, num_heads=3, attn_mask=attnsym.padding_mask([[1, 1, 1, 0]] * 2), **w)
    cut = multi_head_attention(x, x[:, :3], x[:, :3], num_heads=3, **w)
    np.testing.assert_allclose(padded, cut, atol=1e-14)


def test_half_precision_computes_in_single():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4, 6))
    w = {name: rng.standard_normal((6, 6)) for name in ("w_query", "w_key", "w_value", "w_output")}
    half = multi_head_attention(
        *[x.astype(np.float16)] * 3, num_heads=2, **{n: m.astype(np.float16) for n, m in w.items()}
    )
    assert half.dtype == np.float16
    rounded = {n: m.astype(np.float16).astype(float) for n, m in w.items()}
    want = multi_head_attention(*[x.astype(np.float16).astype(float)] * 3, num_heads=2, **rounded)
    # one rounding to 11 bits at the end, and float32 before it
    np.testing.assert_allclose(half, want, rtol=2**-10, atol=1e-4)


def test_dropout_on_weights_and_on_the_output():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6, 4))
    w = {name: rng.standard_normal((4, 4)) for name in ("w_query", "w_key", "w_value")}

    def attend(**options):
        return multi_head_attention(x, x, x, num_heads=2, **w, **options)

    whole = attend()
    dropped = attend(output_dropout_p=0.4, rng=0)
    kept = dropped != 0
    assert 0 < kept.sum() < kept.size
    np.testing.assert_allclose(dropped[kept], whole[kept] / 0.6, rtol=1e-15)
    np.testing.assert_array_equal(attend(output_dropout_p=1), np.zeros((6, 4)))
    np.testing.assert_array_equal(attend(dropout_p=1), np.zeros((6, 4)))
    both = attend(dropout_p=0.4, output_dropout_p=0.4, rng=0)
    np.testing.assert_array_equal(both, attend(dropout_p=0.4, output_dropout_p=0.4, rng=np.random.default_rng(0)))
    assert np.abs(both - dropped).max() > 0.1


def test_a_fresh_layer_has_scaled_score_variance_one_ninth():
    # weights uniform within ±1/√d_model, as linear layers start: variance 1/(3 d_model), so a query's component has 1/3
    rng = np.random.default_rng(9)
    d_model, num_heads, replicates = 24, 3, 4000
    scores = np.empty(replicates)
    for i in range(replicates):
        w_query, w_key = (rng.uniform(-1, 1, (d_model, d_model)) / math.sqrt(d_model) for _ in range(2))
        tokens = rng.standard_normal((2, d_model))
        q, k = (split_heads(tokens @ w, num_heads) for w in (w_query, w_key))
        scores[i] = attnsym.attention_scores(q, k)[0, 0, 1]
    squares = scores**2  # the mean is 0 by symmetry
    standard_error = squares.std(ddof=1) / math.sqrt(replicates)
    # five standard errors: a false alarm in about a million runs; the rival 1 lies 130 away
    assert abs(squares.mean() - 1 / 9) < 5 * standard_error
    assert standard_error < 0.01


W = np.ones((4, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 3}, "num_heads must divide the columns of w_query: got 3 and shape"),
        ({"num_heads": 0}, "num_heads must be a whole number, 1 or more: got 0"),
        ({"num_heads": 2.0}, "num_heads must be a whole number"),
        ({"num_key_value_heads": 3}, "must divide"),
        ({"w_query": np.ones((5, 4))}, "w_query must be a matrix with 4 rows"),
        ({"w_key": np.ones(4)}, "w_key must be a matrix"),
        ({"w_output": np.ones((3, 4))}, "w_output must be a matrix with 4 rows, the width of the merged heads"),
        ({"w_key": np.ones((4, 8))}, "share their last axis d_k"),
        ({"output_dropout_p": 2}, "output_dropout_p must lie in"),
        ({"rng": True, "dropout_p": 0.5}, "rng must be"),
    ],
)
def test_refusals(options, message):
    x = np.ones((3, 4))
    with pytest.raises(ValueError, match=message):
        multi_head_attention(x, x, x, **{"num_heads": 2, "w_query": W, "w_key": W, "w_value": W} | options)


def test_refusals_of_split_and_merge():
    with pytest.raises(ValueError, match="num_heads must divide d_model: got num_heads 3 and d_model 4"):
        split_heads(np.ones((2, 4)), 3)
    with pytest.raises(ValueError, match="num_heads must be a whole number, 1 or more: got 0"):
        split_heads(np.ones((2, 4)), 0)
    with pytest.raises(ValueError, match="at least the axes"):
        split_heads(np.ones(4), 2)
    with pytest.raises(ValueError, match="at least the axes"):
        merge_heads(np.ones((2, 4)))
    with pytest.raises(ValueError, match="query must have at least the axes"):
        multi_head_attention(np.ones(4), W, W, num_heads=1, w_query=W, w_key=W, w_value=W)
