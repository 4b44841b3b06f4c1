"""ALiBi's slopes, rotary embeddings against complex numbers, and norms of queries and keys."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnsym import alibi_bias, attention_scores, attention_weights, qk_norm, rotary

EPS64 = 2.0**-52


# --- ALiBi ----------------------------------------------------------------------------------------------------------


def papers_slopes(n):
    """The paper's rule: a geometric sequence for a power of two, else that below and every second one of that above."""
    if math.log2(n).is_integer():
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]
    below = 2 ** math.floor(math.log2(n))
    return papers_slopes(below) + papers_slopes(2 * below)[0::2][: n - below]


@pytest.mark.parametrize("heads", [1, 2, 3, 7, 8, 12, 16, 25, 40, 64, 71, 96, 112])
def test_slopes_are_those_of_the_paper(heads):
    bias = alibi_bias(heads, 2, 3)
    np.testing.assert_allclose(-bias[:, 0, 1], papers_slopes(heads), rtol=64 * EPS64)
    np.testing.assert_allclose(
        bias, -np.array(papers_slopes(heads))[:, None, None] * [[0, 1, 2], [1, 0, 1]], rtol=1e-13
    )


def test_eight_heads_have_powers_of_a_half():
    np.testing.assert_array_equal(alibi_bias(8, 1, 2)[:, 0, 1], [-(2.0**-h) for h in range(1, 9)])


def test_under_a_causal_mask_only_the_keys_position_counts():
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((4, 6, 8)), rng.standard_normal((4, 9, 8))
    for alignment in ("top_left", "bottom_right"):
        options = {"is_causal": True, "causal_alignment": alignment}
        bias = alibi_bias(4, 6, 9, alignment=alignment)
        by_key = np.array(papers_slopes(4))[:, None, None] * np.arange(9.0)
        np.testing.assert_allclose(
            attention_weights(q, k, bias, **options), attention_weights(q, k, by_key, **options), rtol=1e-13
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 2, 2), "num_heads must be a whole number, 1 or more"),
        ((2.0, 2, 2), "num_heads must be a whole number"),
        ((True, 2, 2), "num_heads must be a whole number"),
        ((2, -1, 2), "n_queries must be a whole number"),
        ((2, 2, "3"), "n_keys must be a whole number"),
    ],
)
def test_numbers_of_heads_and_tokens_are_whole(arguments, message):
    with pytest.raises(ValueError, match=message):
        alibi_bias(*arguments)


# --- rotary ---------------------------------------------------------------------------------------------------------


def by_complex_numbers(x, positions, base):
    d = x.shape[-1]
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(
        1j * np.asarray(positions, float)[..., None] * base ** (-2.0 * np.arange(d // 2) / d)
    )
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


@pytest.mark.parametrize("base", [1.0, 100.0, 10000.0, 5e5])
@pytest.mark.parametrize("positions", [np.arange(5), np.array([3, 1, 4, 1, 5]), np.linspace(-2, 2, 5), 7])
def test_pairs_are_multiplied_by_complex_numbers_of_length_one(base, positions):
    x = np.random.default_rng(1).standard_normal((2, 3, 5, 8))
    got = rotary(x, positions, base=base)
    spread = np.broadcast_to(positions, 5)
    np.testing.assert_allclose(got, by_complex_numbers(x, spread, base), rtol=0, atol=32 * EPS64)
    np.testing.assert_allclose(np.linalg.norm(got, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-14)


@given(st.integers(0, 10**6), st.integers(-1000, 1000), st.integers(0, 100))
@settings(max_examples=50)
def test_scores_depend_on_the_difference_of_positions(shift, distance, seed):
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((2, 1, 16))
    near = attention_scores(rotary(q, [distance]), rotary(k, [0]))
    far = attention_scores(rotary(q, [distance + shift]), rotary(k, [shift]))
    # an angle of 1e6 rounds by 1e6 eps, and each of 16 products with it
    np.testing.assert_allclose(far, near, rtol=0, atol=64 * 1e6 * EPS64 * np.linalg.norm(q) * np.linalg.norm(k))


def test_positions_of_each_item_and_16_bit_floats():
    x = np.random.default_rng(2).standard_normal((2, 3, 4, 6))
    positions = np.arange(8).reshape(2, 1, 4)
    got = rotary(x, positions)
    for b in range(2):
        np.testing.assert_array_equal(got[b], rotary(x[b], positions[b, 0]))
    for dtype, eps in ((np.float16, 2.0**-10), (ml_dtypes.bfloat16, 2.0**-7), (np.float32, 2.0**-23)):
        small = rotary(x.astype(dtype), positions)
        assert small.dtype == dtype
        want = rotary(x.astype(dtype).astype(float), positions)
        np.testing.assert_allclose(small.astype(float), want, rtol=0, atol=4 * eps * np.abs(x).max())
    assert rotary(np.ones((3, 2), int), [0, 1, 2]).dtype == np.float64
    assert rotary(np.ones((0, 4)), []).shape == (0, 4)
    assert rotary(np.ones((3, 0)), 0).shape == (3, 0)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.ones((2, 3)), [0, 1]), {}, "even d: got shape"),
        ((np.ones(4), 0), {}, r"axes \(length, d\)"),
        ((np.ones((2, 4)), [0, 1, 2]), {}, r"positions must broadcast to \(2,\): got shape \(3,\)"),
        ((np.ones((2, 4)), [0, math.nan]), {}, "positions must be finite"),
        ((np.ones((2, 4)), [True, False]), {}, "positions must hold real numbers"),
        ((np.ones((2, 4)), 0), {"base": 0}, "base must be positive"),
        ((np.ones((2, 4)), 0), {"base": "10"}, "base must be a finite number"),
    ],
)
def test_what_cannot_be_rotated_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        rotary(*arguments, **options)


# --- norms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [0.0, 1e-6, 2.0])
@pytest.mark.parametrize(("kind", "count"), [("l2", 1), ("rms", 5)])
def test_norms_are_those_of_the_formula(kind, count, eps):
    x = np.random.default_rng(3).standard_normal((4, 3, 5))
    gain = np.random.default_rng(4).standard_normal(5)
    want = x / np.sqrt((x * x).sum(-1, keepdims=True) / count + eps)
    np.testing.assert_allclose(qk_norm(x, kind=kind, eps=eps), want, rtol=16 * EPS64)
    np.testing.assert_allclose(qk_norm(x, kind=kind, eps=eps, gain=gain), want * gain, rtol=16 * EPS64)
    by_head = np.arange(4.0)[:, None, None]
    np.testing.assert_allclose(qk_norm(x, kind=kind, eps=eps, gain=by_head), want * by_head, rtol=16 * EPS64)


def test_scores_of_unit_vectors_are_cosines_and_of_rms_vectors_at_most_the_root_of_d():
    rng = np.random.default_rng(5)
    q, k = rng.standard_normal((2, 6, 16))
    cosines = attention_scores(q, k, score="cosine")
    np.testing.assert_allclose(attention_scores(qk_norm(q), qk_norm(k), scale=1), cosines, rtol=0, atol=8 * EPS64)
    rms = attention_scores(qk_norm(q, kind="rms"), qk_norm(k, kind="rms"))
    np.testing.assert_allclose(rms, 4 * cosines, rtol=0, atol=64 * EPS64)


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e200, 1e308])
def test_lengths_neither_overflow_nor_vanish(size):
    x = np.array([3.0, 4.0]) * (size / 4)
    np.testing.assert_allclose(qk_norm(x), [0.6, 0.8], rtol=1e-3 if size < 1e-300 else 8 * EPS64)
    with_eps = qk_norm(x, eps=1e-6)
    np.testing.assert_allclose(with_eps, [0.6, 0.8] if size > 1 else x / 1e-3, rtol=1e-3 if size < 1e-300 else 1e-14)


def test_zero_vectors_stay_zero_and_what_is_not_finite_shows():
    np.testing.assert_array_equal(qk_norm([[0.0, 0.0], [0.0, 2.0]]), [[0, 0], [0, 1]])
    np.testing.assert_array_equal(qk_norm([0.0, 0.0], eps=1e-6), [0, 0])
    assert np.isnan(qk_norm([[math.nan, 1.0], [3.0, 4.0]])).tolist() == [[True, True], [False, False]]
    assert np.isnan(qk_norm([math.inf, 1.0])[0])
    assert qk_norm(np.ones((3, 0))).shape == (3, 0)
    assert qk_norm(np.ones((0, 3)), kind="rms").shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_norms_keep_the_type(dtype):
    x = (np.random.default_rng(6).standard_normal((3, 8)) * 100).astype(dtype)
    got = qk_norm(x, kind="rms", gain=np.ones(8))
    assert got.dtype == dtype
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22}[np.dtype(dtype).name]
    np.testing.assert_allclose(got.astype(float), qk_norm(x.astype(float), kind="rms"), rtol=eps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "l1"}, "kind must be one of 'l2', 'rms'"),
        ({"eps": -1e-6}, "eps must be 0 or more"),
        ({"eps": math.inf}, "eps must be a finite number"),
        ({"gain": np.ones(3)}, r"gain must broadcast to the shape of x, \(2, 4\): got \(3,\)"),
        ({"gain": np.ones((5, 1, 1))}, "gain must broadcast"),
        ({"gain": "2"}, "gain must hold real numbers"),
        ({"x": 1.0}, "at least one axis"),
    ],
)
def test_what_cannot_be_normed_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        qk_norm(**({"x": np.ones((2, 4))} | options))
