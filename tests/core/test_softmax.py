"""Softmax, its logarithm, entropy, Jacobian and vector-Jacobian product: values, limits, refusals."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import attnsym

INF, NAN = math.inf, math.nan
EPS = {np.float32: 2.0**-23, np.float64: 2.0**-52}

finite_rows = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=40),
    elements=st.floats(-1e4, 1e4, width=32),
)
any_rows = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=9),
    elements=st.floats(width=32) | st.sampled_from([INF, -INF, 3e38, -3e38]),
)


def exact_weights(row):
    with mpmath.workdps(60):
        terms = [mpmath.exp(mpmath.mpf(float(s)) - mpmath.mpf(float(max(row)))) for s in row]
        total = mpmath.fsum(terms)
        return [term / total for term in terms]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 10, 33, 600, 2000])
def test_softmax_equals_sixty_digits(dtype, n):
    scores = (5 * np.random.default_rng(n).standard_normal(n)).astype(dtype)
    want = np.array([float(w) for w in exact_weights(scores)])
    # exp of a difference s − m that rounds: relative error |s − m|·eps, then the sum's and the division's
    bound = (np.abs(scores - scores.max()) + 8) * EPS[dtype]
    got = attnsym.softmax(scores)
    assert got.dtype == dtype
    assert np.all(np.abs(got - want) <= bound * want)


def test_many_short_rows_take_the_same_values():
    scores = np.random.default_rng(2).standard_normal((3000, 45))
    whole = attnsym.softmax(scores)
    single = np.array([attnsym.softmax(row) for row in scores])
    np.testing.assert_allclose(whole, single, rtol=16 * EPS[np.float64])


@pytest.mark.parametrize(
    ("scores", "weights"),
    [
        ([1, 1, INF], [0, 0, 1]),
        ([1, INF, INF], [0, 0.5, 0.5]),
        ([INF, -INF, INF, INF], [1 / 3, 0, 1 / 3, 1 / 3]),
        ([-INF, -INF], [0, 0]),
        ([0, -INF], [1, 0]),
        ([NAN, 1], [NAN, NAN]),
        ([NAN, INF], [NAN, NAN]),
        ([NAN, -INF], [NAN, NAN]),
        ([1e4, 0], [1, 0]),
        ([1e30, 1e30, 0], [0.5, 0.5, 0]),
        ([3e38, -3e38], [1, 0]),
        ([0, -1e308], [1, 0]),
        ([7], [1]),
    ],
)
def test_softmax_limits(scores, weights):
    np.testing.assert_array_equal(attnsym.softmax(scores), weights)
    np.testing.assert_allclose(np.exp(attnsym.log_softmax(scores)), weights, rtol=1e-15)


def test_softmax_of_the_last_axis_by_default():
    np.testing.assert_array_equal(attnsym.softmax(np.zeros((2, 2))), np.full((2, 2), 0.5))
    np.testing.assert_array_equal(attnsym.softmax(np.zeros((2, 4)), axis=0), np.full((2, 4), 0.5))
    columns = np.random.default_rng(0).standard_normal((3, 4, 5))
    for function in (attnsym.softmax, attnsym.log_softmax):
        moved = np.moveaxis(function(np.moveaxis(columns, 1, -1)), -1, 1)
        np.testing.assert_array_equal(function(columns, axis=1), moved)


def test_softmax_leaves_its_argument_alone():
    for scores in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3))):
        before = scores.copy()
        for function in (attnsym.softmax, attnsym.log_softmax):
            function(scores)
            function(scores, axis=0)
        np.testing.assert_array_equal(scores, before)


@given(any_rows)
@settings(max_examples=100)
def test_softmax_sums_to_one_or_says_why_not(scores):
    weights = attnsym.softmax(scores)
    assert weights.dtype == scores.dtype
    unknown = np.isnan(scores).any(axis=-1)
    assert np.isnan(weights).all(axis=-1)[unknown].all() if weights.ndim > 1 else np.isnan(weights).all() == unknown
    known = np.atleast_2d(weights)[~np.atleast_1d(unknown)]
    masked = (np.atleast_2d(scores)[~np.atleast_1d(unknown)] == -INF).all(axis=-1)
    assert (known >= 0).all()
    assert (known[masked] == 0).all()
    np.testing.assert_allclose(
        known[~masked].sum(axis=-1, dtype=float), 1, atol=scores.shape[-1] * EPS[scores.dtype.type]
    )


@given(finite_rows)
@settings(max_examples=100)
def test_softmax_does_not_see_a_common_shift(scores):
    shifted = attnsym.softmax(np.round(scores) + scores.dtype.type(64))
    np.testing.assert_array_equal(shifted, attnsym.softmax(np.round(scores)))


@given(finite_rows)
@settings(max_examples=100)
def test_log_softmax_is_the_logarithm(scores):
    logs = attnsym.log_softmax(scores)
    weights = attnsym.softmax(scores)
    assert (logs <= 0).all()
    ordinary = weights > 1e-30
    tolerance = (np.abs(scores - scores.max(axis=-1, keepdims=True)) + scores.shape[-1] + 4) * EPS[scores.dtype.type]
    assert np.all(np.abs(logs - np.log(weights, where=ordinary, out=logs.copy())) <= tolerance)


@pytest.mark.parametrize("gap", [20.0, 40.0, 100.0, 700.0])
def test_log_softmax_keeps_the_small_term(gap):
    # log(1 / (1 + e^−gap)) = −log1p(e^−gap), where rounding to log(1) = 0 is what SciPy 1.17 returns at 40
    top = -math.log1p(math.exp(-gap))
    assert float(attnsym.log_softmax([gap, 0.0])[0]) == pytest.approx(top, rel=1e-15, abs=0)
    others = math.log1p(math.exp(-1) + math.exp(-gap))
    assert float(attnsym.log_softmax([0.0, gap, gap - 1])[0]) == pytest.approx(-gap - others, rel=1e-15, abs=0)


def test_log_softmax_small_term_in_numbers():
    assert float(attnsym.log_softmax([40.0, 0.0])[0]) == -4.248354255291589e-18
    assert float(attnsym.log_softmax([0.0, -40.0])[0]) == -4.248354255291589e-18


@pytest.mark.parametrize(
    ("weights", "nats"),
    [
        ([1, 0], 0.0),
        ([0, 0, 0], 0.0),
        ([], 0.0),
        ([0.5, 0.5], math.log(2)),
        (np.full(1024, 1 / 1024), math.log(1024)),
        ([1 - 2**-30, 2**-30], -(1 - 2**-30) * math.log1p(-(2**-30)) + 2**-30 * 30 * math.log(2)),
    ],
)
def test_entropy_values(weights, nats):
    got = attnsym.entropy(weights)
    assert got == pytest.approx(nats, rel=1e-13, abs=0)
    assert math.copysign(1, got) == 1


def test_entropy_of_rows_and_axes():
    weights = np.array([[0.25, 0.75], [1.0, 0.0], [0.0, 0.0], [NAN, 0.5]])
    want = [0.25 * math.log(4) + 0.75 * math.log(4 / 3), 0, 0, NAN]
    np.testing.assert_allclose(attnsym.entropy(weights), want, rtol=1e-15)
    np.testing.assert_allclose(attnsym.entropy(weights.T, axis=0), want, rtol=1e-15)
    assert attnsym.entropy(np.zeros((0, 3)), axis=0).tolist() == [0, 0, 0]
    assert attnsym.entropy(np.zeros((0, 3))).shape == (0,)


@given(finite_rows)
@settings(max_examples=100)
def test_entropy_lies_between_zero_and_log_n(scores):
    n = scores.shape[-1]
    h = attnsym.entropy(attnsym.softmax(scores))
    assert np.all(h >= 0)
    assert np.all(h <= math.log(n) + 4 * n * EPS[scores.dtype.type])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("n", [2, 7, 64, 1024])
def test_entropy_takes_what_its_own_dtype_rounds(dtype, n):
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    weights = attnsym.softmax(np.random.default_rng(n).standard_normal((50, n)))
    rounded = weights.astype(dtype)
    got = attnsym.entropy(rounded)
    assert got.dtype == (np.float64 if dtype == "float64" else np.float32)
    eps = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(got, attnsym.entropy(weights), atol=n * eps)


@pytest.mark.parametrize(
    "weights",
    [[0.5, 0.4], [1.5, -0.5], [2, 0], [0.5, -0.5], [0.3333, 0.3333, 0.3333], [[1.0, 0.0], [0.5, 0.6]], [INF, 0]],
)
def test_entropy_refuses_what_is_no_distribution(weights):
    with pytest.raises(ValueError, match="weights must"):
        attnsym.entropy(weights)


def test_entropy_refuses_a_negative_weight_beside_a_nan_row():
    with pytest.raises(ValueError, match="negative"):
        attnsym.entropy([[NAN, 1.0], [1.5, -0.5]])


def test_jacobian_is_the_derivative():
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((4, 6))
    jacobian = attnsym.softmax_jacobian(attnsym.softmax(scores))
    step = 1e-6
    for j in range(6):
        bump = step * np.eye(6)[j]
        slope = (attnsym.softmax(scores + bump) - attnsym.softmax(scores - bump)) / (2 * step)
        # central differences: step²/6 · |third derivative| (below 1) plus eps/step of rounding
        np.testing.assert_allclose(jacobian[..., j], slope, atol=step**2 + 2 * EPS[np.float64] / step)
    np.testing.assert_array_equal(jacobian, np.swapaxes(jacobian, -1, -2))
    np.testing.assert_allclose(jacobian.sum(axis=-1), 0, atol=6 * EPS[np.float64])


def test_jacobian_near_one_hot_keeps_its_digits():
    tiny = 1e-12
    p = np.array([1 - tiny, tiny])
    jacobian = attnsym.softmax_jacobian(p)
    assert jacobian[0, 0] == p[0] * (1 - p[0]) > 0
    np.testing.assert_array_equal(attnsym.softmax_jacobian([0.0, 0.0]), np.zeros((2, 2)))


@given(finite_rows, st.integers(0, 2**31))
@settings(max_examples=100)
def test_vjp_is_jacobian_transposed_times_upstream(scores, seed):
    weights = attnsym.softmax(scores)
    upstream = np.random.default_rng(seed).standard_normal(scores.shape).astype(scores.dtype)
    want = (attnsym.softmax_jacobian(weights).astype(float) @ upstream[..., None].astype(float))[..., 0]
    n, eps = scores.shape[-1], EPS[scores.dtype.type]
    np.testing.assert_allclose(attnsym.softmax_vjp(weights, upstream), want, atol=8 * (n + 4) * eps)


@pytest.mark.parametrize("sink", [-50.0, -30.0, -1.0, 0.0, 4.0, 40.0])
def test_jacobian_and_vjp_beside_a_sink_are_derivatives(sink):
    rng = np.random.default_rng(7)
    scores, upstream, step = 2 * rng.standard_normal((3, 5)), 1e3 + rng.standard_normal((3, 5)), 1e-5

    def weights(moved):
        return attnsym.softmax(np.insert(moved, 5, sink, axis=-1))[:, :5]

    slopes = np.empty((3, 5, 5))
    for j in range(5):
        shift = step * np.eye(5)[j]
        slopes[..., j] = (weights(scores + shift) - weights(scores - shift)) / (2 * step)
    p, error = weights(scores), step**2 + EPS[np.float64] / step
    np.testing.assert_allclose(attnsym.softmax_jacobian(p), slopes, atol=error)
    got = attnsym.softmax_vjp(p, upstream)
    np.testing.assert_allclose(got, np.einsum("rij,ri->rj", slopes, upstream), atol=5 * error * np.abs(upstream).max())
    whole = attnsym.softmax(np.insert(scores, 5, sink, axis=-1))
    want = attnsym.softmax_vjp(whole, np.insert(upstream, 5, 0.0, axis=-1))[:, :5]
    np.testing.assert_allclose(got, want, rtol=0, atol=16 * EPS[np.float64] * np.abs(upstream).max())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_vjp_beside_a_sink_equals_that_of_attention(dtype):
    rng = np.random.default_rng(8)
    scores, g = rng.standard_normal((2, 6)), rng.standard_normal((2, 6))
    # keys are unit vectors, so that the scores are the query and ∂/∂scores is ∂/∂query; values are the identity too
    want = attnsym.scaled_dot_product_attention_vjp(scores, np.eye(6), np.eye(6), g, scale=1, sink=0.5)[0]
    weights = attnsym.attention_weights(scores, np.eye(6), scale=1, sink=0.5)
    got = attnsym.softmax_vjp(weights.astype(dtype), g.astype(dtype))
    np.testing.assert_allclose(got, want, atol=16 * np.finfo(dtype).eps * np.abs(g).max())


@pytest.mark.slow
def test_vjp_and_jacobian_beside_a_sink_equal_autograd():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(9)
    scores = torch.tensor(3 * rng.standard_normal((4, 6)), requires_grad=True)
    sinks, g = torch.tensor([[-20.0], [0.0], [2.0], [20.0]], dtype=torch.float64), rng.standard_normal((4, 6))

    def weights(x):
        return torch.softmax(torch.cat([x, sinks], dim=-1), dim=-1)[:, :6]

    (weights(scores) * torch.tensor(g)).sum().backward()
    p = weights(scores).detach().numpy()
    np.testing.assert_allclose(attnsym.softmax_vjp(p, g), scores.grad.numpy(), atol=16 * EPS[np.float64])
    jacobian = torch.autograd.functional.jacobian(lambda x: weights(x).sum(dim=0), scores).permute(1, 0, 2)
    np.testing.assert_allclose(attnsym.softmax_jacobian(p), jacobian.numpy(), atol=16 * EPS[np.float64])


def test_vjp_of_a_saturated_row_does_not_cancel():
    got = attnsym.softmax_vjp([1.0, 1e-20], [1.0, 2.0])
    np.testing.assert_allclose(got, [-1e-20, 1e-20], rtol=1e-15)


def test_vjp_broadcasts_and_masks():
    np.testing.assert_array_equal(attnsym.softmax_vjp(np.zeros((2, 3)), [1.0, 2.0, 3.0]), np.zeros((2, 3)))
    assert attnsym.softmax_vjp(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("function", [attnsym.softmax, attnsym.log_softmax])
@pytest.mark.parametrize(
    ("dtype", "result"),
    [(np.float16, np.float32), (np.float32, np.float32), (np.float64, np.float64), (np.int8, np.float64)],
)
def test_result_types(function, dtype, result):
    assert function(np.arange(3).astype(dtype)).dtype == result


@pytest.mark.parametrize("function", [attnsym.softmax, attnsym.log_softmax, attnsym.entropy, attnsym.softmax_jacobian])
@pytest.mark.parametrize("bad", [["a", "b"], [1j, 0], [True, False], [[1.0], [1.0, 2.0]], [None], 0.5])
def test_refusals(function, bad):
    with pytest.raises(ValueError, match=r"scores|weights"):
        function(bad)


def test_more_refusals():
    with pytest.raises(ValueError, match="scores has no axis 2"):
        attnsym.softmax([1.0], axis=2)
    with pytest.raises(ValueError, match=r"axis must be one whole number: got \(0, 1\)"):
        attnsym.softmax([[1.0]], axis=(0, 1))
    with pytest.raises(ValueError, match=r"got a sum of 1\.000000001"):
        attnsym.entropy([0.5, 0.5 + 1e-9])
    with pytest.raises(ValueError, match="broadcast"):
        attnsym.softmax_vjp([0.5, 0.5], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="at least one axis"):
        attnsym.softmax_vjp(1.0, 1.0)
    with pytest.raises(ValueError, match="masked array"):
        attnsym.softmax(np.ma.masked_array([1.0, 2.0], [True, False]))
