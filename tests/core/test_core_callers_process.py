"""Every public function under every error state and flush mode, and at the edges of its arguments, by its signature."""

import inspect
import math
import threading
import warnings

import ml_dtypes
import numpy as np
import pytest

import attnsym
from attnsym._threads import one_blas_thread

INF, NAN = math.inf, math.nan
BIG = [2**62, 2**63 - 1, 2**63, 2**70, -(2**63), -(2**70), np.int64(2**63 - 1), np.uint64(2**64 - 1)]
NUMBERS = [0.0, -0.0, 1e308, -1e308, 1e-320, 5e-324, INF, -INF, NAN, 10**400, np.float16(1), np.longdouble("1e400")]
ODD = [0.0, -0.0, 1e-320, -5e-324, 1e-160, 1e160, 1e308, -1e308, INF, -INF, NAN, 1.0, -2.0]


@np.errstate(all="ignore")  # of the test's own conversions
def array(*shape, seed=0, odd=False, dtype=np.float64):
    rng = np.random.default_rng(seed)
    plain = rng.standard_normal(shape)
    return (
        np.where(rng.random(shape) < 0.2, rng.choice(ODD, shape), plain).astype(dtype) if odd else plain.astype(dtype)
    )


def tensors(*lead, n=5, m=6, **options):
    """Return query, key and value."""
    return tuple(array(*lead, rows, 4, seed=i, **options) for i, rows in enumerate((n, m, m)))


ARRAYS = {
    "of one head": tensors(),
    "odd numbers": tensors(2, 3, odd=True),
    "odd numbers in tiles": tensors(1, n=300, m=450, odd=True),
    "empty batch": tensors(0, 3),
    "no queries": tensors(2, n=0),
    "no keys": tensors(2, m=0),
    "bfloat16": tuple(x.astype(ml_dtypes.bfloat16) for x in tensors(2)),
    "float16": tuple(x.astype(np.float16) for x in tensors(2)),
    "odd float32": tensors(2, 3, odd=True, dtype=np.float32),
    "odd float32 in tiles": tensors(2, n=300, m=450, odd=True, dtype=np.float32),
    "longdouble": tuple(x.astype(np.longdouble) for x in tensors(2)),
    "integers": tuple(np.ones((n, 4), int) for n in (5, 6, 6)),
    "lists": tuple(x.tolist() for x in tensors()),
}
ODD_MASK = array(5, 6, odd=True, seed=7)
SCALES = [*NUMBERS, np.arange(5.0), [1e308, 0, 1e-320, -1e-308, 1.0], array(5, odd=True), "1"]
OPTIONS = {
    "attn_mask": [
        np.tri(5, 6, dtype=bool),
        ODD_MASK,
        array(5, 6, odd=True, seed=8, dtype=np.float16),
        np.zeros((5, 6), bool),
    ],
    "is_causal": [True, np.True_, 1, "yes"],
    "scale": SCALES,
    "enable_gqa": [True],
    "score": ["cosine", lambda q, k: q @ np.swapaxes(k, -1, -2), "no"],
    "softcap": [2.0, 1e-300, *NUMBERS],
    "window": [1, (1, 0), [2, None], 0, True, *BIG, *((n, 0) for n in BIG), (0, 2**63 - 1)],
    "causal_alignment": ["bottom_right"],
    "convention": ["columns"],
    "sink": [*NUMBERS, [0.0, 1.0]],
    "normalizer": ["sigmoid", "relu"],
    "normalizer_bias": NUMBERS,
}
DROPOUT = {"dropout_p": [0.5, 1, NAN, INF, -1, 2], "rng": [0, *BIG, "seed", 1.5, INF]}
SIZES = [0, 1, 3, *BIG, 1.5, True]
WEIGHTS = [
    array(3, 4, odd=True), [1.0, 0.0], [0.0, 0.0], [1.0, 5e-324], [], np.zeros((0, 3)), np.zeros((3, 0)),
    np.full((300, 400), 1 / 400), np.array([1.0, 0.0], ml_dtypes.bfloat16), 1.0, [1e308, 1e308], [1 - 1e-300, 1e-300],
]  # fmt: skip
AXES = {"axis": [0, *BIG, 1.5, True]}
VECTORS = [*(x[0] for x in ARRAYS.values()), array(2, 3, 4), [3.0, 4.0], 1.0, "x"]

# function -> (the arguments of ordinary calls, further values of each keyword)
CALLS = {
    "softmax": ([{"scores": x} for x in WEIGHTS], AXES),
    "log_softmax": ([{"scores": x} for x in WEIGHTS], AXES),
    "entropy": ([{"weights": x} for x in WEIGHTS], AXES),
    "softmax_jacobian": ([{"weights": x} for x in WEIGHTS if np.size(x) < 1000], {}),
    "softmax_vjp": ([{"weights": x, "upstream": y} for x in WEIGHTS for y in (1e308, array(3, 4, odd=True), x)], {}),
    "attention_scores": (
        [{"query": q, "key": k} for q, k, _ in ARRAYS.values()],
        {name: OPTIONS[name] for name in ("scale", "score", "softcap", "enable_gqa", "convention")}
        | {name: OPTIONS[name] for name in ("sink", "normalizer", "normalizer_bias")},
    ),
    "attention_weights": ([{"query": q, "key": k} for q, k, _ in ARRAYS.values()], OPTIONS),
    "scaled_dot_product_attention": (
        [{"query": q, "key": k, "value": v} for q, k, v in ARRAYS.values()],
        OPTIONS | DROPOUT,
    ),
    "scaled_dot_product_attention_vjp": (
        [{"query": q, "key": k, "value": v, "upstream": np.asarray(q)[..., :4]} for q, k, v in ARRAYS.values()],
        OPTIONS,
    ),
    "explain": (
        [
            {"query": q, "key": array(3, 2), "value": v}
            for q in ([1e160, -1.0], [5e-324, 0])
            for v in (None, array(3, 2))
        ],
        {
            "scale": SCALES,
            "softcap": OPTIONS["softcap"],
            "attn_mask": [[0.0, -INF, 1e308], [True, False, True]],
            "sink": NUMBERS,
        },
    ),
    "split_heads": (
        [{"x": array(2, 3, 4), "num_heads": 2}, {"x": np.zeros((2, 0)), "num_heads": 3}],
        {"num_heads": SIZES},
    ),
    "merge_heads": ([{"x": array(2, 3, 4)}, {"x": np.zeros((0, 2, 3, 4))}, {"x": 1.0}], {}),
    "multi_head_attention": (
        [
            {
                "query": x,
                "key": x,
                "value": x,
                "num_heads": 2,
                **{f"w_{n}": array(4, 4) for n in ("query", "key", "value")},
            }
            for x in (array(5, 4), array(2, 5, 4, odd=True), np.zeros((0, 4)), np.zeros((0, 5, 4)))
        ],
        {name: OPTIONS[name] for name in OPTIONS if name not in ("score", "convention", "enable_gqa")}
        | DROPOUT
        | {"num_heads": SIZES, "num_key_value_heads": SIZES, "w_output": [array(4, 4), array(4, 3, odd=True)]}
        | {"output_dropout_p": DROPOUT["dropout_p"]},
    ),
    "causal_mask": (
        [{"n_queries": 2, "n_keys": 3}],
        {"n_queries": SIZES, "n_keys": SIZES, "alignment": ["bottom_right", 1]},
    ),
    "window_mask": (
        [{"n_queries": 2, "n_keys": 3, "window": 1}],
        {"n_queries": SIZES, "n_keys": SIZES, "window": OPTIONS["window"], "alignment": ["bottom_right"]},
    ),
    "padding_mask": (
        [{"valid": x} for x in ([[1, 0]], [[True]], np.zeros((0, 2), int), [[2]], [[0.5]], 1, BIG[-1])],
        {},
    ),
    "alibi_bias": (
        [{"num_heads": 3, "n_queries": 2, "n_keys": 3}],
        dict.fromkeys(("num_heads", "n_queries", "n_keys"), SIZES) | {"alignment": ["bottom_right", "left"]},
    ),
    "rotary": (
        [{"x": x, "positions": 0} for x in VECTORS],
        {"base": NUMBERS, "positions": [array(5), array(5, odd=True), 1e308, *BIG, [], "1"]},
    ),
    "qk_norm": (
        [{"x": x} for x in VECTORS],
        {"kind": ["rms", "no"], "eps": NUMBERS, "gain": [*NUMBERS, array(4, odd=True)]},
    ),
}


def every_call(name):
    """Yield keywords: each of the ordinary calls, and the first with one further value of each keyword."""
    ordinary, further = CALLS[name]
    yield from ordinary
    for keyword, values in further.items():
        for value in values:
            extra = {"normalizer": "relu"} if keyword == "normalizer_bias" else {}
            extra |= {"dropout_p": 0.5} if keyword == "rng" else {"rng": 1} if "dropout" in keyword else {}
            yield ordinary[0] | {keyword: value} | extra


def outcome(function, arguments):
    """Return what came back as a list of arrays, or the error's words."""
    before = np.geterr()
    try:
        result = function(**arguments)
    except ValueError as error:
        return f"{error}"
    finally:
        assert np.geterr() == before
    if isinstance(result, attnsym.Explanation):
        return [np.array([*result.query, result.exponential_sum, result.entropy, *(row.weight for row in result.rows)])]
    return [np.asarray(part) for part in (result if isinstance(result, tuple) else (result,))]


def outcomes(name):
    function = getattr(attnsym, name)
    return [outcome(function, arguments) for arguments in every_call(name)]


def in_a_thread(work):
    """Run `work` in a thread of its own, whose processor flags end with it, and return what it returns."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_the_sweep_knows_every_function_and_keyword():
    functions = {name for name in attnsym.__all__ if inspect.isfunction(getattr(attnsym, name))}
    assert set(CALLS) == functions
    for name in functions:
        given = {keyword for arguments in every_call(name) for keyword in arguments}
        assert given == set(inspect.signature(getattr(attnsym, name)).parameters), name


@pytest.mark.parametrize("name", CALLS)
def test_no_error_state_makes_a_function_fail_or_speak(name):
    want = outcomes(name)  # in which any other exception than ValueError fails the test
    assert any(not isinstance(result, str) for result in want)
    assert not any("\n" in result for result in want if isinstance(result, str))
    for mode in ("raise", "warn"):
        with np.errstate(all=mode), warnings.catch_warnings():
            warnings.simplefilter("error")
            got = outcomes(name)
        for left, right in zip(got, want, strict=True):
            assert type(left) is type(right)
            if isinstance(left, str):
                assert left == right
            else:
                for a, b in zip(left, right, strict=True):
                    np.testing.assert_array_equal(a, b)


def flushed(x):
    """Return an argument with its subnormal numbers replaced by 0, as a processor that flushes them sees it."""
    if isinstance(x, list):
        return [flushed(part) for part in x]
    if isinstance(x, float) or (isinstance(x, np.ndarray) and x.dtype.kind == "f"):
        tiny = np.finfo(np.asarray(x).dtype).tiny
        return np.where(np.abs(x) < tiny, x * 0, x) if isinstance(x, np.ndarray) else x * (abs(x) >= tiny)
    return x


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_flushed_subnormals_act_as_zero(name):
    torch = pytest.importorskip("torch")
    function = getattr(attnsym, name)

    def under_flush():
        torch.set_flush_denormal(True)
        assert np.float64(5e-324) * 1 == 0
        return outcomes(name)

    with one_blas_thread(), np.errstate(all="ignore"):  # other threads of BLAS may not flush
        got = in_a_thread(under_flush)
        want = [outcome(function, {key: flushed(x) for key, x in a.items()}) for a in every_call(name)]
    for left, right, call in zip(got, want, every_call(name), strict=True):
        assert type(left) is type(right), call
        if not isinstance(left, str):
            for a, b in zip(left, right, strict=True):
                small = 0 if a.dtype.kind not in "f" else 2.0**30 * float(np.finfo(a.dtype).tiny)
                np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=0, atol=small, err_msg=str(call))


def test_a_score_function_runs_under_the_callers_error_state():
    seen = []

    def score(q, k):
        seen.append(np.geterr())
        return q @ k.T

    x = np.ones((2, 3))
    with np.errstate(divide="raise", over="warn", under="raise", invalid="print"):
        state = np.geterr()
        attnsym.attention_weights(x, x, score=score)
        attnsym.scaled_dot_product_attention(x, x, x * INF, score=score)
        assert np.geterr() == state
    assert all(given == state for given in seen)
    assert len(seen) >= 2


@pytest.mark.slow
def test_entropy_under_flush_to_zero():
    torch = pytest.importorskip("torch")

    def entropies():
        torch.set_flush_denormal(True)
        causal = attnsym.attention_weights(np.ones((3, 2)), np.ones((3, 2)), is_causal=True)
        return float(attnsym.entropy([1.0, 0.0])), attnsym.entropy(causal)

    one_hot, rows = in_a_thread(entropies)
    assert one_hot == 0
    np.testing.assert_allclose(rows, np.log([1, 2, 3]), rtol=1e-15)


@pytest.mark.parametrize(("dtype", "cap"), [(np.float32, 1e38), (np.float64, 1e308), (np.float64, 1e25)])
def test_a_cap_far_above_the_scores_leaves_them(dtype, cap):
    x = np.full((400, 1), 1.5, dtype)
    x[0] = -1e-6
    plain = attnsym.attention_scores(x, x, scale=1)
    np.testing.assert_array_equal(attnsym.attention_scores(x, x, scale=1, softcap=cap), plain)
    v = x.copy()
    want = attnsym.scaled_dot_product_attention(x, x, v, scale=1)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(attnsym.scaled_dot_product_attention(x, x, v, scale=1, softcap=cap), want, rtol=64 * eps)


def test_a_finite_score_beside_one_that_overflows_on_the_way_keeps_its_digits():
    q, k = np.array([[1e308, 1.0], [1e-3, 1.0]]), np.array([[1e308, -1e308], [2.0, 3e-5], [-1e308, 1e308]])
    got = attnsym.attention_scores(q, k, scale=0.5)
    np.testing.assert_allclose(got[:, 1], [1e308, 0.5 * (2e-3 + 3e-5)], rtol=1e-15)
    np.testing.assert_array_equal(got[0], [INF, got[0, 1], -INF])


class Elsewhere:
    """A tensor that NumPy cannot read: of a type it lacks, on another device, or recorded for autograd."""

    def __init__(self, error):
        self.error = error

    def __array__(self, dtype=None, copy=None):
        raise self.error


@pytest.mark.parametrize("error", [TypeError, RuntimeError, ValueError], ids=lambda error: error.__name__)
@pytest.mark.parametrize("name", CALLS)
def test_a_tensor_that_numpy_cannot_read_is_refused_by_name(name, error):
    numbers = {"axis", "num_heads", "n_queries", "n_keys", "window"}
    for argument in set(CALLS[name][0][0]) - numbers:
        with pytest.raises(ValueError, match=f"^{argument} must be an array of numbers: no such type here$"):
            getattr(attnsym, name)(**CALLS[name][0][0] | {argument: Elsewhere(error("no such\ntype here"))})
    if "attn_mask" in inspect.signature(getattr(attnsym, name)).parameters:
        with pytest.raises(ValueError, match=r"^attn_mask must be an array of numbers"):
            getattr(attnsym, name)(**CALLS[name][0][0] | {"attn_mask": Elsewhere(error("no such type"))})
