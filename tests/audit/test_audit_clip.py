"""Clip factors, as arrays and applied to modules: the target is met, and the other heads keep every bit."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import HeadMaximum, apply_clip, clip_factors, clip_model, watch


@given(st.lists(st.floats(-50, 5000) | st.just(math.nan), min_size=4, max_size=4), st.floats(0.1, 500))
@settings(max_examples=30)
def test_the_product_of_the_factors_meets_the_target(largest, target):
    for key_heads in (4, 2, 1):
        factors = clip_factors(largest, target, num_key_value_heads=key_heads)
        product = factors.query * np.repeat(factors.key, 4 // key_heads)
        np.testing.assert_allclose(product, factors.gamma, rtol=1e-15)
        for score, gamma in zip(largest, factors.gamma, strict=True):
            assert gamma == 1 if not score > target else score * gamma == pytest.approx(target)
        assert len(factors.key) == key_heads
        assert key_heads == 4 or (factors.key == 1).all()


@pytest.mark.parametrize(
    ("largest", "target", "key_heads", "message"),
    [
        ([math.inf, 1], 1.0, None, "largest must be one finite score for each head"),
        ([], 1.0, None, "largest must be one finite score for each head"),
        ([[1.0]], 1.0, None, "largest must be one finite score for each head"),
        ([1.0], 0.0, None, "target must be positive: got 0.0"),
        ([1.0], math.nan, None, "target must be a finite number"),
        ([1.0], "3", None, "target must be a finite number: got '3'"),
        (["a"], 1.0, None, "largest must be one finite score for each head"),
        ([[1.0], [1.0, 2.0]], 1.0, None, "largest must be one finite score for each head"),
        ([1.0], True, None, "target must be a finite number"),
        ([1.0, 2.0, 3.0], 1.0, 2, "num_key_value_heads must divide the 3 heads: got 2"),
        ([1.0, 2.0], 1.0, 0, "num_key_value_heads must divide"),
    ],
)
def test_factors_that_cannot_be(largest, target, key_heads, message):
    with pytest.raises(ValueError, match=message):
        clip_factors(largest, target, num_key_value_heads=key_heads)


def test_a_clip_without_torch_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for clip in (lambda: apply_clip(object(), [0.5]), lambda: clip_model(object(), [], 1.0)):
        with pytest.raises(ImportError, match="pip install"):
            clip()


def attention(
    torch, *, heads=4, key_heads=4, d_k=6, names=("q_proj", "k_proj"), norms=None, rotary=False, head_dim=True
):
    """Return self-attention with linear layers of these names, with a list of what it gave to fused attention."""

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.num_heads, self.num_key_value_heads = heads, key_heads
            if head_dim:
                self.head_dim = d_k
            width = 16 if head_dim else heads * d_k
            self.sizes = [heads * d_k, key_heads * d_k, key_heads * d_k]
            if len(names) == 1:
                self.add_module(names[0], torch.nn.Linear(width, sum(self.sizes)))
            else:
                for name, size in zip((*names, "v_proj"), self.sizes, strict=True):
                    self.add_module(name, torch.nn.Linear(width, size, bias=name != "v_proj"))
            for name, norm in (norms or {}).items():
                self.add_module(name, norm)
            self.width, self.given, self.made = width, [], None

        def forward(self, x):
            if len(names) == 1:
                q, k, v = getattr(self, names[0])(x).split(self.sizes, dim=-1)
            else:
                q, k, v = getattr(self, names[0])(x), getattr(self, names[1])(x), self.v_proj(x)
            q = self.q_norm(q) if norms else q
            k = self.k_norm(k) if norms else k
            q, k, v = (t.unflatten(-1, (-1, d_k)).transpose(1, 2) for t in (q, k, v))
            if rotary:
                angle = torch.arange(x.shape[1])[:, None] * 0.7 ** torch.arange(d_k // 2)
                q, k = (
                    torch.cat((t[..., ::2] * angle.cos() - t[..., 1::2] * angle.sin(),
                               t[..., ::2] * angle.sin() + t[..., 1::2] * angle.cos()), dim=-1) for t in (q, k)
                )  # fmt: skip
            self.made = q, k
            self.out = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            return self.out

    return Attention()


def spread(torch, module):
    """Make the weights larger, so that scores of several sizes are there to clip."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(4.0).add_(0.3 * torch.randn_like(parameter))
    return module


CASES = {
    "separate": {},
    "names of BERT": {"names": ("query", "key")},
    "rotary": {"rotary": True},
    "grouped": {"key_heads": 2, "rotary": True},
    "one key head": {"key_heads": 1},
    "in blocks": {"names": ("qkv",), "head_dim": False},
    "in grouped blocks": {"names": ("qkv_proj",), "key_heads": 2},
}


@pytest.mark.slow
class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        torch = pytest.importorskip("torch")
        torch.manual_seed(3)
        return torch

    def clipped(self, torch, module, x):
        """Clip a module to the target; return rows before and after, γ, and what was made before and after."""
        rows, made = [], []
        for _ in range(2):
            with watch(module) as watcher, torch.no_grad():
                module(x)
            rows.append(watcher.rows)
            made.append((*module.made, module.out))
            if len(rows) == 1:
                largest = sorted(row.largest_signed_score for row in rows[0])
                target = (largest[1] + largest[2]) / 2  # half of the heads are over it
                maxima = [row.largest_signed_score for row in rows[0]]
                gamma = clip_factors(maxima, target).gamma
                apply_clip(module, gamma)
        assert sorted(gamma)[1] < 1 == sorted(gamma)[2]
        return rows, target, gamma, made

    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize("norm", [False, True])
    def test_the_target_is_met_and_other_heads_keep_every_bit(self, torch, case, norm):
        options = dict(CASES[case])
        if norm:  # over all heads at once, as OLMo 2 has it: its gain carries the factor
            norms = {"q_norm": torch.nn.RMSNorm(24), "k_norm": torch.nn.LayerNorm(6 * options.get("key_heads", 4))}
            options["norms"] = norms
        module = spread(torch, attention(torch, **options))
        rows, target, gamma, made = self.clipped(torch, module, torch.randn(3, 7, module.width))
        share = 4 // options.get("key_heads", 4)
        for head, factor in enumerate(gamma):
            before, after = rows[0][head], rows[1][head]
            if factor < 1:
                assert after.largest_signed_score == pytest.approx(target, rel=1e-5)
                assert after.largest_score == pytest.approx(factor * before.largest_score, rel=1e-5)
                continue
            assert after.largest_score == before.largest_score
            for one, other in zip(*made, strict=True):
                place = head if one.shape[1] == 4 else head // share
                assert torch.equal(one[:, place], other[:, place])

    @pytest.mark.parametrize("options", [{}, {"kdim": 10, "vdim": 12}, {"bias": False}, {"add_bias_kv": True}])
    @pytest.mark.parametrize("heads", [1, 3])
    def test_multihead_attention(self, torch, options, heads):
        module = spread(torch, torch.nn.MultiheadAttention(12, heads, batch_first=True, **options))
        x = [torch.randn(2, 5, size) for size in (12, options.get("kdim", 12), options.get("vdim", 12))]
        before = {name: value.clone() for name, value in module.named_parameters()}
        gamma = [0.25] + [1.0] * (heads - 1)
        with watch(module) as watcher, torch.no_grad():
            module(*x, need_weights=False)
            apply_clip(module, gamma)
            module(*x, need_weights=False)
        first, second = watcher.rows[:heads], watcher.rows[heads:]
        for one, other, factor in zip(first, second, gamma, strict=True):
            assert other.largest_score == pytest.approx(factor * one.largest_score, rel=1e-5)
        assert all(a.largest_score == b.largest_score for a, b in zip(first[1:], second[1:], strict=True))
        for name, value in module.named_parameters():
            if not name.startswith(("q_proj", "k_proj", "in_proj", "bias_k")):
                assert torch.equal(value, before[name])
        values = slice(24, None)
        for name in {"in_proj_weight", "in_proj_bias"} & set(before):
            assert torch.equal(getattr(module, name)[values], before[name][values])

    def test_conv1d_of_gpt2_by_its_own_factor(self, torch):
        class Conv1D(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.bias = torch.nn.Parameter(torch.randn(12, 36)), torch.nn.Parameter(torch.randn(36))

        class Attention(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.n_head, self.c_attn = 2, Conv1D()

        module = Attention()
        before = module.c_attn.weight.clone()
        apply_clip(module, [1.0, 0.25])
        expected = torch.ones(36)
        expected[6:12] = expected[18:24] = 0.5
        assert torch.equal(module.c_attn.weight, before * expected)

    @pytest.mark.parametrize("kind", [
        "no gain", "shared gain", "unknown", "temperature", "tied", "relative keys", "integers", "heads", "width",
        "grouped blocks", "parametrised", "both normalised",
    ])  # fmt: skip
    def test_what_cannot_be_clipped_says_why_and_stays(self, torch, kind):
        nn = torch.nn
        module, given, reason = attention(torch), {}, ""
        if kind == "no gain":
            module.q_norm, reason = nn.RMSNorm(6, elementwise_affine=False), "without a gain"
        elif kind == "shared gain":
            module.k_layernorm, reason = nn.LayerNorm(6), "k_layernorm normalises its key, and all heads share its gain"
        elif kind == "both normalised":
            module.qk_norm, reason = nn.LayerNorm(6), "normalises queries and keys together"
        elif kind == "unknown":
            module, given, reason = nn.Linear(3, 3), {"num_heads": 4}, "no projections of known names"
        elif kind == "temperature":
            module.logit_scale, reason = nn.Parameter(torch.ones(4)), "logit_scale may have a part in the scores"
        elif kind == "tied":
            module.k_proj, reason = module.q_proj, "one matrix makes its queries and its keys"
        elif kind == "relative keys":
            module.distance_embedding, reason = nn.Embedding(9, 6), "as relative keys do"
        elif kind == "integers":
            module.q_proj.weight = nn.Parameter(torch.ones(24, 16, dtype=torch.int8), requires_grad=False)
            reason = "q_proj.weight holds no floating numbers"
        elif kind == "heads":
            given, reason = {"num_heads": 8}, "it has 4 heads: got num_heads 8"
        elif kind == "width":
            module.head_dim, reason = 12, "4 heads do not fit its projections"
        elif kind == "grouped blocks":
            module = attention(torch, names=("qkv",))
            module.num_key_value_heads, reason = 2, "qkv is no three blocks of queries, keys and values"
        elif kind == "parametrised":
            nn.utils.parametrizations.weight_norm(module.k_proj)
            reason = "k_proj is ParametrizedLinear, not a plain linear layer"
        before = {name: value.clone() for name, value in module.state_dict().items()}
        with pytest.raises(ValueError, match=reason):
            apply_clip(module, [0.5, 1, 1, 1], **given)
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())

    @pytest.mark.parametrize(
        ("gamma", "message"),
        [
            ([0.5, 1.0], "one factor for each of 4 heads: got 2"),
            ([1, 1, 1, 0], "positive, finite"),
            (0.5, "got 1"),
            ([[1, 1, 1, 1]], "positive"),
        ],
    )
    def test_factors_that_do_not_fit(self, torch, gamma, message):
        with pytest.raises(ValueError, match=message):
            apply_clip(attention(torch), gamma)
        with pytest.raises(ValueError, match="module must be a"):
            apply_clip([], [1.0])
        with pytest.raises(ValueError, match="model must be a"):
            clip_model([], [], 1.0)

    def test_a_training_run_is_kept_at_the_target(self, torch):
        layer = torch.nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True)
        model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x, target, clipped = torch.randn(4, 6, 16), 3.0, []
        grown = model[0].layers[1].self_attn.in_proj_weight
        with watch(model) as watcher:
            for _ in range(8):
                with torch.no_grad():
                    grown[4:8] *= 2.0  # the queries of head 1
                for half in x.split(2):
                    model(half).square().mean().backward()
                clipped.append(clip_model(model, watcher.take_maxima(), target))
                with torch.no_grad():
                    model(x)
                after = {(m.module, m.head): m.largest_signed_score for m in watcher.take_maxima()}
                assert after["0.layers.1.self_attn", 1] <= target * (1 + 1e-5)
                optimizer.step()
                optimizer.zero_grad()
        assert {name for each in clipped for name in each} == {"0.layers.1.self_attn"}
        for factors in clipped[-3:]:
            assert [gamma < 1 for gamma in factors["0.layers.1.self_attn"].gamma] == [False, True, False, False]

    def test_a_model_is_clipped_whole_or_not_at_all(self, torch):
        model = torch.nn.ModuleDict({"a": attention(torch), "b": attention(torch)})
        model["b"].logit_scale = torch.nn.Parameter(torch.ones(4))
        before = {name: value.clone() for name, value in model.state_dict().items()}
        maxima = [HeadMaximum(name, 0, head, 9.0, 9.0, 1) for name in "ab" for head in range(4)]
        with pytest.raises(ValueError, match="b: Attention cannot be clipped head by head: its parameter logit_scale"):
            clip_model(model, maxima, 3.0)
        with pytest.raises(ValueError, match="the model has no module 'c'"):
            clip_model(model, [HeadMaximum("c", 0, 0, 9.0, 9.0, 1)], 3.0)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        # of two calls the larger counts, one without a number does not
        more = [HeadMaximum("a", 1, 2, 27.0, 27.0, 1), HeadMaximum("a", 2, 2, math.nan, math.nan, 1)]
        factors = clip_model(model, [*maxima[:4], *more], 9.0)
        assert [*factors] == ["a"]
        np.testing.assert_allclose(factors["a"].gamma, [1, 1, 1 / 3, 1])
        alone = attention(torch)
        assert [*clip_model(alone, [HeadMaximum("Attention", 0, h, 9.0, 9.0, 1) for h in range(4)], 3.0)] == [
            "Attention"
        ]
