"""Tiles of every size against the whole score matrix; what sends a tile to the plain path; memory and threads."""

import itertools
import math
import threading
import tracemalloc

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import attnsym
from attnsym import _threads, scaled_dot_product_attention, scaled_dot_product_attention_vjp, tiling
from attnsym._blocks import as_problem
from attnsym._plain import output_in_blocks, plain_output
from attnsym._scores import read_inputs
from attnsym._settings import read_settings
from attnsym.tiling import Tiles, choose_tiles, tiled_attention

INF, NAN = math.inf, math.nan


def both_paths(q, k, v, tiles, workers=1, attn_mask=None, **options):
    """Return the tiled output, the plain output, and the tiles that fell back to the plain path."""
    settings = read_settings(enable_gqa=True, **options)
    x = read_inputs(q, k, v, settings, attn_mask)
    problem = as_problem(x, settings)
    fell_back = []

    def plain(heads, queries):
        fell_back.append((heads, queries))
        return output_in_blocks(problem, heads, queries)

    with np.errstate(all="ignore"):  # as the public functions call both
        return tiled_attention(problem, plain, tiles=tiles, workers=workers), plain_output(x, settings), fell_back


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def assert_equal_to_rounding(got, want, value, n_keys, largest_score):
    """A score of size s rounds by s·eps, which moves its weight by that factor; then come the sums over the keys."""
    eps = np.finfo(want.dtype).eps
    tolerance = (4 * largest_score + n_keys + 16) * eps * np.abs(value[np.isfinite(value)]).max()
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


@pytest.mark.parametrize("scale", [None, 8.0])  # without and with a running maximum
@pytest.mark.parametrize(
    ("heads", "queries", "keys"), list(itertools.product([1, 2, 3, 8], [1, 3, 16, 100], [1, 2, 5, 23, 100]))
)
def test_every_tile_size_equals_the_whole(heads, queries, keys, scale):
    rng = np.random.default_rng(heads * 1000 + queries * 10 + keys)
    q, k, v = normal(rng, 2, 4, 17, 6), normal(rng, 2, 2, 23, 6), normal(rng, 2, 2, 23, 5)
    got, want, fell_back = both_paths(q, k, v, Tiles(heads, queries, keys), scale=scale)
    assert fell_back == []
    assert_equal_to_rounding(got, want, v, 23, 30 if scale is None else 600)


@given(st.data())
@hypothesis_settings(max_examples=100)
def test_every_option_equals_the_whole(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    n_queries, n_keys = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    heads, kv_heads = data.draw(st.sampled_from([(1, 1), (4, 1), (4, 2), (3, 3)]))
    batch = data.draw(st.sampled_from([1, 2]))
    q = normal(rng, batch, heads, n_queries, 3, dtype=dtype)
    k, v = (normal(rng, 2, kv_heads, n_keys, d, dtype=dtype) for d in (3, 2))
    mask_shape = data.draw(st.sampled_from([(n_queries, n_keys), (1, n_keys), (n_queries, 1), (2, 1, 1, n_keys)]))
    kind = data.draw(st.sampled_from([None, "bool", "float", "lowest"]))
    mask = None
    if kind == "bool":
        mask = rng.random(mask_shape) < 0.6
    elif kind is not None:
        blocked = rng.random(mask_shape) < 0.4
        mask = np.where(
            blocked, -INF if kind == "float" else np.finfo(dtype).min, normal(rng, *mask_shape, dtype=dtype)
        )
    scale = data.draw(st.sampled_from([None, 0.0, 20.0, -3.0, "queries"]))
    largest = 40 * (20 if scale == "queries" else abs(1 if scale is None else scale)) + 10
    scale = rng.uniform(-20, 20, (heads, n_queries)) if scale == "queries" else scale
    sink = data.draw(st.sampled_from([0.0, -INF, 50.0, rng.standard_normal(heads)]))
    mechanism = data.draw(st.sampled_from([{}, {"sink": sink}, {"normalizer": "sigmoid"}, {"normalizer": "relu"}]))
    got, want, fell_back = both_paths(
        q, k, v,
        Tiles(*(data.draw(st.integers(1, 13)) for _ in range(3))),
        workers=data.draw(st.integers(1, 3)),
        score=data.draw(st.sampled_from(["dot", "cosine"])),
        scale=scale,
        softcap=data.draw(st.sampled_from([None, 2.0, 100.0])),
        attn_mask=mask,
        is_causal=data.draw(st.booleans()),
        window=data.draw(st.sampled_from([None, 1, 4, (2, 0), (0, None)])),
        causal_alignment=data.draw(st.sampled_from(["top_left", "bottom_right"])),
        **mechanism,
    )  # fmt: skip
    assert fell_back == []
    heaviest = largest if mechanism.get("normalizer") == "relu" else 1
    assert_equal_to_rounding(got, want, heaviest * v, n_keys, largest)


@pytest.mark.parametrize("chunk", [3, 7, 128, 256])
def test_a_mask_that_varies_by_query_is_read_row_by_row(chunk):
    rng = np.random.default_rng(0)
    q, k, v = normal(rng, 1, 1, 256, 4), normal(rng, 1, 1, 256, 4), normal(rng, 1, 1, 256, 4)
    mask = np.arange(256) <= np.arange(256)[:, None] + 50
    got, want, _ = both_paths(q, k, v, Tiles(1, chunk, chunk), attn_mask=mask)
    assert_equal_to_rounding(got, want, v, 256, 20)
    assert np.abs(got - scaled_dot_product_attention(q, k, v, mask[:1])).max() > 0.1


@pytest.mark.parametrize("scale", [22.6 / 8, 1e4, 1e27])
def test_saturated_scores(scale):
    rng = np.random.default_rng(1)
    q, k, v = normal(rng, 1, 2, 40, 64), normal(rng, 1, 2, 60, 64), normal(rng, 1, 2, 60, 8)
    got, want, fell_back = both_paths(q, k, v, Tiles(1, 16, 16), scale=scale)
    assert fell_back == []
    # at scale 1e27 a row is one-hot, so that rounding of a score has no effect beyond ties, which normals do not have
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-3 if scale < 10 else 1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("poison", [NAN, INF, -INF, "large"])
@pytest.mark.parametrize("where", ["query", "key", "value", "mask"])
def test_what_a_tile_cannot_do_goes_to_the_plain_path(dtype, poison, where):
    rng = np.random.default_rng(2)
    q, k, v = (normal(rng, 1, 2, 12, 4, dtype=dtype) for _ in range(3))
    poison = np.finfo(dtype).max / 2 if poison == "large" else poison
    mask = np.zeros((12, 12), dtype)
    {"query": q[0, 0], "key": k[0, 0], "value": v[0, 0], "mask": mask}[where][5, 3] = poison
    got, want, fell_back = both_paths(q, k, v, Tiles(1, 4, 5), attn_mask=mask, is_causal=True)
    clean = where == "mask" and (poison == -INF or np.isfinite(poison))
    assert bool(fell_back) != clean
    np.testing.assert_allclose(got, want, rtol=1e-4 if dtype == np.float32 else 1e-12, atol=1e-6)


@pytest.mark.parametrize("score", [-29.0, 29.0])
def test_tiny_and_huge_values_keep_their_digits(score):
    rng = np.random.default_rng(3)
    # all scores alike, as far from 0 as goes without a maximum subtracted
    q, k = np.full((1, 1, 30, 1), score, np.float32), 1 - 0.01 * rng.random((1, 1, 40, 1), np.float32)
    for size in (1e-36, 1e-25, 1e30, 1e36):
        v = normal(rng, 1, 1, 40, 3) * np.float32(size)
        got, want, _ = both_paths(q, k, v, Tiles(1, 8, 8))
        np.testing.assert_allclose(got / size, want / size, rtol=0, atol=300 * 2.0**-23)


@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"window": 50}, {"softcap": 3.0}, {"dropout_p": 0.3, "rng": 1}]
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_public_function_on_both_sides_of_the_threshold(options, dtype, monkeypatch):
    rng = np.random.default_rng(4)
    q, k, v = (normal(rng, 2, 3, 200, 8, dtype=dtype) for _ in range(3))
    tiled = scaled_dot_product_attention(q, k, v, **options)
    monkeypatch.setattr("attnsym._settings._LEAN_SCORES", 1 << 40)
    whole = scaled_dot_product_attention(q, k, v, **options)
    assert tiled.dtype == whole.dtype == dtype
    eps = {np.float16: 2.0**-10, np.float32: 2.0**-20, np.float64: 2.0**-48}[dtype]
    np.testing.assert_allclose(tiled.astype(float), whole.astype(float), rtol=0, atol=8 * eps)


@pytest.mark.parametrize("odd", [[NAN, INF, -INF, 0, 1e-30], [NAN, 1e18, -1e30, 3e38, -3e38, 0]])
def test_odd_numbers_end_where_the_plain_path_puts_them(odd):
    rng = np.random.default_rng(9)

    def array(*shape):
        share = rng.choice([0, 0.02, 0.2])
        return np.where(rng.random(shape) < share, rng.choice(odd, shape), rng.standard_normal(shape)).astype(
            np.float32
        )

    for _ in range(150):
        n_queries, n_keys, d = rng.integers(1, 7, 3)
        q, k, v = array(1, 2, n_queries, d), array(1, 1, n_keys, d), array(1, 1, n_keys, 2)
        mask = (None, rng.random((n_queries, n_keys)) < 0.6, array(n_queries, n_keys))[rng.integers(3)]
        with np.errstate(all="ignore"):
            got, want, _ = both_paths(
                q, k, v, Tiles(*rng.integers(1, 4, 3)), attn_mask=mask, is_causal=bool(rng.integers(2)), scale=1.0
            )
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
        finite = np.isfinite(want)
        assert_equal_to_rounding(got[finite], want[finite], v, n_keys, 500)


def test_columns_and_strided_arrays_on_the_tiled_path():
    rng = np.random.default_rng(5)
    q, k, v = (normal(rng, 2, 3, 260, 8) for _ in range(3))
    want = scaled_dot_product_attention(q, k, v, is_causal=True)
    turned = scaled_dot_product_attention(
        *(x.swapaxes(-1, -2) for x in (q, k, v)), is_causal=True, convention="columns"
    )
    np.testing.assert_allclose(turned.swapaxes(-1, -2), want, rtol=0, atol=1e-5)
    strided = [np.repeat(x, 2, axis=-1)[..., ::2][:, ::-1] for x in (q, k, v)]
    np.testing.assert_allclose(scaled_dot_product_attention(*strided, is_causal=True)[:, ::-1], want, rtol=0, atol=1e-5)


def test_the_score_matrix_is_never_whole():
    rng = np.random.default_rng(6)
    q, k, v = (normal(rng, 1, 1, 2048, 16) for _ in range(3))
    scores_bytes = 2048 * 2048 * 4
    poisoned = v.copy()
    poisoned[0, 0, 100, 0] = NAN
    for value, options in ((v, {}), (v, {"is_causal": True}), (v, {"dropout_p": 0.1, "rng": 0}), (poisoned, {})):
        tracemalloc.start()
        scaled_dot_product_attention(q, k, value, **options)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < scores_bytes / 2


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": (9, 3)}, {"softcap": 300.0}, {"sink": 40.0}])
def test_exponentials_below_the_normal_numbers_change_nothing(wide, options, monkeypatch):
    """Where they are slow, they are raised to the least normal number: on both kinds of processor the same output."""
    for module in ("_score_tiles", "tiling"):
        monkeypatch.setattr(f"attnsym.{module}.exponentials_are_wide", lambda: wide)
    rng = np.random.default_rng(10)
    q, k, v = (normal(rng, 1, 2, 40, 64) for _ in range(3))
    v[..., 0] = 0
    v[..., 7, 0] = 1  # of one component, only one key has something to give
    got, want, fell_back = both_paths(q, k, v[..., :1], Tiles(2, 16, 16), scale=8.0, **options)
    assert fell_back == []
    # 40 keys of weight e to the minus 86, of a sum of at least e to the minus 30, where the maximum was guessed
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=40 * math.exp(-86 + 30))
    got, want, _ = both_paths(q, k, v[..., 2:], Tiles(2, 16, 16), scale=8.0, **options)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-3)
    alone, _, _ = both_paths(q, k, v[..., 2:], Tiles(2, 16, 16), scale=8.0, window=(0, 0))
    np.testing.assert_array_equal(alone, v[..., 2:])  # what is hidden has no weight at all


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"window": (30, 20)}, {"sink": 40.0}, {"sink": 400.0}, {"softcap": 90.0}]
)
@pytest.mark.parametrize("outlier", [None, 3, 47])
def test_the_maximum_of_a_row_is_guessed_or_found(wide, options, outlier, monkeypatch):
    """With scores of deviation 20 a few keys tell the size of all; where one is far larger, the guess is given up."""
    for module in ("_score_tiles", "tiling"):
        monkeypatch.setattr(f"attnsym.{module}.exponentials_are_wide", lambda: wide)
    guessed = []
    mix = tiling._Worker._mix_at_fixed_shift
    monkeypatch.setattr(
        tiling._Worker, "_mix_at_fixed_shift", lambda *a: guessed.append((a[3], done := mix(*a))) or done
    )
    rng = np.random.default_rng(11)
    q, k, v = normal(rng, 2, 40, 16), normal(rng, 2, 64, 16), normal(rng, 2, 64, 3)
    if outlier is not None:
        k[:, outlier] = 8 * q[:, 39]  # beyond the sample of 16 keys or within it
    got, want, fell_back = both_paths(q, k, v, Tiles(2, 20, 20), scale=5.0, **options)
    assert fell_back == []
    assert_equal_to_rounding(got, want, v, 64, float(np.abs(q @ k.swapaxes(-1, -2)).max() * 5))
    assert all(sample is not None for sample, _ in guessed)
    if "softcap" in options:
        assert guessed == []
    elif options in ({}, {"sink": 40.0}):
        assert [done for _, done in guessed] == [outlier != 47] * 2


def test_a_sum_over_small_values_keeps_its_digits_under_a_guess():
    rng = np.random.default_rng(12)
    q, k, v = (normal(rng, 1, 40, 16) for _ in range(3))
    for size in (1e-35, 1e-14, 1e11, 1e30):  # within the range in which a guess is tried, and outside
        got, want, _ = both_paths(q, k, v * np.float32(size), Tiles(1, 20, 20), scale=5.0)
        assert_equal_to_rounding(got, want, v * np.float32(size), 40, 5 * 16 * 16)


def test_chosen_tiles_stay_in_cache():
    for shape in ((1, 1, 4096, 4096, 64), (8, 12, 128, 128, 32), (1, 1, 9, 100_000, 2)):
        batch, heads, n_queries, n_keys, d = shape
        settings = read_settings()
        x = read_inputs(
            np.zeros((batch, heads, n_queries, d), np.float32),
            *(np.zeros((batch, heads, n_keys, d), np.float32) for _ in range(2)),
            settings,
        )
        problem = as_problem(x, settings)
        tiles = choose_tiles(problem)
        assert 0 < tiles.heads * tiles.queries * tiles.keys * 4 <= 1 << 20


# --- threads --------------------------------------------------------------------------------------------------------


def test_any_number_of_workers_gives_the_same_numbers():
    rng = np.random.default_rng(7)
    q, k, v, g = (normal(rng, 1, 1, 50, 8) for _ in range(4))
    q[..., 20, :] *= 30  # some tiles subtract a maximum, some need not
    one, *more = (both_paths(q, k, v, Tiles(1, 8, 16), workers=w, is_causal=True)[0] for w in (1, 2, 5))
    for output in more:
        np.testing.assert_array_equal(output, one)
    q, k, v, g = (normal(rng, 1, 1, 600, 8) for _ in range(4))
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        alone = scaled_dot_product_attention_vjp(q, k, v, g), scaled_dot_product_attention(q, k, v)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        together = scaled_dot_product_attention_vjp(q, k, v, g), scaled_dot_product_attention(q, k, v)
    for left, right in zip((*alone[0], alone[1]), (*together[0], together[1]), strict=True):
        np.testing.assert_array_equal(left, right)


def test_blas_is_held_to_one_thread_and_given_back():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = _threads.available_workers()
        seen = []

        def new_worker():
            return lambda task: seen.append(([x.num_threads for x in _threads._blas().lib_controllers], task))

        _threads.for_each(6, new_worker, before)
        assert sorted(task for _, task in seen) == list(range(6))
        assert all(set(counts) == {1} for counts, _ in seen)
        assert _threads.available_workers() == before


def test_callers_in_several_threads_leave_blas_as_it_was():
    before = _threads.available_workers()
    rng = np.random.default_rng(8)
    q, k, v = (normal(rng, 1, 4, 200, 8) for _ in range(3))
    want = scaled_dot_product_attention(q, k, v)
    results = []
    callers = [threading.Thread(target=lambda: results.append(scaled_dot_product_attention(q, k, v))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 4
    for output in results:
        np.testing.assert_array_equal(output, want)
    assert _threads.available_workers() == before


def test_a_failure_in_a_worker_is_raised():
    def new_worker():
        def run(task):
            raise ValueError(f"task {task} failed")

        return run

    for workers in (1, 3):
        with pytest.raises(ValueError, match=r"task \d failed"):
            _threads.for_each(5, new_worker, workers)


def test_small_problems_never_look_for_blas(monkeypatch):
    monkeypatch.setattr(_threads, "_blas", lambda: pytest.fail("looked for BLAS"))
    attnsym.attention_weights(np.ones((1000, 1, 8)), np.ones((1000, 10, 8)))
    scaled_dot_product_attention(np.ones((1000, 1, 8)), np.ones((1000, 200, 8)), np.ones((1000, 200, 8)))
