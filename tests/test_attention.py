"""Scores, weights and outputs against a loop written from the formula alone."""

import math

import numpy as np
import pytest

import attnsym


def loop_attention(query, key, value, visible=None, bias=None, scale=None):
    """One query at a time in Python floats: what softmax(scale · qᵀk + bias) value says."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    output = np.zeros((query.shape[0], value.shape[1]))
    for i, q in enumerate(query):
        exponentials = {}
        for j, k in enumerate(key):
            if visible is None or visible[i, j]:
                score = scale * math.fsum(float(a) * float(b) for a, b in zip(q, k, strict=True))
                exponentials[j] = math.exp(score + (0 if bias is None else bias[i, j]))
        total = math.fsum(exponentials.values())
        for j, e in exponentials.items():
            output[i] += e / total * value[j]
    return output


def test_two_keys_mix_two_values():
    query, key = [[1.0]], [[0.0], [math.log(3)]]
    weights = attnsym.attention_weights(query, key, scale=1)
    np.testing.assert_allclose(weights, [[0.25, 0.75]], rtol=4 * np.finfo(float).eps)
    assert attnsym.scaled_dot_product_attention(query, key, [[2.0], [6.0]], scale=1) == pytest.approx(
        5, rel=1e-15, abs=0
    )


@pytest.mark.parametrize("is_causal", [False, True])
def test_equals_the_loop(is_causal):
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(s) for s in ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)))
    got = attnsym.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    visible = np.tri(5, 7, dtype=bool) if is_causal else None
    want = [[loop_attention(q[b, h], k[b, h], v[b, h], visible) for h in range(3)] for b in range(2)]
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)
