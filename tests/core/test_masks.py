"""Causal, window and padding masks against their definitions, entry by entry."""

import numpy as np
import pytest
from attention_loop import allowed
from hypothesis import given, settings
from hypothesis import strategies as st

from attnsym import causal_mask, padding_mask, window_mask
from attnsym.masks import allowed_mask, key_range

lengths = st.integers(0, 7)
alignments = st.sampled_from(["top_left", "bottom_right"])
sides = st.none() | st.integers(0, 4)
windows = st.integers(1, 5) | st.tuples(sides, sides)


@given(lengths, lengths, alignments, st.booleans(), st.none() | windows)
@settings(max_examples=100)
def test_masks_equal_their_definition(n_queries, n_keys, alignment, is_causal, window):
    offset = n_keys - n_queries if alignment == "bottom_right" else 0
    want = [[allowed(i + offset, j, is_causal, window) for j in range(n_keys)] for i in range(n_queries)]
    want = np.array(want, bool).reshape(n_queries, n_keys)
    got = allowed_mask(n_queries, n_keys, is_causal, window, alignment)
    np.testing.assert_array_equal(np.ones_like(want) if got is None else got, want)
    first, end = key_range(n_queries, n_keys, is_causal, window, alignment)
    keys = np.arange(n_keys)
    np.testing.assert_array_equal((keys >= first[:, None]) & (keys < end[:, None]), want)


def test_causal_mask_by_hand():
    assert causal_mask(2, 3).astype(int).tolist() == [[1, 0, 0], [1, 1, 0]]
    assert causal_mask(2, 3, alignment="bottom_right").astype(int).tolist() == [[1, 1, 0], [1, 1, 1]]
    assert causal_mask(3, 1, alignment="bottom_right").astype(int).tolist() == [[0], [0], [1]]
    assert causal_mask(0, 3).shape == (0, 3)


def test_window_mask_by_hand():
    assert np.flatnonzero((window_mask(6, 6, 3) & causal_mask(6, 6))[5]).tolist() == [3, 4, 5]
    assert np.flatnonzero(window_mask(6, 6, 3)[2]).tolist() == [0, 1, 2, 3, 4]
    assert np.flatnonzero(window_mask(6, 6, (2, 1))[3]).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(window_mask(6, 6, (None, 0))[3]).tolist() == [0, 1, 2, 3]
    assert np.flatnonzero(window_mask(1, 6, (1, 0), alignment="bottom_right")[0]).tolist() == [4, 5]


def test_padding_mask():
    mask = padding_mask([[1, 1, 0], [1, 0, 0]])
    assert mask.shape == (2, 1, 1, 3)
    assert mask.dtype == bool
    assert mask[:, 0, 0].astype(int).tolist() == [[1, 1, 0], [1, 0, 0]]
    np.testing.assert_array_equal(mask, padding_mask(np.array([[True, True, False], [True, False, False]])))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: causal_mask(-1, 2), "n_queries must be a whole number"),
        (lambda: causal_mask(2, 1.5), "n_keys must be a whole number"),
        (lambda: causal_mask(True, 2), "n_queries"),
        (lambda: causal_mask(2, 2, alignment="left"), "alignment must be one of 'top_left', 'bottom_right'"),
        (lambda: window_mask(2, 2, 0), "window must be a whole number, 1 or more"),
        (lambda: window_mask(2, 2, "1"), "window"),
        (lambda: window_mask(2, 2, (1, -1)), "each side of window"),
        (lambda: padding_mask([1, 1]), r"axes \(batch, length\)"),
        (lambda: padding_mask([[1, 2]]), "0 and 1"),
        (lambda: padding_mask([[1.0, 0.0]]), "boolean or hold the integers"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
