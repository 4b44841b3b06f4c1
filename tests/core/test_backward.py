"""The gradient of attention against central differences, its plain path against blocks, and torch's autograd."""

import itertools
import math

import numpy as np
import pytest

from attnsym import _backward_blocks, scaled_dot_product_attention, scaled_dot_product_attention_vjp
from attnsym._blocks import Heads, as_problem, block
from attnsym._scores import read_inputs
from attnsym._settings import read_settings
from attnsym.backward import _gradients

INF, NAN = math.inf, math.nan
EPS64 = 2.0**-52

OPTIONS = list(
    itertools.product(
        ["dot", "cosine"],
        [None, 1.5],  # softcap
        [None, 0.4, 0.0],  # scale
        [False, True],  # is_causal
        [None, (1, 1)],  # window
        [None, "bool", "float"],
    )
)


def inputs(seed, n_queries=3, n_keys=4, heads=4, kv_heads=2, d_k=3, d_v=2):
    rng = np.random.default_rng(seed)
    shapes = (heads, n_queries, d_k), (kv_heads, n_keys, d_k), (kv_heads, n_keys, d_v), (heads, n_queries, d_v)
    return rng, *(rng.standard_normal((2, *shape)) for shape in shapes)


def random_mask(rng, kind, shape):
    if kind is None:
        return None
    if kind == "bool":
        return rng.random(shape) < 0.7
    return np.where(rng.random(shape) < 0.2, -INF, rng.standard_normal(shape))


def slope(function, x, direction, step=1e-5):
    return (function(x + step * direction) - function(x - step * direction)) / (2 * step)


@pytest.mark.parametrize(("score", "softcap", "scale", "is_causal", "window", "mask_kind"), OPTIONS)
def test_every_option_equals_central_differences(score, softcap, scale, is_causal, window, mask_kind):
    rng, q, k, v, g = inputs(len(str((score, softcap, scale, is_causal, window, mask_kind))))
    options = {
        "attn_mask": random_mask(rng, mask_kind, (2, 1, 3, 4)),
        "is_causal": is_causal,
        "scale": scale,
        "enable_gqa": True,
        "score": score,
        "softcap": softcap,
        "window": window,
        "causal_alignment": "bottom_right",
    }
    gradients = scaled_dot_product_attention_vjp(q, k, v, g, **options)
    for i in range(3):
        direction = rng.standard_normal((q, k, v)[i].shape)

        def loss(x, i=i):
            return np.sum(
                g * scaled_dot_product_attention(*(x if j == i else a for j, a in enumerate((q, k, v))), **options)
            )

        # rounding of a sum of 48 terms over the step, and step² times a third derivative of order 100
        error = 48 * EPS64 * 20 / 1e-5 + 1e-10 * 100
        assert np.sum(gradients[i] * direction) == pytest.approx(slope(loss, (q, k, v)[i], direction), rel=0, abs=error)


def test_by_hand():
    d_q, d_k, d_v = scaled_dot_product_attention_vjp([[1.0]], [[0.0], [math.log(3)]], [[2.0], [6.0]], [[1.0]], scale=1)
    np.testing.assert_allclose(d_v, [[0.25], [0.75]], rtol=1e-15)
    np.testing.assert_allclose(d_k, [[-0.75], [0.75]], rtol=1e-15)
    np.testing.assert_allclose(d_q, [[0.75 * math.log(3)]], rtol=1e-15)


def test_columns_are_rows_transposed():
    _, q, k, v, g = inputs(1)
    rows = scaled_dot_product_attention_vjp(q, k, v, g, is_causal=True, enable_gqa=True)
    turned = (x.swapaxes(-1, -2) for x in (q, k, v, g))
    columns = scaled_dot_product_attention_vjp(*turned, is_causal=True, enable_gqa=True, convention="columns")
    for row, column in zip(rows, columns, strict=True):
        np.testing.assert_allclose(column.swapaxes(-1, -2), row, rtol=1e-12, atol=1e-15)


def test_gradients_are_summed_over_broadcast_axes():
    rng = np.random.default_rng(2)
    q, k, v = rng.standard_normal((3, 1, 4, 5)), rng.standard_normal((2, 6, 5)), rng.standard_normal((6, 2))
    g = rng.standard_normal((3, 2, 4, 2))
    whole = [np.broadcast_to(x, (3, 2, *x.shape[-2:])) for x in (q, k, v)]
    d_q, d_k, d_v = scaled_dot_product_attention_vjp(q, k, v, g)
    full = scaled_dot_product_attention_vjp(*whole, g)
    np.testing.assert_allclose(d_q, full[0].sum(axis=1, keepdims=True), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(d_k, full[1].sum(axis=0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(d_v, full[2].sum(axis=(0, 1)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mask", [np.zeros((3, 4), bool), np.full((3, 4), -INF)])
def test_a_fully_masked_query_has_no_gradient(mask):
    _, q, k, v, g = inputs(3)
    for poison in (None, NAN):
        if poison is not None:
            q[0], k[0], v[0] = poison, poison, poison
        for gradient in scaled_dot_product_attention_vjp(q, k, v, g, mask, enable_gqa=True):
            np.testing.assert_array_equal(gradient, np.zeros_like(gradient))


@pytest.mark.parametrize("score", ["dot", "cosine"])
@pytest.mark.parametrize("softcap", [None, 1.0])
@pytest.mark.parametrize("poison", [NAN, INF, -INF])
def test_a_masked_key_counts_as_if_it_were_not_there(score, softcap, poison):
    rng = np.random.default_rng(4)
    q, k, v, g = (rng.standard_normal(shape) for shape in ((3, 2), (4, 2), (4, 2), (3, 2)))
    keep = [0, 2, 3]
    options = {"score": score, "softcap": softcap}
    want = scaled_dot_product_attention_vjp(q, k[keep], v[keep], g, **options)
    k[1] = v[1] = poison
    d_q, d_k, d_v = scaled_dot_product_attention_vjp(q, k, v, g, [[True, False, True, True]], **options)
    np.testing.assert_allclose(d_q, want[0], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(d_v[keep], want[2], rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(d_v[1], 0)
    if score == "dot":
        np.testing.assert_allclose(d_k[keep], want[1], rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(d_k[1], 0)


def test_a_nan_reaches_only_who_sees_it():
    rng = np.random.default_rng(5)
    q, k, v, g = (rng.standard_normal((4, 2)) for _ in range(4))
    clean = scaled_dot_product_attention_vjp(q, k, v, g, is_causal=True)
    q[1] = NAN
    d_q, d_k, d_v = scaled_dot_product_attention_vjp(q, k, v, g, is_causal=True)
    assert np.isnan(d_q).all(axis=1).tolist() == [False, True, False, False]
    for gradient, want in ((d_k, clean[1]), (d_v, clean[2])):
        assert np.isnan(gradient).any(axis=1).tolist() == [True, True, False, False]
        np.testing.assert_allclose(gradient[2:], want[2:], rtol=1e-12)


def test_cosine_of_a_zero_vector_has_no_gradient():
    q, k, v, g = np.zeros((1, 2)), np.ones((2, 2)), np.array([[1.0], [2.0]]), np.ones((1, 1))
    d_q, d_k, _ = scaled_dot_product_attention_vjp(q, k, v, g, score="cosine")
    np.testing.assert_array_equal(d_q, 0)
    np.testing.assert_array_equal(d_k, 0)


def test_empty_axes():
    for n_queries, n_keys in ((0, 3), (3, 0)):
        shapes = (n_queries, 2), (n_keys, 2), (n_keys, 4), (n_queries, 4)
        gradients = scaled_dot_product_attention_vjp(*(np.ones(shape) for shape in shapes))
        assert [gradient.shape for gradient in gradients] == list(shapes[:3])
        assert all((gradient == 0).all() for gradient in gradients)


def test_half_precision_returns_to_its_type():
    _, q, k, v, g = inputs(6)
    got = scaled_dot_product_attention_vjp(*(x.astype(np.float16) for x in (q, k, v, g)), enable_gqa=True)
    want = scaled_dot_product_attention_vjp(
        *(x.astype(np.float16).astype(float) for x in (q, k, v, g)), enable_gqa=True
    )
    for half, exact in zip(got, want, strict=True):
        assert half.dtype == np.float16
        np.testing.assert_allclose(half, exact, rtol=2**-10, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": lambda q, k: q @ k.T}, "derivative of a callable"),
        ({"upstream": np.ones((3, 3))}, r"upstream must have the output's shape \(3, 2\): got \(3, 3\)"),
        ({"upstream": np.ones((1, 3, 2))}, "upstream must have the output's shape"),
        ({"softcap": -1.0}, "softcap"),
        ({"attn_mask": np.ones((3, 4), int)}, "attn_mask"),
    ],
)
def test_refusals(options, message):
    arguments = {
        "query": np.ones((3, 2)),
        "key": np.ones((4, 2)),
        "value": np.ones((4, 2)),
        "upstream": np.ones((3, 2)),
    }
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention_vjp(**arguments | options)


# --- blocks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_elements", [1, 7, 40, 1 << 18])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("mask_kind", [None, "bool", "float"])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": (2, 0), "causal_alignment": "bottom_right"}])
def test_blocks_equal_the_whole(block_elements, workers, mask_kind, options):
    rng, q, k, v, g = inputs(7, n_queries=11, n_keys=9, heads=2, kv_heads=1)
    mask = random_mask(rng, mask_kind, (11, 9))
    settings = read_settings(enable_gqa=True, **options)
    x = read_inputs(q, k, v, settings, mask)
    want = _gradients(x, settings, g)
    problem = as_problem(x, settings)
    upstream = Heads(g.reshape(4, 11, 2), np.arange(4))
    fell_back = []

    def plain(heads, queries):
        fell_back.append(queries)
        return _gradients(*block(problem, heads, queries), upstream[heads][:, queries])

    with np.errstate(all="ignore"):
        got = _backward_blocks.gradients_in_blocks(
            problem, upstream, plain, block_elements=block_elements, workers=workers
        )
    assert fell_back == []
    for gradient, whole in zip(got, want, strict=True):
        np.testing.assert_allclose(gradient.reshape(whole.shape), whole, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("options", [{}, {"softcap": 1.0}, {"score": "cosine"}, {"is_causal": True}])
@pytest.mark.parametrize("poison", [None, NAN])
def test_large_problems_equal_small_ones(options, poison, monkeypatch):
    _, q, k, v, g = inputs(8, n_queries=260, n_keys=270, heads=2, kv_heads=1, d_k=4)
    if poison is not None:
        v[0, 0, 200] = poison
    got = scaled_dot_product_attention_vjp(q, k, v, g, enable_gqa=True, **options)
    monkeypatch.setattr("attnsym._settings._LEAN_SCORES", 1 << 40)
    want = scaled_dot_product_attention_vjp(q, k, v, g, enable_gqa=True, **options)
    for large, small in zip(got, want, strict=True):
        np.testing.assert_allclose(large, small, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 7, 7, 5), (1, 4, 300, 300, 16)])
def test_equals_torch_autograd(shape, is_causal):
    torch = pytest.importorskip("torch")
    batch, heads, n_queries, n_keys, d = shape
    rng = np.random.default_rng(9)
    arrays = [rng.standard_normal((batch, heads, n, d)) for n in (n_queries, n_keys, n_keys)]
    tensors = [torch.from_numpy(x).requires_grad_() for x in arrays]
    output = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=is_causal)
    upstream = rng.standard_normal(tuple(output.shape))
    output.backward(torch.from_numpy(upstream))
    np.testing.assert_allclose(
        scaled_dot_product_attention(*arrays, is_causal=is_causal), output.detach().numpy(), rtol=1e-10, atol=1e-12
    )
    gradients = scaled_dot_product_attention_vjp(*arrays, upstream, is_causal=is_causal)
    for gradient, tensor in zip(gradients, tensors, strict=True):
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-9, atol=1e-11)


def test_the_slope_in_the_scale_by_eulers_rule():
    # scores are linear in the query and in the scale: s · ∂loss/∂s = Σ q · ∂loss/∂q
    _, q, k, v, g = inputs(10)
    d_q, _, _ = scaled_dot_product_attention_vjp(q, k, v, g, scale=0.7, enable_gqa=True)

    def loss(scale):
        return np.sum(g * scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True))

    assert np.sum(d_q * q) == pytest.approx(0.7 * slope(loss, 0.7, 1.0), rel=0, abs=1e-7)
