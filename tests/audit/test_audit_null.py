"""How far the null of an audit of weights is off: hidden states, or queries and keys, beside the weights."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from analysis import audit_tensors, audit_weights, compare_audits
from analysis.cli import main
from attnsym import rotary, split_heads

D_MODEL, HEADS, D_K, TOKENS = 48, 4, 8, 250


def gaussian(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


W_Q, W_K = gaussian(1, 2, D_MODEL, HEADS * D_K) / np.sqrt(D_MODEL)
GAIN, OFFSET = 1 + 0.3 * gaussian(2, D_MODEL), 0.3 * gaussian(3, D_MODEL)
STATES = 7 * gaussian(4, 8, TOKENS, D_MODEL) + 3  # their length and mean are for the norm to take off


def unit(x, centred=False):
    x = x - x.mean(axis=-1, keepdims=True) * centred
    return x / np.linalg.norm(x, axis=-1, keepdims=True) * np.sqrt(x.shape[-1])


def heads_of(x, weights, bias=0.0):
    return split_heads(x @ weights + bias, HEADS)


def half_turned(x):
    order = np.arange(D_K).reshape(2, -1).T.ravel()
    turned = np.empty_like(x)
    turned[..., order] = rotary(x[..., order], np.arange(x.shape[-2]), base=10000.0)
    return turned


BIASES = {"bias_query": gaussian(5, HEADS * D_K), "bias_key": gaussian(6, HEADS * D_K)}
CASES = {
    "as they are": ({}, lambda x, w, b: heads_of(x, w)),
    "rms": ({"norm_gain": GAIN}, lambda x, w, b: heads_of(unit(x) * GAIN, w)),
    "layer": (
        {"norm_gain": GAIN, "norm_bias": OFFSET} | BIASES,
        lambda x, w, b: heads_of(unit(x, centred=True) * GAIN + OFFSET, w, b),
    ),
    "rotary": ({"norm_gain": GAIN, "rotary": "half"}, lambda x, w, b: half_turned(heads_of(unit(x) * GAIN, w))),
    "qk norm": ({"norm_gain": GAIN, "qk_norm": "rms"}, lambda x, w, b: unit(heads_of(unit(x) * GAIN, w))),
}


@pytest.mark.parametrize("case", CASES)
def test_hidden_states_become_the_layers_queries_and_keys(case):
    options, make = CASES[case]
    weights = audit_weights(W_Q, W_K, num_heads=HEADS, **options)
    seen = weights.of_hidden(STATES)
    q, k = make(STATES, W_Q, BIASES["bias_query"]), make(STATES, W_K, BIASES["bias_key"])
    for head, same in zip(seen.heads, audit_tensors(q, k).heads, strict=True):
        assert head.within_row_variance == pytest.approx(same.within_row_variance, rel=1e-4)
        assert head.entropy_ratio == pytest.approx(same.entropy_ratio, rel=1e-4)


@pytest.mark.parametrize("options", [{"norm_gain": GAIN}, {"norm_gain": GAIN, "qk_norm": "rms"}])
def test_isotropic_tokens_meet_the_null_within_the_stated_error(options):
    """Eight batch items are the draws; five standard errors, Student's t with 7 degrees, 1 in 600 a head."""
    weights = audit_weights(W_Q, W_K, num_heads=HEADS, **options)
    seen = weights.of_hidden(gaussian(7, 8, TOKENS, D_MODEL))
    for head, same in zip(weights.heads, seen.heads, strict=True):
        expected = head.score_variance * (1 - 1 / TOKENS)
        assert abs(same.within_row_variance - expected) < 5 * same.within_row_variance_standard_error
    assert compare_audits(weights, seen).summary()[0].endswith("0 of 4 heads are off by more than a tenth.")


def test_tokens_that_share_a_direction_are_told_with_the_factor():
    weights = audit_weights([W_Q, W_Q], [W_K, W_K], num_heads=HEADS, norm_gain=[GAIN, GAIN])
    shared = gaussian(8, 8, TOKENS, D_MODEL) + 3 * gaussian(9, D_MODEL)
    result = compare_audits(weights, weights.of_hidden([STATES - 3, shared]))
    assert result.null
    off = [head for head in result.heads if abs(head.variance_ratio - 1) > 0.5]
    assert {head.layer for head in off} == {"layer1"}
    assert "How far the null is off: these tokens make ×" in result.summary()[0]
    json.dumps(result.to_dict(), allow_nan=False)


def test_states_that_do_not_fit_are_refused():
    weights = audit_weights([W_Q, W_Q], [W_K, W_K], num_heads=HEADS)
    with pytest.raises(ValueError, match="one array per layer, 2: got 1"):
        weights.of_hidden(STATES)
    with pytest.raises(ValueError, match="layer1 is missing"):
        weights.of_hidden({"layer0": STATES})
    with pytest.raises(ValueError, match=r"d_model = 48\): got shape"):
        weights.of_hidden([STATES, STATES[..., :5]])


@pytest.mark.parametrize("form", ["hidden", "queries and keys"])
def test_the_command_tells_how_far_the_null_is_off(tmp_path, capsys, form):
    layers = range(2)
    tensors = {f"h.{i}.attn.{r}_proj.weight": w.T for i in layers for r, w in (("q", W_Q), ("k", W_K))}
    save_file({n: np.ascontiguousarray(w, np.float32) for n, w in tensors.items()}, tmp_path / "model.safetensors")
    states = unit(STATES).astype(np.float32)
    if form == "hidden":
        sample = {f"hidden_states.{i}": states for i in range(3)}
    else:
        sample = {f"layer{i}.{r}": heads_of(states, w) for i in layers for r, w in (("q", W_Q), ("k", W_K))}
    np.savez(tmp_path / "sample.npz", **sample)
    command = ["audit", str(tmp_path / "model.safetensors"), "--weights", "--num-heads", str(HEADS)]
    command += ["--tokens", str(tmp_path / "sample.npz")]
    assert main(command) == 0
    assert "How far the null is off: these tokens make ×" in " ".join(capsys.readouterr().out.split())
    assert main([*command, "--causal", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["measured"]["heads"]) == len(result["heads"]) == 8
    np.savez(tmp_path / "sample.npz", hidden=states[..., :5])
    assert main(command) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
