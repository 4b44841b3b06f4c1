"""Checkpoints: every library's names and layouts give the audit of the same matrices."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from analysis import audit_weights
from analysis.audit.weights.audit import audit_projections
from analysis.audit.weights.checked import as_projections
from analysis.audit.weights.checkpoint import audit_checkpoint
from analysis.audit.weights.naming import find_projections
from analysis.cli import main
from analysis.vocabulary.scale import resolve_scale

D_MODEL, HEADS, D_K = 24, 4, 6


def gaussian(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


Q, K, V = (gaussian(seed, D_MODEL, HEADS * D_K) / 5 for seed in (1, 2, 3))
BQ, BK, BV = (gaussian(seed, HEADS * D_K) for seed in (4, 5, 6))
GAIN = 1 + 0.5 * gaussian(7, D_MODEL)
BY_HEAD = np.concatenate([np.stack([w.reshape(D_MODEL, HEADS, D_K) for w in (Q, K, V)], 2)], 0).reshape(D_MODEL, -1)
BIAS_BY_HEAD = np.stack([b.reshape(HEADS, D_K) for b in (BQ, BK, BV)], 1).reshape(-1)
# a checkpoint of one layer, and which of biases and gain it holds
CHECKPOINTS = {
    "Llama": ({"model.layers.0.self_attn.q_proj.weight": Q.T, "model.layers.0.self_attn.k_proj.weight": K.T,
               "model.layers.0.input_layernorm.weight": GAIN}, "gain"),
    "Llama's own": ({"layers.0.attention.wq.weight": Q.T, "layers.0.attention.wk.weight": K.T,
                     "layers.0.attention_norm.weight": GAIN}, "gain"),
    "OPT": ({"decoder.layers.0.self_attn.q_proj.weight": Q.T, "decoder.layers.0.self_attn.k_proj.weight": K.T,
             "decoder.layers.0.self_attn.q_proj.bias": BQ, "decoder.layers.0.self_attn.k_proj.bias": BK,
             "decoder.layers.0.self_attn_layer_norm.weight": GAIN}, "both"),
    "BERT": ({"bert.encoder.layer.0.attention.self.query.weight": Q.T,
              "bert.encoder.layer.0.attention.self.key.weight": K.T,
              "bert.encoder.layer.0.attention.self.query.bias": BQ, "bert.encoder.layer.0.attention.self.key.bias": BK,
              "bert.embeddings.LayerNorm.weight": GAIN,
              "bert.encoder.layer.0.attention.output.LayerNorm.weight": 3 * GAIN}, "both"),
    "GPT-2": ({"h.0.attn.c_attn.weight": np.hstack([Q, K, V]), "h.0.attn.c_attn.bias": np.hstack([BQ, BK, BV]),
               "h.0.ln_1.weight": GAIN}, "both"),
    "GPT-NeoX": ({"gpt_neox.layers.0.attention.query_key_value.weight": BY_HEAD.T,
                  "gpt_neox.layers.0.attention.query_key_value.bias": BIAS_BY_HEAD,
                  "gpt_neox.layers.0.input_layernorm.weight": GAIN}, "both"),
    "timm": ({"blocks.0.attn.qkv.weight": np.hstack([Q, K, V]).T, "blocks.0.attn.qkv.bias": np.hstack([BQ, BK, BV]),
              "blocks.0.norm1.weight": GAIN}, "both"),
    "torch": ({"layers.0.self_attn.in_proj_weight": np.hstack([Q, K, V]).T,
               "layers.0.self_attn.in_proj_bias": np.hstack([BQ, BK, BV]),
               "layers.0.norm1.weight": GAIN}, "biases"),  # its norm1 may come after the attention
    "T5": ({"encoder.block.0.layer.0.SelfAttention.q.weight": Q.T,
            "encoder.block.0.layer.0.SelfAttention.k.weight": K.T,
            "encoder.block.0.layer.0.layer_norm.weight": GAIN}, "gain"),
    "Flax": ({"encoder/0/query/kernel": Q.reshape(D_MODEL, HEADS, D_K),
              "encoder/0/key/kernel": K.reshape(D_MODEL, HEADS, D_K),
              "encoder/0/query/bias": BQ.reshape(HEADS, D_K), "encoder/0/key/bias": BK.reshape(HEADS, D_K)}, "biases"),
}  # fmt: skip


def save(folder, tensors):
    save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, folder / "model.safetensors")
    return str(folder)


LLAMA = CHECKPOINTS["Llama"][0]


def expected(what, **options):
    biases = {"bias_query": BQ, "bias_key": BK} if what in ("both", "biases") else {}
    gain = {"norm_gain": GAIN} if what in ("both", "gain") else {}
    return audit_weights(Q, K, num_heads=HEADS, **biases, **gain, **options)


def without_layer(audit):
    return [{name: value for name, value in row.items() if name != "layer"} for row in audit.to_records()]


def assert_same(audit, other):
    for row, same in zip(without_layer(audit), without_layer(other), strict=True):
        assert row.pop("cause") == same.pop("cause")
        assert row.pop("verdict") == same.pop("verdict")
        missing = [name for name, value in row.items() if value is None]
        assert missing == [name for name, value in same.items() if value is None]
        for name in set(row) - set(missing):
            assert row[name] == pytest.approx(same[name], rel=1e-4, abs=1e-6), name  # float32 products


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_librarys_layout_is_the_same_audit(tmp_path, name):
    tensors, what = CHECKPOINTS[name]
    save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, tmp_path / "model.safetensors")
    assert_same(audit_checkpoint([tmp_path], num_heads=HEADS), expected(what))


def test_grouped_heads_and_rotary_embedding_from_the_configuration(tmp_path):
    k = K[:, : 2 * D_K]
    tensors = CHECKPOINTS["Llama"][0] | {"model.layers.0.self_attn.k_proj.weight": np.ascontiguousarray(k.T)}
    save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, tmp_path / "model.safetensors")
    config = {"model_type": "llama", "num_attention_heads": HEADS, "num_key_value_heads": 2, "rope_theta": 1e4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    audit = audit_checkpoint([tmp_path / "model.safetensors"])
    same = audit_weights(Q, k, num_heads=HEADS, num_key_value_heads=2, norm_gain=GAIN, rotary="half")
    assert_same(audit, same)
    assert "4 query heads, 2 key heads; rotary embedding (half), averaged over positions." in audit.notes
    plain = audit_weights(Q, k, num_heads=HEADS, num_key_value_heads=2, norm_gain=GAIN)
    assert_same(audit_checkpoint([tmp_path], rotary="none"), plain)


def fused_by_group(readers):
    """Falcon's and Megatron's layout: the queries of a key head, its keys, its values, group after group."""
    groups = HEADS // readers
    parts = [w.reshape(D_MODEL, groups, -1, D_K) for w in (Q, K[:, : groups * D_K], V[:, : groups * D_K])]
    return np.concatenate(parts, 2).reshape(D_MODEL, -1)


FALCON = {"model_type": "falcon", "num_attention_heads": HEADS, "multi_query": True}
FUSED = {
    "Falcon 40B": ("query_key_value.weight", fused_by_group(2).T, 2,
                   FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "Falcon 7B": ("query_key_value.weight", fused_by_group(4).T, 1, FALCON),
    "Megatron": ("linear_qkv.weight", fused_by_group(2).T, 2, {"n_head": HEADS, "num_query_groups": 2}),
    "StarCoder": ("c_attn.weight", np.hstack([Q, K[:, :D_K], V[:, :D_K]]).T, 1,
                  {"model_type": "gpt_bigcode", "n_head": HEADS, "multi_query": True}),
    "GLM": ("query_key_value.weight", np.hstack([Q, K[:, : 2 * D_K], V[:, : 2 * D_K]]).T, 2,
            {"model_type": "chatglm", "num_attention_heads": HEADS, "multi_query_group_num": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_fused_projections_of_grouped_heads(tmp_path, name):
    tensor, fused, key_heads, config = FUSED[name]
    save(tmp_path, {f"transformer.h.0.self_attention.{tensor}": fused})
    (tmp_path / "config.json").write_text(json.dumps(config))
    k = K[:, : key_heads * D_K]
    assert_same(audit_checkpoint(tmp_path), audit_weights(Q, k, num_heads=HEADS, num_key_value_heads=key_heads))


@pytest.mark.parametrize(
    ("config", "dims"),
    [
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.7}}, 4),
        ({"rotary_pct": 0.4}, 2),
        ({"rotary_dim": 4, "model_type": "gptj"}, 4),
    ],
)
def test_a_part_of_the_components_turns(tmp_path, config, dims):
    save(tmp_path, LLAMA)
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_attention_heads": HEADS}))
    kind = "interleaved" if "model_type" in config else "half"
    layer = as_projections(
        "model.layers.0.self_attn", Q, K, None, None, GAIN, num_heads=HEADS, key_heads=HEADS, rotary=kind,
        rotary_dims=dims, norm="rms",
    )  # fmt: skip
    expected_audit = audit_projections([lambda: layer], scale=resolve_scale(None), n_keys=1024, source="")
    assert_same(audit_checkpoint(tmp_path), expected_audit)


def test_a_layer_norm_before_and_norms_after_the_projections(tmp_path):
    offset, own = gaussian(8, D_MODEL), (1 + gaussian(9, 2, D_K) / 4)
    layer = "model.layers.0."
    plain = LLAMA | {layer + "input_layernorm.bias": offset}
    save(tmp_path, plain)
    layer_norm = {"norm_gain": GAIN, "norm_bias": offset}
    assert_same(audit_checkpoint(tmp_path, num_heads=HEADS), audit_weights(Q, K, num_heads=HEADS, **layer_norm))
    save(tmp_path, LLAMA | {f"{layer}self_attn.{r}_norm.weight": g for r, g in zip("qk", own, strict=True)})
    gains = {"qk_norm": "rms", "query_gain": own[0], "key_gain": own[1], "norm_gain": GAIN}
    audit = audit_checkpoint(tmp_path, num_heads=HEADS)
    assert_same(audit, audit_weights(Q, K, num_heads=HEADS, **gains))
    assert all(head.normalised for head in audit.heads)
    wide = GAIN[::-1].copy()
    save(tmp_path, LLAMA | {f"{layer}self_attn.{r}_norm.weight": wide for r in "qk"})
    gains = {"qk_norm": "rms", "query_gain": wide, "key_gain": wide, "norm_gain": GAIN}
    assert_same(audit_checkpoint(tmp_path, num_heads=HEADS), audit_weights(Q, K, num_heads=HEADS, **gains))


@pytest.mark.parametrize(
    ("config", "scale", "gain"),
    [
        ({"model_type": "t5", "num_heads": HEADS}, "unscaled", GAIN),
        ({"model_type": "gemma2", "num_attention_heads": HEADS, "query_pre_attn_scalar": 144}, 1 / 12, 1 + GAIN),
        ({"model_type": "granite", "n_head": HEADS, "attention_multiplier": 0.25}, 0.25, GAIN),
        ({"text_config": {"n_heads": HEADS}}, None, GAIN),
    ],
)
def test_scale_and_gain_from_the_configuration(tmp_path, config, scale, gain):
    tensors = CHECKPOINTS["Llama"][0]
    save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert_same(audit_checkpoint([tmp_path]), audit_weights(Q, K, num_heads=HEADS, norm_gain=gain, scale=scale))


def test_shards_many_layers_and_the_command(tmp_path, capsys):
    places = {}
    for layer in (10, 2):
        part = {
            f"model.layers.{layer}.self_attn.{role}_proj.weight": np.ascontiguousarray(layer * w.T)
            for role, w in (("q", Q), ("k", K))
        }
        save_file(part, tmp_path / f"model-{layer}.safetensors")
        places |= dict.fromkeys(part, f"model-{layer}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert main(["audit", str(tmp_path), "--weights", "--num-heads", "4", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    names = [f"model.layers.{layer}.self_attn" for layer in (2, 10)]
    assert [head["layer"] for head in result["heads"]] == [name for name in names for _ in range(4)]
    assert main(["audit", str(tmp_path), "--weights", "--num-heads", "4"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100
    assert "model.layers.10.self_attn, head" in printed
    assert "no preferred direction" in " ".join(printed.split())


REFUSED = {
    "no heads": (LLAMA, [], "number of heads is not known"),
    "heads": (LLAMA, ["--num-heads", "5"], "5 heads"),
    "rotary": (LLAMA, ["--num-heads", "4", "--rotary", "full"], "rotary must be one of"),
    "no weights": ({"x": Q}, ["--num-heads", "4"], "no query and key projections found"),
    "normalised": (
        LLAMA | {"model.layers.0.self_attn.q_norm.weight": GAIN[:5]},
        ["--num-heads", "4"],
        "gain of the query norm of model.layers.0.self_attn must be",
    ),
    "quantised": ({n: (9 * w).astype(np.int8) for n, w in LLAMA.items()}, ["--num-heads", "4"], "quantised"),
    "fused": (CHECKPOINTS["timm"][0], ["--num-heads", "5"], "fused projection"),
    "target": (LLAMA, ["--num-heads", "4", "--target", "largest_score=3"], "--target does not apply"),
    "causal": (LLAMA, ["--num-heads", "4", "--causal"], "--causal does not apply"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_with_code_2(tmp_path, capsys, case):
    tensors, options, message = REFUSED[case]
    assert main(["audit", save(tmp_path, tensors), "--weights", *options]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize("text", ["[", "3", '{"text_config": 3}'])
def test_a_broken_configuration_is_told(tmp_path, text):
    save(tmp_path, LLAMA)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"no model's config\.json"):
        audit_checkpoint([tmp_path])


def test_cross_attention_takes_no_gain():
    names = [f"decoder.layers.0.{part}.{r}_proj.weight" for part in ("encoder_attn", "self_attn") for r in "qk"]
    found = find_projections([*names, "decoder.layers.0.self_attn_layer_norm.weight"])
    assert [(n.layer, n.gain is None) for n in found] == [
        ("decoder.layers.0.encoder_attn", True),
        ("decoder.layers.0.self_attn", False),
    ]
