"""Every prediction beside a mechanism against draws through the attention core."""

import math

import numpy as np
import pytest

import analysis
from attnsym import attention_weights, entropy, qk_norm

# Means of so many draws are normal to a few per cent out to here: |z| > 6 has probability 2e-9, 1e-7 over all cells.
LARGEST_Z = 6.0
DRAWS, D_K, N = 20_000, 16, 12
BIAS = -0.25 * np.arange(N)
SPREAD = np.linspace(0.0, 2.0, N)

# name -> arguments of the prediction, and of the core where they are others.
CASES = {
    "sink": ({"sink": 0.5}, {}),
    "bias": ({"bias": BIAS}, {"attn_mask": BIAS}),
    "soft-cap": ({"softcap": 1.5}, {}),
    "soft-cap, bias and sink": ({"softcap": 1.5, "bias": BIAS, "sink": 0.0}, {"attn_mask": BIAS}),
    "cosine": ({"score": "cosine", "scale": 6.0}, {}),
    "cosine and soft-cap": ({"score": "cosine", "scale": 6.0, "softcap": 2.0}, {}),
    "needle": ({"needle": 2.0}, {"attn_mask": np.where(np.arange(N) == 0, 2.0, 0.0)}),
    "keys of different lengths": ({"key_spread": SPREAD}, {}),
    "causal": ({"is_causal": True, "sink": 0.0}, {}),
    "window": ({"is_causal": True, "window": 4}, {}),
}
PREDICTED = {
    "entropy": analysis.expected_entropy,
    "jacobian_trace": analysis.expected_jacobian_trace,
    "power_sum_2": lambda n, **kw: analysis.expected_power_sum(2, n, **kw),
    "power_sum_3": lambda n, **kw: analysis.expected_power_sum(3, n, **kw),
    "jacobian_frobenius_squared": analysis.expected_jacobian_frobenius_squared,
    "max_weight": analysis.expected_max_weight,
    "key_weight": analysis.expected_key_weight,
}


def measured(weights, *, has_sink):
    """Return every quantity of each draw, averaged over its rows; weights (draws, rows, n)."""
    two, three = (weights**2).sum(-1), (weights**3).sum(-1)
    whole = np.concatenate([weights, np.maximum(1 - weights.sum(-1, keepdims=True), 0)], -1) if has_sink else weights
    rows = {
        "entropy": entropy(whole),
        "jacobian_trace": weights.sum(-1) - two,
        "power_sum_2": two,
        "power_sum_3": three,
        "jacobian_frobenius_squared": two - 2 * three + two**2,
        "max_weight": weights.max(-1),
        "key_weight": weights[..., 0],
    }
    return {name: values.mean(axis=-1) for name, values in rows.items()}


def z_score(draws, prediction):
    return (draws.mean() - prediction) / (draws.std(ddof=1) / math.sqrt(draws.size))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_core_meets_the_predictions(case):
    prediction, core = CASES[case]
    rng = np.random.default_rng(20)
    is_causal = "is_causal" in prediction
    # Under a causal mask every row draws a query of its own, against keys that all rows share: the mean needs no more.
    query = rng.standard_normal((DRAWS, N if is_causal else 1, D_K))
    key = rng.standard_normal((DRAWS, N, D_K))
    if "key_spread" in prediction:
        key *= SPREAD[:, None]
    given = {name: value for name, value in prediction.items() if name not in ("bias", "needle", "key_spread")}
    weights = attention_weights(query, key, **given, **core)
    for name, draws in measured(weights, has_sink="sink" in prediction).items():
        if name == "max_weight" and "softcap" in prediction and "bias" in prediction:
            continue  # refused: capped scores that a bias shifts apart
        expected = PREDICTED[name](N, d_k=D_K, **prediction)
        assert abs(z_score(draws, expected)) < LARGEST_Z, name
        # The plain prediction, the mistake of leaving the mechanism out, is told apart.
        if name == "entropy":
            assert abs(z_score(draws, PREDICTED[name](N, d_k=D_K))) > LARGEST_Z


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["l2", "rms"])
def test_normalised_vectors_with_gains_are_cosines_in_the_core(kind):
    rng, gains = np.random.default_rng(21), (1.5, 0.8)
    vectors = (rng.standard_normal((DRAWS, n, D_K)) for n in (1, N))
    query, key = (qk_norm(x, kind=kind, gain=gain) for x, gain in zip(vectors, gains, strict=True))
    scale = 8.0 if kind == "l2" else 1 / math.sqrt(D_K)
    temperature = scale * math.prod(gains) * (1 if kind == "l2" else D_K)
    weights = attention_weights(query, key, scale=scale)
    for name, draws in measured(weights, has_sink=False).items():
        expected = PREDICTED[name](N, d_k=D_K, score="cosine", scale=temperature)
        assert abs(z_score(draws, expected)) < LARGEST_Z, name


@pytest.mark.slow
@pytest.mark.parametrize("normalizer", ["sigmoid", "relu"])
def test_row_sums_of_the_core(normalizer):
    rng = np.random.default_rng(22)
    query, key = rng.standard_normal((DRAWS, 1, D_K)), rng.standard_normal((DRAWS, N, D_K))
    sums = attention_weights(query, key, normalizer=normalizer).sum(axis=-1)[:, 0]
    mean = analysis.expected_row_sum(N, d_k=D_K, normalizer=normalizer)
    assert abs(z_score(sums, mean)) < LARGEST_Z
    variance = analysis.row_sum_variance(N, d_k=D_K, normalizer=normalizer)
    assert abs(z_score((sums - mean) ** 2, variance)) < LARGEST_Z
