"""Why scores are large: the cause named is the one whose removal lowers the variance by the factor named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import audit_tensors


def gaussian(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def without_row(x, place):
    return np.delete(x, place, axis=-2)


def one_key(q, k):
    k = k.copy()
    k[..., 3, :] *= 30
    return q, k


def one_query(q, k):
    return one_key(k, q)[::-1]


def one_channel(q, k):
    return q * np.r_[np.ones(5), 9.0, np.ones(26)], k


def one_direction(q, k):
    """A tenth of the keys' and queries' length lies along one direction that is no channel."""
    direction = np.tile([1.0, -1.0], 16) / np.sqrt(32)
    return (x + 4 * gaussian(9, *x.shape[:-1], 1) * direction for x in (q, k))


# made, how the cause begins, and the tensors (or the scale) with the cause taken away
CAUSES = {
    "scale": (lambda q, k: (q, k, "unscaled"), "scale: variance × 32", lambda q, k: (q, k, None)),
    "norms": (lambda q, k: (3 * q, 4 * k, None), "large norms", lambda q, k: (q / 3, k / 4, None)),
    "key": (lambda q, k: (*one_key(q, k), None), "one key: token 3", lambda q, k: (q, without_row(k, 3), None)),
    "query": (lambda q, k: (*one_query(q, k), None), "one query: token 3", lambda q, k: (without_row(q, 3), k, None)),
    "mean": (
        lambda q, k: (q + 3, k, None),
        "shared mean",
        lambda q, k: (q - q.mean(axis=-2, keepdims=True), k, None),
    ),
    "channel": (
        lambda q, k: (*one_channel(q, k), None),
        "one channel: 5",
        lambda q, k: (np.delete(q, 5, axis=-1) * (32 / 31) ** 0.5, np.delete(k, 5, axis=-1), 32**-0.5),
    ),
}


@pytest.mark.parametrize("planted", CAUSES)
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_without_the_named_cause_the_variance_falls_by_the_named_factor(planted, shift):
    make, words, remove = CAUSES[planted]
    q, k, scale = make(gaussian(1, 1, 1, 200, 32), gaussian(2, 1, 1, 200, 32))
    head = audit_tensors(q, k + shift, scale=scale).heads[0]
    assert head.cause.startswith(words)
    q, k, scale = remove(q, k)
    after = audit_tensors(q, k, scale=scale).heads[0]
    # 200 tokens of 32 components: the norms of a side are known to 1/√(200·16), the mean of queries to as much
    assert head.within_row_variance / after.within_row_variance == pytest.approx(head.cause_factor, rel=0.05)
    assert after.cause is None or after.cause_factor < 1.3


def test_a_rotation_between_queries_and_keys_takes_alignment_away():
    q, k = one_direction(gaussian(3, 1, 1, 400, 32), gaussian(4, 1, 1, 400, 32))
    head = audit_tensors(q, k).heads[0]
    assert head.cause.startswith("alignment of q and k")
    rotations = [np.linalg.qr(gaussian(seed, 32, 32))[0] for seed in range(60)]
    after = np.mean([audit_tensors(q @ r, k).heads[0].within_row_variance for r in rotations])
    # the mean over random rotations is tr C_q·tr C_k/d_k; 60 of them scatter by a tenth
    assert head.within_row_variance / after == pytest.approx(head.cause_factor, rel=0.15)


def test_the_largest_factor_is_the_cause_also_against_a_shared_mean():
    q, k = gaussian(5, 200, 32), gaussian(6, 200, 32)
    head = audit_tensors(5 * (q + 1.5), k).heads[0]
    assert head.shared_query_share > 0.6
    assert head.cause.startswith("large norms")
    assert audit_tensors(1.2 * (q + 1.5), k).heads[0].cause.startswith("shared mean")


def test_a_snapshot_never_claims_growth():
    for scale in (None, "unscaled"):
        audit = audit_tensors(gaussian(7, 1, 4, 50, 64), 3 * gaussian(8, 1, 4, 50, 64), scale=scale)
        assert "growth" not in str(audit)


def test_the_factors_multiply_to_the_variance():
    for planted, (make, _, _) in CAUSES.items():
        q, k, scale = make(gaussian(10, 60, 32), gaussian(11, 60, 32) + 2)
        head = audit_tensors(q, k, scale=scale).heads[0]
        factors = [getattr(head, name) for name in dir(head) if name.startswith("factor_")]
        assert len(factors) == 7
        assert np.prod(factors) == pytest.approx(head.within_row_variance, rel=1e-9), planted


def test_shares_of_the_top_key_and_query():
    q, k = gaussian(12, 40, 8), gaussian(13, 40, 8)
    head = audit_tensors(q, k).heads[0]
    squares = ((q @ k.T - (q @ k.T).mean(axis=1, keepdims=True)) ** 2).sum(axis=0)
    assert head.top_key == squares.argmax()
    assert head.top_key_share == pytest.approx(squares.max() / squares.sum())
    variances = (q @ k.T).var(axis=1)
    assert head.top_query == variances.argmax()
    assert head.top_query_share == pytest.approx(variances.max() / variances.sum())


def test_few_queries_are_no_shared_mean():
    head = audit_tensors(3 * gaussian(14, 1, 32), 3 * gaussian(15, 100, 32)).heads[0]
    assert head.factor_mean == 1.0
    assert head.cause.startswith("large norms")


@pytest.mark.slow
def test_tokens_of_gaussian_vectors_do_not_stand_out():
    # the stated false alarm is 1e-4 a head; few directions are the worst case, as scores are then one Gaussian each
    heads = [audit_tensors(gaussian(s, 1, 50, 30, 2), gaussian(s + 99, 1, 50, 30, 2)).heads for s in range(20)]
    alarms = sum(head.factor_top_key > 1 for row in heads for head in row)
    assert alarms <= 3  # Poisson with mean 0.1: more has a probability below 4e-6


@st.composite
def heads(draw):
    """A head of Gaussian tokens with one fault of a size well away from every other factor."""
    seed = draw(st.integers(0, 2**32 - 1))
    make = draw(st.sampled_from([CAUSES[name][0] for name in ("scale", "norms", "key", "query", "mean")]))
    q, k, scale = make(gaussian(seed, 2, 1, 40, 32), gaussian(seed + 1, 2, 1, 40, 32))
    return seed, q, k, scale


def words(head):
    """The verdict and the cause without its numbers, which rounding and the place of a token may move."""
    return head.verdict, head.cause.split(":")[0], round(head.cause_factor, 6)


@settings(max_examples=25, derandomize=True)
@given(heads(), st.floats(-100, 100))
def test_what_softmax_does_not_see_changes_no_verdict_and_no_cause(head, shift):
    seed, q, k, scale = head
    rng = np.random.default_rng(seed)
    expected = words(audit_tensors(q, k, scale=scale).heads[0])
    rotation = np.linalg.qr(rng.standard_normal((32, 32)))[0]
    keys, tokens = rng.permutation(40), rng.permutation(40)
    for changed in (
        (q, k + shift * rng.standard_normal(32)),
        (q @ rotation, k @ rotation),
        (q, k[:, :, keys]),
        (q[:, :, tokens], k[:, :, tokens]),
    ):
        assert words(audit_tensors(*changed, scale=scale).heads[0]) == expected


class TestRemedies:
    def test_a_bias_has_two_scales_and_the_nearest_is_found(self):
        q, k = gaussian(16, 30, 8), gaussian(17, 30, 8)
        bias = -(q @ k.T) / 4 + 0.1 * gaussian(18, 30, 30)  # the scores cancel it at scale 1/4: entropy peaks there
        audit = audit_tensors(q, k, attn_mask=bias)
        at = audit_tensors(q, k, attn_mask=bias, scale=0.25).heads[0].entropy_ratio
        target = (at + audit_tensors(q, k, attn_mask=bias, scale=1e-9).heads[0].entropy_ratio) / 2
        for present in (0.12, 0.3):
            audit = audit_tensors(q, k, attn_mask=bias, scale=present)
            (item,) = audit.remedies("entropy_fraction", target, heads=[("layer0", 0)])
            reached = audit_tensors(q, k, attn_mask=bias, scale=item.scale).heads[0].entropy_ratio
            assert reached == pytest.approx(target, rel=1e-6)
            assert (item.scale > 0.25) == (present > 0.25)

    def test_a_target_touched_between_two_steps_of_the_search_is_found(self):
        q, k = gaussian(16, 30, 8), gaussian(17, 30, 8)
        bias = -(q @ k.T) / 4 + 0.1 * gaussian(18, 30, 30)
        at = audit_tensors(q, k, attn_mask=bias, scale=0.25).heads[0].within_row_variance
        (item,) = audit_tensors(q, k, attn_mask=bias).remedies("within_row_variance", 1.001 * at, heads=[("layer0", 0)])
        assert item.scale == pytest.approx(0.25, rel=0.2)

    def test_grouped_heads_keep_their_shared_keys(self):
        q, k = 4 * gaussian(19, 1, 6, 30, 8), 3 * gaussian(20, 1, 2, 30, 8)
        audit = audit_tensors(q, k, enable_gqa=True)
        found = audit.remedies("largest_score", 20.0)
        assert len(found) == 6
        q_new, k_new = q.copy(), k.copy()
        for item in found:
            q_new[0, item.head] *= item.query_factor
            k_new[0, item.head // 3] *= item.key_factor
        largest = [head.largest_score for head in audit_tensors(q_new, k_new, enable_gqa=True).heads]
        np.testing.assert_allclose(largest, 20.0, rtol=1e-6)

    def test_the_signed_maximum_is_what_softmax_sees(self):
        q, k = np.ones((20, 4)), -np.abs(gaussian(21, 20, 4))
        head = audit_tensors(q, k).heads[0]
        scores = q @ k.T / 2
        assert head.largest_score == pytest.approx(-scores.min())
        assert head.largest_signed_score == pytest.approx(scores.max())
        assert audit_tensors(q, k).remedies("largest_signed_score", 0.5) == ()
        (item,) = audit_tensors(q, -k).remedies("largest_signed_score", 0.5)
        scaled = audit_tensors(q, -k, scale=item.scale).heads[0]
        assert scaled.largest_signed_score == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("shape", [(0, 2, 5, 4), (1, 2, 0, 4)])
def test_empty_batches_and_no_queries_have_no_usable_rows(shape):
    key = np.ones((shape[0], 2, 5, 4))
    audit = audit_tensors(np.ones(shape), key, key)
    assert [head.verdict for head in audit.heads] == ["no usable rows"] * 2
    assert audit.remedies("largest_score", 1.0) == ()
    assert "no usable rows" in str(audit)


@pytest.mark.parametrize("state", ["raise", "warn"])
def test_the_callers_error_state_is_neither_used_nor_changed(state):
    q, k = 1e200 * gaussian(22, 1, 1, 9, 4), gaussian(23, 1, 1, 9, 4)
    k[0, 0, 2, 1], q[0, 0, 3] = np.inf, 1e-320
    with np.errstate(all=state):
        audit = audit_tensors(q, k, q, attn_mask=np.where(np.tri(9) > 0, 0.0, -np.inf), scale=1e308)
        assert audit.heads[0].rows_nonfinite
        str(audit), audit._repr_html_(), audit.remedies("largest_score", 1.0)
        assert set(np.geterr().values()) == {state}
