"""Audit of tensors: numbers against plain loops and the attention core, verdicts on tensors made to order."""

import json
import re
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import audit_example, audit_files, audit_tensors, expected_entropy
from analysis.audit.files.naming import find_layers
from analysis.audit.tensors.rows import HeadAudit
from analysis.cli import main
from analysis.predict.interpolated import predicted_entropy
from attnsym import attention_weights, entropy, split_heads

EXAMPLE = "analysis/data/minilm_example.npz"


def plain(query, key, visible, scale, cap=None, bias=None):
    """Return raw variance, in row, entropy ratio, tr J, largest and first share of one head, a row at a time."""
    raw, rows = [], []
    for i in range(len(query)):
        seen = [j for j in range(len(key)) if visible[i, j]]
        if len(seen) < 2:
            continue
        products = np.array([float(np.dot(query[i].astype(float), key[j].astype(float))) for j in seen])
        scores = products * scale
        if cap:
            scores = cap * np.tanh(scores / cap)
        if bias is not None:
            scores = scores + bias[i, seen]
        p = np.exp(scores - scores.max())
        p /= p.sum()
        h = -sum(x * np.log(x) for x in p if x > 0)
        raw.append(products)
        first = p[seen.index(0)] if 0 in seen else 0.0
        rows.append([scores.var(), h / np.log(len(seen)), 1 - (p**2).sum(), abs(scores).max(), first])
    rows = np.array(rows)
    means = rows.mean(axis=0)
    return np.concatenate(raw).var(), means[0], means[1], means[2], rows[:, 3].max(), means[4]


def reported(head):
    return (
        head.score_variance,
        head.within_row_variance,
        head.entropy_ratio,
        head.jacobian_trace,
        head.largest_score,
        head.first_key_share,
    )


def gaussian(seed, *shape, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_the_example_gives_the_numbers_of_a_plain_loop():
    stored = np.load(EXAMPLE, allow_pickle=False)
    n = int(stored["attention_mask"].sum())
    audit = audit_example()
    assert [h.layer for h in audit.heads[::12]] == [f"layer{i}" for i in range(6)]
    for head in audit.heads:
        q, k = (stored[f"{head.layer}.{role}"][0, head.head, :n] for role in "qk")
        np.testing.assert_allclose(reported(head), plain(q, k, np.ones((n, n), bool), 32**-0.5), rtol=1e-9)
        assert (head.rows, head.rows_padded, head.n_keys) == (16, 18, 34)


def test_the_example_as_a_table_to_two_digits():
    # means over heads of all-MiniLM-L6-v2, 16 tokens: variance/d_k, in row, entropy/log m, tr J, largest score
    # (recomputed with float64 loops from the float32 activations)
    table = [
        (11.0, 10.6, 0.752, 0.768, 33.4),
        (5.46, 5.14, 0.425, 0.488, 11.9),
        (4.12, 3.69, 0.46, 0.512, 7.63),
        (2.07, 1.8, 0.587, 0.614, 6.31),
        (1.78, 1.65, 0.615, 0.638, 6.97),
        (1.31, 1.19, 0.741, 0.785, 5.39),
    ]
    for layer, row in zip(audit_example().layers, table, strict=True):
        values = (layer.score_variance_ratio, layer.within_row_variance, layer.entropy_ratio, layer.jacobian_trace)
        np.testing.assert_allclose([*values, layer.largest_score], row, rtol=5e-3)


@settings(max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    d_k=st.integers(1, 6),
    is_causal=st.booleans(),
    window=st.sampled_from([None, 1, 3, (2, 1), (0, 0)]),
    cap=st.sampled_from([None, 2.5]),
    scale=st.sampled_from([None, "unscaled", 0.3, -1.0]),
    mask_kind=st.sampled_from([None, "boolean", "additive", "hiding"]),
    padded=st.integers(0, 3),
)
def test_every_setting_agrees_with_the_plain_loop(seed, lengths, d_k, is_causal, window, cap, scale, mask_kind, padded):
    rng = np.random.default_rng(seed)
    (n_queries, n_keys), (batch, heads) = lengths, (2, 2)
    q, k = rng.standard_normal((batch, heads, n_queries, d_k)), rng.standard_normal((batch, heads, n_keys, d_k)) + 0.5
    i, j = np.arange(n_queries)[:, None], np.arange(n_keys)[None, :]
    visible = np.ones((n_queries, n_keys), bool)
    visible &= (j <= i) | (not is_causal)
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window - 1, window - 1)
        visible &= (j >= i - left) & (j <= i + right)
    mask, bias = None, None
    if mask_kind == "boolean":
        mask = rng.random((n_queries, n_keys)) < 0.7
        visible &= mask
    elif mask_kind is not None:
        mask = bias = rng.standard_normal((n_queries, n_keys))
        if mask_kind == "hiding":
            mask[rng.random(mask.shape) < 0.3] = -np.inf
            visible &= mask > -np.inf
    valid = np.ones((batch, n_keys), int)
    valid[1, n_keys - padded :] = 0
    audit = audit_tensors(
        q, k, attn_mask=mask, padding_mask=valid, is_causal=is_causal, window=window, softcap=cap, scale=scale
    )
    number = {None: d_k**-0.5, "unscaled": 1.0}.get(scale, scale)
    for head in audit.heads:
        kept = [visible & valid[b].astype(bool)[None, :] for b in range(batch)]
        if n_queries == n_keys:
            kept = [seen & valid[b].astype(bool)[:, None] for b, seen in enumerate(kept)]
        alone = [
            audit_tensors(q[b], k[b], attn_mask=kept[b] if bias is None else np.where(kept[b], bias, -np.inf),
                          softcap=cap, scale=scale, layout="hsd").heads[head.head]
            for b in range(batch)
        ]  # fmt: skip
        assert head.rows == sum(part.rows for part in alone)
        for b, part in enumerate(alone):
            if part.rows:
                expected = plain(q[b, head.head], k[b, head.head], kept[b], number, cap, bias)
                np.testing.assert_allclose(reported(part), expected, rtol=1e-8, atol=1e-12)
        if head.rows:
            for name in ("within_row_variance", "entropy_ratio", "jacobian_trace"):
                mean = sum(part.rows * getattr(part, name) for part in alone if part.rows) / head.rows
                np.testing.assert_allclose(getattr(head, name), mean, rtol=1e-9, atol=1e-12)


def test_entropy_and_jacobian_agree_with_the_attention_core():
    q, k = gaussian(1, 2, 4, 60, 16), gaussian(2, 2, 2, 60, 16)
    audit = audit_tensors(q, k, is_causal=True, enable_gqa=True)
    weights = attention_weights(q, k, is_causal=True, enable_gqa=True)[:, :, 1:]
    for head in audit.heads:
        w = weights[:, head.head]
        ratio = entropy(w) / np.log(np.arange(2, 61))
        np.testing.assert_allclose(head.entropy_ratio, ratio.mean(), rtol=1e-12)
        np.testing.assert_allclose(head.jacobian_trace, (1 - (w**2).sum(-1)).mean(), rtol=1e-12)
        assert (head.rows, head.rows_short, head.key_head) == (118, 2, head.head // 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_the_fast_single_precision_path_agrees_with_double(dtype):
    q, k = gaussian(3, 1, 1, 700, 64).astype(dtype), gaussian(4, 1, 1, 700, 64).astype(dtype)
    fast = audit_tensors(q, k).heads[0]
    double = audit_tensors(q.astype(np.float64), k.astype(np.float64)).heads[0]
    # sums of 700 terms of float32 products of 64 terms: a few n·eps
    np.testing.assert_allclose(reported(fast), reported(double), rtol=64 * 2**-23)
    assert fast.excess_kurtosis == pytest.approx(double.excess_kurtosis, abs=1e-3)


def test_a_large_common_score_costs_no_digits():
    q, k = np.ones((40, 2)), np.stack([np.full(40, 1e8), np.random.default_rng(5).standard_normal(40)], axis=1)
    head = audit_tensors(q, k, scale="unscaled").heads[0]
    assert head.within_row_variance == pytest.approx(k[:, 1].var(), rel=1e-6)  # 1e8·eps of each score
    assert head.row_mean_share == pytest.approx(1.0)
    assert head.cause is None or head.cause


def test_tr_of_the_product_of_second_moments_is_the_variance_within_rows():
    # an identity when every query of one item sees every key
    q, k = gaussian(6, 30, 8) @ gaussian(7, 8, 8), gaussian(8, 20, 8) @ gaussian(9, 8, 8) + 3.0
    head = audit_tensors(q, k).heads[0]
    assert head.predicted_variance_covariances == pytest.approx(head.within_row_variance, rel=1e-12)
    factors = head.factor_norm * head.factor_mean * head.factor_channel * head.factor_alignment
    assert factors == pytest.approx(head.within_row_variance, rel=1e-12)
    second = (q**2).mean(0) @ k.var(0) / 8
    assert head.predicted_variance_components == pytest.approx(second, rel=1e-12)
    np.testing.assert_allclose(head.components.key_variances, k.var(0))
    np.testing.assert_allclose(head.components.query_means, q.mean(0), atol=1e-14)
    assert head.query_norm == pytest.approx(np.sqrt((q**2).sum(1).mean()))
    eigenvalues = np.linalg.eigvals(q.T @ q / 30 @ np.cov(k.T, bias=True)).real
    assert head.effective_dimension == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum(), rel=1e-9)
    mean = k.mean(0)
    assert head.key_mean_share == pytest.approx(mean @ mean / (k**2).sum(1).mean())
    shared = ((k - mean) @ q.mean(0) / np.sqrt(8)).var()
    assert head.shared_query_share == pytest.approx(shared / head.within_row_variance)
    raw = q @ k.T
    assert head.row_mean_share == pytest.approx((raw.mean(1) ** 2).mean() / (raw**2).mean())
    centred = raw - raw.mean(1, keepdims=True)
    assert head.excess_kurtosis == pytest.approx((centred**4).mean() / (centred.var(1) ** 2).mean() - 3)


def test_values_tell_a_sink_of_small_value():
    v = gaussian(44, 2, 1, 9, 4)
    v[:, :, 0] *= 0.01
    head = audit_tensors(gaussian(45, 2, 1, 9, 4), gaussian(46, 2, 1, 9, 4), v).heads[0]
    norms = np.linalg.norm(v[:, 0], axis=-1)
    assert head.value_norm == pytest.approx(np.sqrt((norms**2).mean()))
    assert head.first_value_norm_ratio == pytest.approx(norms[:, 0].mean() / head.value_norm)
    assert head.first_value_norm_ratio < 0.02


def test_standard_errors_by_token_block_are_those_of_block_means():
    q, k = gaussian(47, 24, 4), gaussian(48, 24, 4)
    head = audit_tensors(q, k).heads[0]
    blocks = (q @ k.T / 2).var(axis=1).reshape(8, 3).mean(axis=1)
    assert (head.groups, head.grouping) == (8, "token block")
    assert head.within_row_variance_standard_error == pytest.approx(blocks.std(ddof=1) / np.sqrt(8))


@pytest.mark.slow
def test_standard_errors_by_batch_item_are_calibrated():
    q, k = gaussian(49, 16, 400, 24, 16), gaussian(50, 16, 400, 24, 16)
    heads = audit_tensors(q, k).heads
    for name, error, truth in (
        ("within_row_variance", "within_row_variance_standard_error", 23 / 24),
        ("entropy_ratio", "entropy_ratio_standard_error", np.mean([h.entropy_ratio for h in heads])),
    ):
        z = [(getattr(h, name) - truth) / getattr(h, error) for h in heads]
        # t-like with 15 degrees of freedom: E z² = 15/13, and its mean over 400 heads varies by about 0.1
        assert abs(np.mean(np.square(z)) - 15 / 13) < 0.5


def test_a_mapped_file_is_read_head_by_head(tmp_path):
    shape = (1, 32, 256, 128)  # 2 MiB each
    arrays = {f"layer{i}.{role}": np.ones(shape, np.float16) for i in range(2) for role in "qk"}
    np.savez(tmp_path / "x.npz", **arrays)
    size = (tmp_path / "x.npz").stat().st_size
    del arrays
    audit_files([tmp_path / "x.npz"], query="layer0.q", key="layer0.k")  # imports and caches are paid for
    tracemalloc.start()
    try:
        audit = audit_files([tmp_path / "x.npz"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(audit.heads) == 64
    assert peak < size / 2  # half of it the rows of the result


def test_gaussian_heads_are_as_predicted_with_the_stated_errors():
    q, k = gaussian(10, 12, 8, 64, 32), gaussian(11, 12, 8, 64, 32)
    audit = audit_tensors(q, k)
    assert {head.verdict for head in audit.heads} == {"as predicted"}
    variances = np.array([head.within_row_variance for head in audit.heads])
    errors = np.array([head.within_row_variance_standard_error for head in audit.heads])
    assert {(head.groups, head.grouping) for head in audit.heads} == {(12, "batch item")}
    # eight independent heads: their scatter about the true value 63/64 against their own standard errors (chi-square
    # with 8 degrees of freedom, t-like with 11 each; the bounds have a false alarm below 1e-3)
    chi_square = (((variances - 63 / 64) / errors) ** 2).sum()
    assert 0.8 < chi_square < 40
    dimension = np.mean([head.effective_dimension for head in audit.heads])
    assert 25 < dimension < 32  # 768 tokens of 32 independent components: 32 less the sampling loss 32²/768·…


def test_variances_divide_by_the_number_of_visible_keys_wherever_they_are_named(capsys):
    q, k = gaussian(58, 400, 1, 4, 8), gaussian(59, 400, 1, 4, 8)
    head = audit_tensors(q, k).heads[0]
    # iid scores of variance 1 at four keys: 3/4, within five of the stated standard errors (false alarm below 1e-6)
    assert abs(head.within_row_variance - 3 / 4) < 5 * head.within_row_variance_standard_error
    assert head.within_row_variance == pytest.approx((q @ k.swapaxes(-1, -2) / np.sqrt(8)).var(axis=-1).mean())
    assert "population variance" in HeadAudit.__doc__
    assert "population variance" in audit_tensors.__doc__
    assert "divide by the number of pairs or keys n, not n - 1" in run(capsys, "--example")[1].out


@pytest.mark.parametrize(
    ("make", "verdict", "cause"),
    [
        (lambda q, k: (q * 5, k * 5), "saturated", "large norms"),
        (lambda q, k: (q * 0.1, k * 0.1), "near uniform", "small norms"),
        (lambda q, k: (q, k), "as predicted", None),
        (lambda q, k: (q * 1.4, k * 1.4), "as predicted", "large norms"),
        (lambda q, k: (q * np.r_[8.0, np.ones(31)], k * np.r_[8.0, np.ones(31)]), None, "one channel: 0"),
        (lambda q, k: (q + 3 * k.mean(0) + 2.0, k), None, "shared mean"),
        (lambda q, k: (low_rank(q), low_rank(k)), None, "alignment of q and k"),
    ],
)
def test_the_verdict_and_its_cause(make, verdict, cause):
    q, k = make(gaussian(12, 200, 32), gaussian(13, 200, 32))
    head = audit_tensors(q, k).heads[0]
    assert verdict in (None, head.verdict)
    assert (head.cause is None) if cause is None else head.cause.startswith(cause)


def low_rank(x):
    """Components of variance 1 that are all but one and the same number, with alternating signs."""
    return (0.9 * x[:, :1] + 0.43 * x) * np.where(np.arange(x.shape[1]) % 2, 1, -1) / np.sqrt(1.77)


def test_few_keys_that_stand_out_are_called_heavy_tailed():
    k = gaussian(14, 256, 16)
    k[0] = 3 * np.ones(16)
    q = 0.3 * gaussian(15, 256, 16) + 0.5
    assert audit_tensors(q, k).heads[0].verdict == "heavy-tailed"


def test_a_shared_mean_of_the_keys_changes_no_verdict():
    q, k = gaussian(16, 100, 16), gaussian(17, 100, 16)
    plain_head, shifted = audit_tensors(q, k).heads[0], audit_tensors(q, k + 100.0).heads[0]
    assert shifted.verdict == plain_head.verdict == "as predicted"
    assert shifted.entropy_ratio == pytest.approx(plain_head.entropy_ratio, rel=1e-9)
    assert shifted.score_variance_ratio > 1000
    assert shifted.row_mean_share > 0.99


def test_the_summary_stays_short_and_names_every_head_in_trouble():
    q, k = gaussian(51, 1, 40, 50, 16), gaussian(52, 1, 40, 50, 16)
    q[:, :20] *= 0.05
    q[:, 25:] *= 20
    audit = audit_tensors(q, k)
    lines = audit.summary()
    assert lines[0] == "40 heads: 20 near uniform, 15 saturated, 5 as predicted."
    assert [line.split(":")[0] for line in lines[2:14]] == [f"layer0, head {h}" for h in range(25, 37)]
    assert lines[14] == "3 more in trouble: layer0 37-39."
    assert lines[15].startswith("20 near uniform (")
    assert lines[15].endswith("): layer0 0-19.")
    assert len(lines) == 16


def test_predictions_are_taken_at_the_unbiased_variance_and_each_rows_own_number_of_keys():
    q, k = gaussian(53, 12, 8), gaussian(54, 12, 8)
    head = audit_tensors(q, k, is_causal=True).heads[0]
    scores = q @ k.T / np.sqrt(8)
    sigma = np.sqrt(np.mean([scores[i, : i + 1].var(ddof=1) for i in range(1, 12)]))
    expected = np.mean([expected_entropy(m, sigma=sigma) / np.log(m) for m in range(2, 13)])
    assert head.predicted_entropy_ratio == pytest.approx(expected, rel=1e-12)


def test_rows_with_nan_are_left_out_and_named():
    q, k = gaussian(18, 1, 2, 10, 4), gaussian(19, 1, 2, 10, 4)
    q[0, 0, 3], k[0, 1, 2] = np.nan, np.inf
    one_query, one_key = audit_tensors(q, k).heads
    assert (one_query.rows, one_query.rows_nonfinite, one_query.verdict) == (9, 1, "not finite")
    assert (one_key.rows, one_key.rows_nonfinite, one_key.verdict) == (0, 10, "not finite")
    audit = audit_tensors(q, k)
    json.loads(json.dumps(audit.to_dict(), allow_nan=False))
    assert "not finite" in str(audit)


def test_nan_behind_the_mask_does_not_count():
    q, k = gaussian(20, 1, 1, 6, 4), gaussian(21, 1, 1, 6, 4)
    k_bad, mask = k.copy(), np.ones((6, 6), bool)
    k_bad[0, 0, 4], mask[:, 4] = np.nan, False
    bad, good = audit_tensors(q, k_bad, attn_mask=mask).heads[0], audit_tensors(q, k, attn_mask=mask).heads[0]
    np.testing.assert_allclose(reported(bad), reported(good), rtol=1e-14)
    assert bad.verdict == good.verdict


@pytest.mark.parametrize("magnitude", [0.0, 1e-30, 1e15, 1e30])
def test_extreme_sizes_raise_no_warning(magnitude):
    head = audit_tensors(magnitude * gaussian(22, 9, 4), magnitude * gaussian(23, 9, 4)).heads[0]
    assert head.verdict == ("near uniform" if magnitude < 1 else "saturated")
    assert 0 <= head.entropy_ratio <= 1 + 1e-12


def test_layouts_lists_and_mappings_are_the_same_audit():
    q, k = gaussian(24, 2, 3, 10, 4), gaussian(25, 2, 3, 10, 4)
    one = audit_tensors(q, k, names=["a"]).to_records()
    assert audit_tensors({"a": q}, {"a": k}).to_records() == one
    assert audit_tensors([q.swapaxes(1, 2)], [k.swapaxes(1, 2)], layout="bshd", names=["a"]).to_records() == one
    assert len(audit_tensors([q, q], [k, k]).layers) == 2


@pytest.mark.slow
def test_torch_tensors_are_taken_as_they_are():
    torch = pytest.importorskip("torch")
    q, k = (torch.from_numpy(gaussian(seed, 1, 2, 9, 4)).to(torch.bfloat16).requires_grad_() for seed in (55, 56))
    mask = torch.ones(1, 9, dtype=torch.bool)
    mask[0, 7:] = False
    plain_q, plain_k = (x.detach().float().numpy() for x in (q, k))
    expected = audit_tensors(plain_q, plain_k, padding_mask=mask.numpy())
    assert audit_tensors(q, k, padding_mask=mask).to_records() == expected.to_records()


def test_threads_change_no_number(monkeypatch):
    q, k = gaussian(26, 1, 4, 50, 8), gaussian(27, 1, 4, 50, 8)
    alone = audit_tensors(q, k)
    monkeypatch.setattr("analysis.audit.tensors.audit.PARALLEL_SCORES", 0)
    assert audit_tensors(q, k).to_records() == alone.to_records()


def test_interpolated_predictions_are_near_the_exact_ones():
    n_keys = np.arange(2, 400)
    exact = np.concatenate([predicted_entropy(2.0, np.array([n])) for n in n_keys])
    np.testing.assert_allclose(predicted_entropy(2.0, n_keys) / np.log(n_keys), exact / np.log(n_keys), atol=2e-3)


BAD = {
    "d_k": (lambda q: {"key": q[..., :3]}, "share batch and d_k"),
    "heads": (lambda q: {"key": q[:, :1]}, "enable_gqa=True"),
    "divide": (lambda q: {"key": q[:, [0, 0]], "query": q[:, [0, 0, 0]]}, "must be a multiple"),
    "axes": (lambda q: {"query": q[0, 0, 0]}, "2 to 4 axes"),
    "complex": (lambda q: {"key": q * 1j}, "real numbers: got complex128"),
    "boolean": (lambda q: {"key": q > 0}, "real numbers: got bool"),
    "layout": (lambda q: {"layout": "sbhd"}, "one of bhsd, bshd, hsd, shd"),
    "three axes": (lambda q: {"query": q[0], "key": q[0]}, "two ways: pass num_heads .* or layout=.hsd"),
    "three axes of keys": (lambda q: {"key": q[0]}, "key of layer0 has three axes"),
    "four axes": (lambda q: {"layout": "hsd"}, "must have three axes"),
    "heads of four axes": (lambda q: {"num_heads": 4}, "must have num_heads = 4 heads: got 3"),
    "no heads": (lambda q: {"num_heads": 0}, "num_heads must be a whole number"),
    "heads that do not divide": (lambda q: {"query": q[0], "key": q[0], "num_heads": 3}, "does not divide into 3"),
    "keys of another width": (
        lambda q: {"query": q[0], "key": q[0, :, :, :3], "num_heads": 2},
        "no whole number of heads of d_k = 2",
    ),
    "softcap": (lambda q: {"softcap": 0.0}, "softcap must be positive"),
    "window": (lambda q: {"window": 0}, "window must be"),
    "window pair": (lambda q: {"window": (1, 2, 3)}, "window must be"),
    "mask kind": (lambda q: {"attn_mask": np.ones((5, 5), int)}, "boolean .* or floating"),
    "mask shape": (lambda q: {"attn_mask": np.ones((4, 5), bool)}, "does not broadcast"),
    "padding shape": (lambda q: {"padding_mask": np.ones((5,), int)}, "must have shape"),
    "padding values": (lambda q: {"padding_mask": np.full((2, 5), 2)}, "must hold 0 and 1"),
    "names": (lambda q: {"names": ["a", "b"]}, "count the same layers"),
    "too few names": (lambda q: {"query": [q, q], "key": [q, q], "names": ["a"]}, "query has 2, names has 1"),
    "one name as text": (lambda q: {"names": "foo"}, r"names must be a sequence of layer names, such as \['foo'\]"),
    "too few layers of keys": (lambda q: {"query": [q, q], "key": [q]}, "query has 2, key has 1"),
    "a list and an array": (lambda q: {"query": [[None]]}, "query and key must both be .* a list and an array"),
    "a mapping and a list": (lambda q: {"query": {"a": q}, "key": [q]}, "a mapping and a list"),
    "an array and a list": (lambda q: {"value": [q]}, "query and value must both be .* an array and a list"),
    "no components": (lambda q: {"query": q[..., :0], "key": q[..., :0]}, "no components"),
    "scale": (lambda q: {"scale": "none"}, "ambiguous"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case):
    q = gaussian(28, 2, 3, 5, 4)
    change, message = BAD[case]
    arguments = {"query": q, "key": q} | change(q)
    with pytest.raises(ValueError, match=message) as caught:
        audit_tensors(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "options", "layers"),
    [
        (["q", "k", "v"], {}, [("-", "q", "k", "v", None)]),
        (["x10.q", "x10.k", "x2.q", "x2.k", "attention_mask"], {},
         [("x2", "x2.q", "x2.k", None, "attention_mask"), ("x10", "x10.q", "x10.k", None, "attention_mask")]),
        (["h/0/query_states", "h/0/key_states"], {}, [("h/0", "h/0/query_states", "h/0/key_states", None, None)]),
        (["a.q", "a.k", "a.mask", "mask"], {}, [("a", "a.q", "a.k", None, "a.mask")]),
        (["h.0.to_q", "h.0.to_k"], {"query": "h.*.to_q", "key": "h.*.to_k"},
         [("0", "h.0.to_q", "h.0.to_k", None, None)]),
        (["x", "y"], {"query": "x", "key": "y"}, [("-", "x", "y", None, None)]),
    ],
)  # fmt: skip
def test_names_are_found(names, options, layers):
    found = find_layers(names, **options)
    assert [(n.layer, n.query, n.key, n.value, n.padding) for n in found] == layers


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ([], {}, "nothing"),
        (["layer0.q"], {}, "no keys beside"),
        (["q", "query", "k"], {}, "could be the queries"),
        (["q", "k", "key_padding_mask"], {}, "marks padding by 1"),
        (["h.0.attn.q_proj.weight", "h.0.attn.k_proj.weight"], {}, "weights"),
        (["q", "k"], {"query": "q"}, "or neither"),
        (["q", "k"], {"query": "x", "key": "k"}, "not in the file"),
        (["q", "k"], {"query": "h.*.q", "key": "k"}, "no tensor matches"),
    ],
)
def test_names_that_cannot_be_found_are_told(names, options, message):
    with pytest.raises(ValueError, match=message):
        find_layers(names, **options)


def test_grouped_heads_in_a_file(tmp_path):
    q, k = gaussian(29, 1, 4, 12, 8, dtype=np.float16), gaussian(30, 1, 2, 12, 8, dtype=np.float16)
    np.save(tmp_path / "q.npy", q)
    np.save(tmp_path / "k.npy", np.asfortranarray(k))
    audit = audit_files([tmp_path / "q.npy", tmp_path / "k.npy"])
    assert [head.key_head for head in audit.heads] == [0, 0, 1, 1]
    assert any("Grouped heads: 4 query heads share 2" in note for note in audit.notes)
    for head in audit.heads:
        np.testing.assert_allclose(
            reported(head), plain(q[0, head.head], k[0, head.head // 2], np.ones((12, 12), bool), 8**-0.5), rtol=1e-9
        )


def test_json_file_and_html_hold_the_rows_and_escape_names(tmp_path):
    name = "<img onerror=alert(1)></script>[/q]"
    audit = audit_tensors({name: gaussian(31, 8, 4)}, {name: gaussian(32, 8, 4)})
    audit.to_json(tmp_path / "audit.json")
    stored = json.loads((tmp_path / "audit.json").read_text())
    assert stored["heads"] == audit.to_records()
    assert stored["heads"][0]["layer"] == name
    assert "<img" not in audit._repr_html_()
    assert "&lt;img" in audit._repr_html_()


@pytest.mark.parametrize(
    ("quantity", "target", "field"),
    [
        ("entropy_fraction", 0.8, "entropy_ratio"),
        ("within_row_variance", 2.5, "within_row_variance"),
        ("largest_score", 6.0, "largest_score"),
    ],
)
def test_remedies_meet_the_target_on_the_same_tensors(quantity, target, field):
    stored = np.load(EXAMPLE, allow_pickle=False)
    q, k, mask = stored["layer0.q"], stored["layer0.k"], stored["attention_mask"]
    audit = audit_tensors(q, k, padding_mask=mask)
    found = audit.remedies(quantity, target)
    wrong = [h.head for h in audit.heads if (getattr(h, field) < target) == (field == "entropy_ratio")]
    assert [item.head for item in found] == wrong
    assert 2 in wrong
    for item in found:
        scaled = audit_tensors(q, k, padding_mask=mask, scale=item.scale).heads[item.head]
        capped = audit_tensors(q, k, padding_mask=mask, softcap=item.softcap).heads[item.head]
        root = np.sqrt(item.clip_factor)
        clipped = audit_tensors(root * q.astype(float), root * k.astype(float), padding_mask=mask).heads[item.head]
        for head in (scaled, capped, clipped):
            assert getattr(head, field) == pytest.approx(target, rel=1e-6)
        assert item.current == getattr(audit.heads[item.head], field)


def test_a_remedy_out_of_reach_is_none():
    q, k = gaussian(40, 30, 8), gaussian(41, 30, 8)
    (item,) = audit_tensors(q, k).remedies("largest_score", 500.0, heads=[("layer0", 0)])
    assert item.softcap is None  # a cap only shrinks scores
    assert item.scale == pytest.approx(500 / item.current / np.sqrt(8))
    same = np.ones((5, 4))
    (item,) = audit_tensors(same, same).remedies("entropy_fraction", 0.5, heads=[("layer0", 0)])
    assert (item.scale, item.softcap, item.clip_factor) == (None, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("entropy", 0.5), "quantity must be one of"),
        (("entropy_fraction", 1.5), "between 0 and 1"),
        (("largest_score", -1.0), "positive"),
        (("largest_score", np.nan), "positive"),
    ],
)
def test_targets_that_nothing_can_have_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        audit_tensors(gaussian(42, 5, 4), gaussian(43, 5, 4)).remedies(*arguments)
    with pytest.raises(ValueError, match="no head"):
        audit_tensors(gaussian(42, 5, 4), gaussian(43, 5, 4)).remedies("largest_score", 1.0, heads=[("x", 0)])


def run(capsys, *arguments):
    code = main(["audit", *arguments])
    return code, capsys.readouterr()


def test_command_prints_the_example_within_100_columns(capsys):
    code, printed = run(capsys, "--example")
    lines = printed.out.splitlines()
    table = [line for line in lines if line.startswith("layer")]
    assert code == 0
    assert len([line for line in table if line.split()[0] == "layer0"]) == 12 + 1
    assert max(map(len, table)) <= 100
    assert "layer0, head 2: saturated" in printed.out


def test_command_prints_json(capsys):
    code, printed = run(capsys, "--example", "--json")
    assert code == 0
    result = json.loads(printed.out)
    assert len(result["heads"]) == 72
    assert result["layers"][0]["heads_saturated"] == 1


def test_command_takes_names_layout_and_masks(capsys, tmp_path):
    arrays = {"a[/q]": gaussian(33, 1, 9, 2, 4), "b[bold]k": gaussian(34, 1, 9, 2, 4), "pad": np.ones((1, 9), int)}
    np.savez(tmp_path / "x.npz", **arrays)
    code, printed = run(
        capsys, str(tmp_path / "x.npz"), "--query", "a[/q]", "--key", "b[bold]k", "--padding", "pad",
        "--layout", "bshd", "--causal", "--window", "3,0", "--scale", "1/d_k", "--softcap", "30", "--json",
    )  # fmt: skip
    assert code == 0
    q, k = (arrays[name].swapaxes(1, 2) for name in ("a[/q]", "b[bold]k"))
    expected = audit_tensors(q, k, is_causal=True, window=(3, 0), scale=0.25, softcap=30, names=["-"])
    assert json.loads(printed.out)["heads"] == expected.to_records()


def test_long_layer_names_are_short_in_the_tables(capsys, tmp_path):
    q = gaussian(57, 1, 1, 9, 4)
    names = [f"model.layers.{i}.self_attn.{role}" for i in (2, 10) for role in ("query_states", "key_states")]
    np.savez(tmp_path / "x.npz", **dict.fromkeys(names, 30 * q))
    code, printed = run(capsys, str(tmp_path / "x.npz"))
    assert code == 0
    starts = [line.split()[:2] for line in printed.out.splitlines() if line]
    for start in (["2", "0"], ["10", "0"], ["2", "1"], ["10", "1"]):  # layer and head, layer and number of heads
        assert start in starts
    assert "model.layers.10.self_attn, head 0: saturated" in printed.out
    assert "in bfloat16, numbers of that size are" in " ".join(printed.out.split())


def test_command_prints_remedies(capsys):
    code, printed = run(capsys, "--example", "--target", "largest_score=12")
    assert code == 0
    assert "To reach largest_score=12" in printed.out
    code, printed = run(capsys, "--example", "--target", "largest_score=12", "--json")
    (item,) = json.loads(printed.out)["remedies"]
    assert (code, item["layer"], item["head"]) == (0, "layer0", 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name one or more files"),
        (["--example", "x.npz"], "name one or more files"),
        (["missing.npz"], "missing.npz: No such file"),
        (["pyproject.toml"], "is no .npz, .npy or .safetensors file"),
        ([EXAMPLE, "--query", "nothing", "--key", "layer0.k"], "not in the file"),
        ([EXAMPLE, "--window", "a"], "--window takes"),
        ([EXAMPLE, "--target", "a"], "--target takes"),
        ([EXAMPLE, "--target", "a=1"], "quantity must be one of"),
        ([EXAMPLE, "--scale", "none"], "ambiguous"),
        ([EXAMPLE, "--num-heads", "0"], "num_heads must be a whole number"),
        ([EXAMPLE, "--d-k", "16"], "--d-k does not apply to an audit of tensors"),
        ([EXAMPLE, "--mask-means", "keep"], "--mask-means does not apply to an audit of tensors"),
        (["--example", "--num-heads", "12"], "--num-heads does not apply to an audit of the example"),
        (["--example", "--causal"], "--causal does not apply to an audit of the example"),
        (["--example", "--scale", "unscaled"], "--scale does not apply to an audit of the example"),
        ([EXAMPLE, "--layout", "bshd", "--padding", "layer0.q"], "must have shape"),
    ],
)
def test_command_refuses_bad_input_with_code_2(capsys, arguments, message):
    code, printed = run(capsys, *arguments)
    assert code == 2
    assert printed.err.startswith("attnsym: error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_brackets_in_names_are_printed_verbatim(capsys, tmp_path):
    np.savez(tmp_path / "x.npz", **{"blk[bold]x.q": gaussian(35, 5, 4), "blk[bold]x.k": gaussian(36, 5, 4)})
    code, printed = run(capsys, str(tmp_path / "x.npz"))
    assert code == 0
    assert "blk[bold]x" in printed.out


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("batch", [True, False])
def test_what_a_projection_returns_is_split_into_heads(tmp_path, key_heads, batch):
    q, k, v = gaussian(60, 2, 9, 4 * 6), gaussian(61, 2, 9, key_heads * 6), gaussian(62, 2, 9, key_heads * 5)
    if not batch:
        q, k, v = q[0], k[0], v[0]
    apart = [split_heads(q, 4), *(split_heads(x, key_heads) for x in (k, v))]
    expected = audit_tensors(*(x if batch else x[None] for x in apart), enable_gqa=True)
    assert audit_tensors(q, k, v, enable_gqa=True, num_heads=4).to_records() == expected.to_records()
    names = {"layer0.self_attn.q_proj": q, "layer0.self_attn.k_proj": k, "layer0.self_attn.v_proj": v}
    np.savez(tmp_path / "x.npz", **names)
    of_file = audit_files([tmp_path / "x.npz"], num_heads=4)
    unnamed = [{**row, "layer": "layer0"} for row in of_file.to_records()]
    assert unnamed == expected.to_records()
    assert "4 heads·d_k) " in of_file.notes[0] or "4 heads·d_k)," in of_file.notes[0]
    if batch:
        with pytest.raises(ValueError, match="num_heads"):
            audit_files([tmp_path / "x.npz"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_torch_types_that_numpy_has_not(name):
    torch = pytest.importorskip("torch")
    q, k = (torch.from_numpy(gaussian(seed, 1, 2, 9, 4)).to(getattr(torch, name)) for seed in (63, 64))
    mask = torch.tril(torch.ones(9, 9)).log().to(torch.bfloat16)
    valid = torch.ones(1, 9).to(getattr(torch, name))
    expected = audit_tensors(q.float().numpy(), k.float().numpy(), is_causal=True)
    assert audit_tensors(q, k, attn_mask=mask, padding_mask=valid).to_records() == expected.to_records()
    small = ml_dtypes.bfloat16
    masks = {"attn_mask": mask.float().numpy().astype(small), "padding_mask": np.ones((1, 9), small)}
    assert audit_tensors(q, k, **masks).to_records() == expected.to_records()


@pytest.mark.parametrize(
    ("query", "key", "layer"),
    [
        ("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn"),
        ("distilbert.layer.0.attention.q_lin", "distilbert.layer.0.attention.k_lin", "distilbert.layer.0.attention"),
        ("down.0.attn1.to_q", "down.0.attn1.to_k", "down.0.attn1"),
        ("layers.0.attention.wq", "layers.0.attention.wk", "layers.0.attention"),
        ("encoder.block.0.SelfAttention.q", "encoder.block.0.SelfAttention.k", "encoder.block.0.SelfAttention"),
        (
            "encoder.layer.0.attention.self.query",
            "encoder.layer.0.attention.self.key",
            "encoder.layer.0.attention.self",
        ),
        ("h/linear_q", "h/linear_k", "h"),
    ],
)
def test_names_of_projections_in_common_libraries(query, key, layer):
    assert [(n.layer, n.query, n.key) for n in find_layers([query, key])] == [(layer, query, key)]


def test_a_scale_at_the_end_of_its_range_is_told_in_words(capsys):
    code, printed = run(capsys, "--example", "--json")
    assert code == 0
    code, printed = run(capsys, EXAMPLE, "--scale", "1e308", "--json")
    assert (code, printed.err) == (0, "")
    assert {head["verdict"] for head in json.loads(printed.out)["heads"]} == {"not finite"}


@pytest.mark.parametrize(
    "options",
    [
        {"is_causal": "no"},
        {"is_causal": 1},
        {"enable_gqa": "no"},
        {"softcap": True},
        {"softcap": "2"},
        {"softcap": float("inf")},
        {"softcap": -1.0},
        {"window": 0},
        {"window": True},
        {"window": 1.5},
        {"window": (1, 2, 3)},
        {"window": (-1, 0)},
    ],
    ids=str,
)
def test_what_the_core_refuses_is_refused_in_its_words(options):
    q = np.ones((1, 1, 4, 2))
    [name] = options
    with pytest.raises(ValueError, match=name) as of_core:
        attention_weights(q, q, **options)
    with pytest.raises(ValueError, match=f"^{re.escape(str(of_core.value))}$"):
        audit_tensors(q, q, **options)


@pytest.mark.parametrize("window", [(2, None), [2, 0], (None, 1), (np.int64(1), 0), 2**70, (2**70, 0)], ids=str)
def test_windows_are_those_of_the_core(window):
    q = np.random.default_rng(3).standard_normal((2, 1, 1, 9, 4))
    weights = attention_weights(*q, window=window)[0, 0]
    seen = np.count_nonzero(weights, axis=-1) >= 2  # rows with a choice are the ones that an audit counts
    [head] = audit_tensors(*q, window=window).heads
    assert head.rows == seen.sum()
    assert head.entropy == pytest.approx(entropy(weights)[seen].mean(), rel=1e-12)


def test_a_window_of_padded_tokens_counts_positions_of_the_whole_sequence():
    q = np.random.default_rng(4).standard_normal((2, 1, 1, 9, 4))
    valid = np.array([[1, 1, 0, 1, 1, 1, 0, 1, 1]])
    weights = attention_weights(*q, valid.astype(bool), window=(2, 1))[0, 0][valid[0] == 1]
    [head] = audit_tensors(*q, padding_mask=valid, window=(2, 1)).heads
    assert head.entropy == pytest.approx(entropy(weights).mean(), rel=1e-12)
