"""Checkpoints that `transformers` writes: weights and hidden states give the model's own queries and keys."""

import numpy as np
import pytest

from analysis import audit_checkpoint, audit_tensors

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

COMMON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
DECODER = COMMON | {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
NEOX = COMMON | {"intermediate_size": 64, "rotary_pct": 0.5, "max_position_embeddings": 64}
MODELS = {
    "Bert": COMMON | {"intermediate_size": 64},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 64},
    "Llama": DECODER,
    "Qwen2": DECODER,
    "Qwen3": DECODER,
    "Gemma": DECODER,
    "Gemma3Text": DECODER | {"query_pre_attn_scalar": 16, "sliding_window": 64},
    "Olmo2": DECODER,
    "Mistral": DECODER,
    "Cohere": DECODER | {"use_qk_norm": True},
    "StableLm": DECODER | {"use_qkv_bias": True},
    "Granite": DECODER | {"attention_multiplier": 0.3},
    "Phi3": DECODER,
    "Starcoder2": DECODER,
    "Nemotron": DECODER,
    "Glm": DECODER,
    "Helium": DECODER,
    "Ernie4_5": DECODER,
    "Apertus": DECODER,
    "Phi": DECODER | {"partial_rotary_factor": 0.5},
    "GPTNeoX": NEOX,
    "Falcon": COMMON | {"multi_query": True, "new_decoder_architecture": False, "alibi": False},
    "Falcon 40B": COMMON | {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False},
    "GPTBigCode": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 64},
    "GPTJ": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 64, "rotary_dim": 4},
    "OPT": COMMON | {"ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 50},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_weights_and_hidden_states_give_the_models_own_queries_and_keys(name, tmp_path, monkeypatch):
    torch.manual_seed(0)
    family = name.split()[0]
    config = getattr(transformers, f"{family}Config")(**MODELS[name], attn_implementation="sdpa", pad_token_id=0)
    model = getattr(transformers, f"{family.removesuffix('Text')}{'TextModel' if 'Text' in family else 'Model'}")(
        config
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) / 6  # gains apart from 1, biases apart from 0
    model.eval().save_pretrained(tmp_path)
    seen, original = [], torch.nn.functional.scaled_dot_product_attention

    def spy(query, key, value, *args, scale=None, **keywords):
        seen.append((query.numpy().copy(), key.numpy().copy(), scale))
        return original(query, key, value, *args, scale=scale, **keywords)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    with torch.no_grad():
        found = model(torch.randint(1, 50, (3, 17)), output_hidden_states=True)
    weights = audit_checkpoint(tmp_path)
    audit = weights.of_hidden([states.numpy() for states in found.hidden_states[:-1]])
    assert len(seen) == 2
    for layer, (query, key, scale) in zip(dict.fromkeys(head.layer for head in audit.heads), seen, strict=True):
        own = audit_tensors(query, key, scale=scale, enable_gqa=True)
        ours = [head for head in audit.heads if head.layer == layer]
        for head, same in zip(ours, own.heads, strict=True):
            assert head.within_row_variance == pytest.approx(same.within_row_variance, rel=2e-3)
            assert head.largest_score == pytest.approx(same.largest_score, rel=2e-3)
    assert np.isfinite([head.score_variance for head in weights.heads]).all()
