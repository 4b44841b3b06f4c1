"""Small models of `transformers`, randomly initialised: eager and fused attention, against the weights they return."""

import math

import numpy as np
import pytest

from analysis import watch

COMMON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
DECODER = COMMON | {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
MODELS = {
    "Bert": COMMON | {"intermediate_size": 64},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 64},
    "Llama": DECODER,
    "Qwen3": DECODER,
    "Gemma2": DECODER | {"attn_logit_softcapping": 5.0, "sliding_window": 4},
    "GptOss": DECODER | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4},
    "T5": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 50},
    "OPT": COMMON | {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 50},
}
FUSED = ("Bert", "GPT2", "Llama", "Qwen3", "OPT", "DistilBert")


def built(transformers, torch, name, implementation):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**MODELS[name], attn_implementation=implementation, pad_token_id=0)
    kind = "T5EncoderModel" if name == "T5" else f"{name}Model"
    model = getattr(transformers, kind)(config).eval()
    for parameter in model.parameters():  # larger than at initialisation, so that rows are far from uniform
        if parameter.dim() == 2 and parameter.shape[0] != 50:
            parameter.data *= 1 if name == "T5" else 8  # it has no scale, and its queries start out large enough
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_rows_are_those_of_the_weights_that_the_model_returns(name, implementation):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    if implementation == "sdpa" and name not in FUSED:
        pytest.skip("no fused form")
    tokens = torch.tensor([[3, 7, 9, 11, 2, 5, 30, 41], [4, 8, 15, 16, 23, 42, 1, 6]])
    eager = built(transformers, torch, name, "eager")
    with torch.no_grad():
        attentions = eager(tokens, output_attentions=True).attentions
        model = built(transformers, torch, name, implementation)
        plain = model(tokens)[0]
        with watch(model) as watcher:
            watched = model(tokens)[0]
    assert torch.equal(plain, watched)
    assert watcher.unseen == ()
    assert len(watcher.rows) == 2 * 4
    assert {row.source for row in watcher.rows} == {"eager" if implementation == "eager" else "fused"}
    assert all(row.d_k == 8 for row in watcher.rows)
    for row, (layer, head) in zip(watcher.rows, np.ndindex(2, 4), strict=True):
        weights = attentions[layer][:, head].double().numpy()
        weights = weights / weights.sum(-1, keepdims=True)  # without a sink's part
        seen = weights > 0
        with np.errstate(all="ignore"):
            entropy = -np.where(seen, weights * np.log(weights), 0.0).sum(-1)
            ratio = entropy / np.log(seen.sum(-1))
        used = seen.sum(-1) >= 2
        assert row.rows == used.sum()
        assert row.entropy_ratio == pytest.approx(ratio[used].mean(), rel=1e-4)
        assert row.first_key_share == pytest.approx(weights[..., 0][used].mean(), rel=1e-4, abs=1e-6)
        logs = [np.log(w[s]).var() for w, s in zip(weights[used], seen[used], strict=True)]
        assert row.within_row_variance == pytest.approx(np.mean(logs), rel=1e-3)
        assert math.isnan(row.sink_share) == (name != "GptOss")
