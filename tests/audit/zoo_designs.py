"""Correct attention functions after published designs, each in a few lines, with its source and what must be named."""

import functools
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional
SDPA = F.scaled_dot_product_attention
RNG = np.random.default_rng(7)
TORCH = {"framework": "torch", "layout": "bhsd"}


@dataclass(frozen=True)
class Design:
    """A correct function: ``named`` is a regular expression that the page of the audit must contain."""

    source: str
    function: object
    named: str
    keywords: dict = field(default_factory=dict)


def eager(
    scale=lambda d, n: d**-0.5, prepare=lambda q, k: (q, k), bias=None, cap=None, normalise=None, seen=None,
    mask=True,
):  # fmt: skip
    """Return a torch attention over (b, h, s, d) with the given parts; masks are boolean (True = keep) or added."""

    def weights(q, k, attn_mask=None):
        q, k = prepare(q, k)
        s = q @ k.mT * scale(q.shape[-1], k.shape[-2])
        s = s if cap is None else cap * torch.tanh(s / cap)
        s = s if bias is None else s + bias(q.shape[-3], *s.shape[-2:]).to(s)
        s = s if seen is None else s.masked_fill(~seen(*s.shape[-2:]), -torch.inf)
        if attn_mask is not None:
            s = s.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else s + attn_mask
        return torch.softmax(s, -1) if normalise is None else normalise(s)

    if mask:
        return lambda query, key, value, attn_mask=None: weights(query, key, attn_mask) @ value
    return lambda query, key, value: weights(query, key) @ value


def positions(n, start=0):
    return torch.arange(start, start + n, dtype=torch.float64)


def rotate(x, where, base=10000.0, interleaved=False, part=1.0, decay=None):
    """Rotate pairs of channels by position."""
    width = int(x.shape[-1] * part) // 2 * 2
    turned, rest = x[..., :width], x[..., width:]
    angle = where[:, None] * base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
        out = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    else:
        a, b = turned.chunk(2, -1)
        out = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
    if decay is not None:
        out = out * (decay ** where[:, None]).to(x)
    return torch.cat([out, rest], -1)


def rotary(offset=False, **options):
    def prepare(q, k):
        start = k.shape[-2] - q.shape[-2] if offset else 0
        return rotate(q, positions(q.shape[-2], start), **options), rotate(k, positions(k.shape[-2]), **options)

    return prepare


def xpos(q, k):
    return rotate(q, positions(q.shape[-2]), decay=0.97), rotate(k, positions(k.shape[-2]), decay=1 / 0.97)


def relative(n, m):
    return torch.arange(n)[:, None] - torch.arange(m)[None, :]


def lower(n, m):
    return relative(n, m) >= 0


def alibi(h, n, m):
    slopes = 2.0 ** (-8.0 * (torch.arange(h, dtype=torch.float64) + 1) / h)
    return -slopes[:, None, None] * relative(n, m).abs()


def t5_bias(h, n, m):
    table = torch.linspace(-1, 1, 32 * h, dtype=torch.float64).reshape(32, h).sin() * 3
    return table[relative(n, m).abs().clamp(max=31)].permute(2, 0, 1)


def kerple(h, n, m):
    return (-0.7 * torch.log1p(1.3 * relative(n, m).abs().double())).expand(h, n, m)


def sinks(logits):
    """Return a softmax with one more logit per head in its denominator."""

    def normalise(s):
        b = torch.as_tensor(logits, dtype=s.dtype)[: s.shape[-3]]
        b = torch.nn.functional.pad(b, (0, s.shape[-3] - len(b)))[:, None, None].expand(*s.shape[:-1], 1)
        return torch.softmax(torch.cat([s, b], -1), -1)[..., :-1]

    return normalise


def off_by_one(s):
    top = s.amax(-1, keepdim=True).clamp(min=0)
    return (s - top).exp() / ((-top).exp() + (s - top).exp().sum(-1, keepdim=True))


def per_head(values):
    factor = torch.tensor(values, dtype=torch.float64)[:, None, None]
    return lambda q, k: (q * factor.to(q), k)


def temperature(block):
    def prepare(q, k):
        where = torch.arange(q.shape[-2], dtype=torch.float64)
        return q * (0.1 * torch.log(((where + 1) / block).floor() + 1) + 1)[:, None].to(q), k

    return prepare


def log_rows(q, k):
    return q * torch.log(torch.arange(2, q.shape[-2] + 2, dtype=torch.float64))[:, None].to(q), k


def unit(x):
    return F.normalize(x, dim=-1)


def rms(x, eps=1e-6, gain=None):
    return F.rms_norm(x, x.shape[-1:], weight=gain, eps=eps)


def rms_single(x, eps=1e-6):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def layer(x):
    return F.layer_norm(x, x.shape[-1:], eps=1e-5)


def gained(x):
    gain = 1 + 0.3 * torch.sin(torch.arange(x.shape[-1], dtype=x.dtype))
    return rms(x, gain=gain)


def grouped(order):
    def attention(query, key, value):
        times = query.shape[1] // key.shape[1]
        return SDPA(query, order(key, times), order(value, times))

    return attention


def sparsemax(s):
    ordered, _ = s.sort(-1, descending=True)
    count = torch.arange(1, s.shape[-1] + 1, dtype=s.dtype)
    inside = 1 + count * ordered > ordered.cumsum(-1)
    size = inside.sum(-1, keepdim=True)
    threshold = (ordered.cumsum(-1).gather(-1, size - 1) - 1) / size
    return (s - threshold).clamp(min=0)


def kernel(features_q, features_k=None):
    features_k = features_k or features_q

    def attention(query, key, value):
        q, k = features_q(query), features_k(key)
        return q @ (k.mT @ value) / (q @ k.sum(-2)[..., None])

    return attention


def efficient(query, key, value):
    return torch.softmax(query, -1) @ (torch.softmax(key, -2).mT @ value)


def random_features(query, key, value):
    rng = torch.Generator().manual_seed(3)
    w = torch.randn(64, query.shape[-1], generator=rng, dtype=query.dtype)

    def positive(x):
        x = x * x.shape[-1] ** -0.25
        return torch.exp(x @ w.T - x.pow(2).sum(-1, keepdim=True) / 2) / 8

    return kernel(positive)(query, key, value)


def trigonometric_features(query, key, value):
    w = np.random.default_rng(5).standard_normal((query.shape[-1], 64))

    def feature(x):
        return np.concatenate([np.cos(x @ w), np.sin(x @ w)], -1) * np.exp((x**2).sum(-1, keepdims=True) / 2)

    q, k = feature(query * query.shape[-1] ** -0.25), feature(key * key.shape[-1] ** -0.25)
    return q @ (k.swapaxes(-1, -2) @ value) / (q @ k.sum(-2)[..., None])


def cosformer(query, key, value):
    n = max(query.shape[-2], key.shape[-2])

    def features(x):
        angle = (math.pi / 2 * torch.arange(x.shape[-2], dtype=x.dtype) / n)[:, None]
        return torch.cat([F.relu(x) * angle.cos(), F.relu(x) * angle.sin()], -1)

    return kernel(features)(query, key, value)


def retention(query, key, value):
    decay = torch.where(lower(query.shape[-2], key.shape[-2]), 0.9 ** relative(query.shape[-2], key.shape[-2]), 0.0)
    return (query @ key.mT * query.shape[-1] ** -0.5 * decay.to(query)) @ value


def differential(query, key, value):
    (q1, q2), (k1, k2) = query.chunk(2, -1), key.chunk(2, -1)
    scale = q1.shape[-1] ** -0.5
    return (torch.softmax(q1 @ k1.mT * scale, -1) - 0.8 * torch.softmax(q2 @ k2.mT * scale, -1)) @ value


def talking_heads(query, key, value):
    h = query.shape[1]
    mix = torch.linspace(-1, 1, h * h, dtype=query.dtype).reshape(h, h) + torch.eye(h, dtype=query.dtype)
    s = torch.einsum("gh,bhij->bgij", mix, query @ key.mT * query.shape[-1] ** -0.5)
    return torch.softmax(s, -1) @ value


def distances(query, key, value):
    gap = query.pow(2).sum(-1)[..., None] - 2 * query @ key.mT + key.pow(2).sum(-1)[..., None, :]
    return torch.softmax(-gap / query.shape[-1] ** 0.5, -1) @ value


def additive(query, key, value):
    return torch.softmax(torch.tanh(query[..., :, None, :] + key[..., None, :, :]).sum(-1), -1) @ value


def online(block):
    """Return a running softmax over blocks of keys."""

    def attention(query, key, value, attn_mask=None):
        top = np.full((*query.shape[:-1], 1), -np.inf)
        total, out = np.zeros_like(top), np.zeros((*query.shape[:-1], value.shape[-1]))
        for start in range(0, key.shape[-2], block):
            s = query @ key[..., start : start + block, :].swapaxes(-1, -2) / math.sqrt(query.shape[-1])
            if attn_mask is not None:
                part = attn_mask[..., start : start + block]
                s = np.where(part, s, -np.inf) if attn_mask.dtype == bool else s + part
            new = np.maximum(top, s.max(-1, keepdims=True))
            safe = np.where(np.isfinite(new), new, 0.0)
            old, e = np.exp(top - safe), np.exp(s - safe)
            total, out, top = (
                total * old + e.sum(-1, keepdims=True),
                out * old + e @ value[..., start : start + block, :],
                new,
            )
        return np.divide(out, total, out=np.zeros_like(out), where=total > 0)

    return attention


def numpy_softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def textbook(query, key, value, mask=None):
    s = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    s = s if mask is None else np.where(mask == 0, -1e9, s)
    return numpy_softmax(s) @ value


def with_options(q, k, v, mask=None, **kwargs):
    return textbook(q, k, v, mask)


def hugging(query, key, value, attention_mask=None, scaling=None, dropout=0.0, **kwargs):
    s = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    s = s if attention_mask is None else s + attention_mask
    return (torch.softmax(s, -1) @ value).transpose(1, 2), None


def bert(query, key, value, attention_mask=None):
    s = query @ key.mT / math.sqrt(query.shape[-1])
    if attention_mask is not None:
        s = s + (1.0 - attention_mask[:, None, None, :].to(s)) * -10000.0
    return torch.softmax(s, -1) @ value


def padding_keep(query, key, value, mask=None):
    s = query @ key.mT / math.sqrt(query.shape[-1])
    s = s if mask is None else s.masked_fill(~mask[:, None, None, :], -torch.inf)
    return torch.softmax(s, -1) @ value


def padding_drop(query, key, value, key_padding_mask=None):
    s = query @ key.mT / math.sqrt(query.shape[-1])
    s = s if key_padding_mask is None else s.masked_fill(key_padding_mask[:, None, None, :], -torch.inf)
    return torch.softmax(s, -1) @ value


def other_order(values, keys, queries, mask=None):
    return textbook(queries, keys, values, mask)


def merged(query, key, value, num_heads):
    b, n, m = query.shape
    q, k, v = (x.view(b, -1, num_heads, m // num_heads).transpose(1, 2) for x in (query, key, value))
    return SDPA(q, k, v).transpose(1, 2).reshape(b, n, m)


def sequence_first(query, key, value, num_heads):
    n, b, m = query.shape
    q, k, v = (x.contiguous().view(-1, b * num_heads, m // num_heads).transpose(0, 1) for x in (query, key, value))
    w = torch.softmax(torch.bmm(q * (m // num_heads) ** -0.5, k.transpose(1, 2)), -1)
    return torch.bmm(w, v).transpose(0, 1).reshape(n, b, m)


def bshd_einsum(query, key, value):
    s = torch.einsum("bihd,bjhd->bhij", query, key) / query.shape[-1] ** 0.5
    return torch.einsum("bhij,bjhd->bihd", torch.softmax(s, -1), value)


def in_single(query, key, value):
    return SDPA(query.float(), key.float(), value.float()).to(query.dtype)


def single_softmax(query, key, value):
    w = torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1, dtype=torch.float32).to(query.dtype)
    return w @ value


def multihead(batch_first, **options):
    return torch.nn.MultiheadAttention(48, 3, batch_first=batch_first, **options).double().eval()


def bits(n, m):
    return lower(n, m) & (relative(n, m) < 3)


DESIGNS = {
    # --- the plain one, in several hands
    "fused kernel": Design("PyTorch 2 scaled_dot_product_attention", SDPA, r"scale 1/√d_k", TORCH),
    "textbook, integer masks": Design("Vaswani et al. 2017; The Annotated Transformer", textbook, r"scale 1/√d_k"),
    "merged heads": Design("Vaswani et al. 2017", merged, r"bsm.*scale 1/√d_k"),
    "sequence first": Design("fairseq MultiheadAttention", sequence_first, r"sbm.*scale 1/√d_k"),
    "einsum": Design("Flax dot_product_attention", bshd_einsum, r"bshd", {"layout": "bshd"}),
    "running softmax, blocks of 4": Design("Milakov and Gimelshein 2018", online(4), r"scale 1/√d_k"),
    "running softmax, blocks of 64": Design("FlashAttention, Dao et al. 2022", online(64), r"scale 1/√d_k"),
    "multi-head layer as it stands": Design("nn.MultiheadAttention", multihead(True), r"bsm.*scale 1/√d_k"),
    "multi-head layer, sequence first": Design("nn.MultiheadAttention", multihead(False), r"sbm.*scale 1/√d_k"),
    "multi-head layer with a zero key": Design(
        "nn.MultiheadAttention, add_zero_attn", multihead(True, add_zero_attn=True), r"sink"
    ),
    "eager interface": Design("transformers eager_attention_forward", hugging, r"scale 1/√d_k", TORCH),
    "other options": Design("a signature with **kwargs", with_options, r"scale 1/√d_k"),
    "values first": Design("a tutorial's signature (values, keys, queries, mask)", other_order, r"scale 1/√d_k"),
    # --- scales
    "scale 5": Design("a constant temperature", functools.partial(SDPA, scale=5.0), r"scale 5\b", TORCH),
    "scale 0.01": Design("a constant temperature", functools.partial(SDPA, scale=0.01), r"scale 0\.01\b", TORCH),
    "Hopfield": Design("Ramsauer et al. 2020, β = 8", eager(lambda d, n: 8.0), r"scale 8\b"),
    "1/d_k": Design("muP, Yang et al. 2022", eager(lambda d, n: 1 / d), r"scale 1/d_k"),
    "8/d_k": Design("muP with a base width, Yang et al. 2022", eager(lambda d, n: 8 / d), r"scale 8/d_k"),
    "log n over √d": Design(
        "Su 2021; Chiang and Cholak 2022", eager(lambda d, n: math.log(n) / math.sqrt(d)), r"log n_keys/√d_k"
    ),
    "YaRN": Design(
        "Peng et al. 2023", eager(lambda d, n: (0.1 * math.log(4) + 1) ** 2 / math.sqrt(d), rotary()), r"rotary"
    ),
    "a scale per head": Design("learned temperature per head", eager(prepare=per_head([0.7, 1.0, 1.9])), r"per head"),
    "log of the position": Design(
        "Scalable-Softmax, Nakanishi 2025", eager(prepare=log_rows, seen=lower), r"per query"
    ),
    "temperature by blocks": Design("Llama 4, block of 2", eager(prepare=temperature(2)), r"per query"),
    "temperature by blocks with rotary": Design(
        "Llama 4, block of 2", eager(prepare=lambda q, k: temperature(2)(*rotary()(q, k)), seen=lower), r"rotary"
    ),
    # --- normalised queries and keys
    "l2 norm": Design("Henry et al. 2020", eager(lambda d, n: 10.0, lambda q, k: (unit(q), unit(k))), r"normalised"),
    "rms norm with eps": Design("Gemma 3, Qwen 3", eager(prepare=lambda q, k: (rms(q), rms(k))), r"normalised"),
    "rms norm with a large eps": Design(
        "QK-norm, eps 1e-3", eager(prepare=lambda q, k: (rms(q, 1e-3), rms(k, 1e-3))), r"normalised"
    ),
    "rms norm in single precision": Design(
        "Llama's norm in float32", eager(prepare=lambda q, k: (rms_single(q), rms_single(k))), r"normalised"
    ),
    "rms norm with gains": Design("Qwen 3", eager(prepare=lambda q, k: (gained(q), gained(k))), r"normalised"),
    "layer norm": Design(
        "ViT-22B, Dehghani et al. 2023", eager(prepare=lambda q, k: (layer(q), layer(k))), r"normalised"
    ),
    "normalised keys only": Design("key norm", eager(prepare=lambda q, k: (q, rms(k))), r"normalised"),
    "cosine with a temperature per head and a bias": Design(
        "Swin v2, Liu et al. 2022",
        eager(lambda d, n: 1.0, lambda q, k: per_head([4.0, 9.0, 15.0])(unit(q), unit(k)), bias=t5_bias),
        r"normalised",
    ),
    "norm and rotary": Design(
        "Qwen 3",
        eager(prepare=lambda q, k: rotary()(rms(q), rms(k))),
        r"normalised[\s\S]*rotary|rotary[\s\S]*normalised",
    ),
    # --- sinks and normalisers
    "a sink per head": Design("gpt-oss 2025", eager(normalise=sinks([0.3, -1.0, 2.0])), r"sink"),
    "a sink per head, causal window": Design(
        "gpt-oss 2025", eager(normalise=sinks([0.3, -1.0, 2.0]), seen=bits), r"sink"
    ),
    "off by one": Design("Miller 2023", eager(normalise=off_by_one), r"sink"),
    "sigmoid": Design(
        "Ramapuram et al. 2024",
        eager(bias=lambda h, n, m: torch.tensor(-math.log(m)), normalise=torch.sigmoid),
        r"sigmoid",
    ),
    "relu over n": Design("Wortsman et al. 2023", eager(normalise=lambda s: F.relu(s) / s.shape[-1]), r"[Rr]e[Ll][Uu]"),
    "plain relu": Design("Shen et al. 2023", eager(normalise=F.relu), r"[Rr]e[Ll][Uu]"),
    "squared relu": Design(
        "Hua et al. 2022", eager(normalise=lambda s: F.relu(s) ** 2 / s.shape[-1]), r"[Rr]e[Ll][Uu]"
    ),
    "sparsemax": Design("Martins and Astudillo 2016", eager(normalise=sparsemax), r"sparsemax"),
    "differential": Design("Ye et al. 2024", differential, r"differen", TORCH),
    "distances": Design("Kim et al. 2021", distances, r"distance", TORCH),
    "additive scores": Design("Bahdanau et al. 2015", additive, r"", TORCH),
    "talking heads": Design("Shazeer et al. 2020", talking_heads, r"", TORCH),
    # --- kernels
    "linear": Design("Katharopoulos et al. 2020", kernel(lambda x: F.elu(x) + 1), r"linear attention", TORCH),
    "linear with relu": Design("Schlag et al. 2021", kernel(lambda x: F.relu(x) + 1e-3), r"linear attention", TORCH),
    "efficient": Design("Shen et al. 2018", efficient, r"linear attention", TORCH),
    "positive random features": Design("Choromanski et al. 2020", random_features, r"linear attention", TORCH),
    "trigonometric random features": Design("Peng et al. 2021", trigonometric_features, r"", {"layout": "bhsd"}),
    "cosFormer": Design("Qin et al. 2022", cosformer, r"linear attention", TORCH),
    "retention": Design("Sun et al. 2023", retention, r"", TORCH),
    # --- caps and positions
    "cap 50": Design("Gemma 2", eager(cap=50.0), r"soft-cap 50"),
    "cap 30, unscaled": Design("Grok-1", eager(lambda d, n: 1.0, cap=30.0), r"soft-cap 30"),
    "rotary": Design("Su et al. 2021, GPT-NeoX", eager(prepare=rotary()), r"rotary"),
    "rotary, interleaved": Design("Su et al. 2021, GPT-J", eager(prepare=rotary(interleaved=True)), r"rotary"),
    "rotary with a cache": Design(
        "queries at positions S - L ... S - 1", eager(prepare=rotary(offset=True)), r"rotary"
    ),
    "rotary on a quarter": Design("GPT-NeoX-20B, Phi", eager(prepare=rotary(part=0.25)), r"rotary"),
    "rotary, causal": Design("Llama", eager(prepare=rotary(), seen=lower), r"rotary"),
    "rotary in a base of 500000": Design("Llama 3", eager(prepare=rotary(base=5e5)), r"rotary"),
    "xPos": Design("Sun et al. 2022", eager(prepare=xpos), r"rotary"),
    "ALiBi": Design("Press et al. 2022", eager(bias=alibi, seen=lower), r"ALiBi"),
    "ALiBi, both sides": Design("Press et al. 2022", eager(bias=alibi), r"ALiBi"),
    "relative bias, unscaled": Design("T5, Raffel et al. 2020", eager(lambda d, n: 1.0, bias=t5_bias), r"relative"),
    "logarithmic bias": Design("KERPLE, Chi et al. 2022", eager(bias=kerple), r"relative"),
    # --- what is visible
    "always causal": Design("GPT-2", eager(seen=lower), r"causal top-left"),
    "sliding window": Design("Mistral 7B", eager(seen=bits), r"window 3"),
    "window on both sides": Design(
        "Longformer, Beltagy et al. 2020", eager(seen=lambda n, m: relative(n, m).abs() <= 2), r"window \(2, 2\)"
    ),
    "chunks": Design(
        "Llama 4",
        eager(seen=lambda n, m: lower(n, m) & (torch.arange(n)[:, None] // 4 == torch.arange(m) // 4)),
        r"blocks of 4",
    ),
    "window and first keys": Design(
        "StreamingLLM, Xiao et al. 2023",
        eager(seen=lambda n, m: lower(n, m) & ((relative(n, m) < 3) | (torch.arange(m) < 2))),
        r"first 2",
    ),
    "prefix": Design(
        "UniLM, Dong et al. 2019", eager(seen=lambda n, m: lower(n, m) | (torch.arange(m) < 3)), r"prefix"
    ),
    # --- masks
    "additive padding mask": Design("BERT", bert, r"scale 1/√d_k", TORCH),
    "padding mask, True = keep": Design("(batch, n_keys)", padding_keep, r"mask: .*boolean", TORCH),
    "padding mask, True = drop": Design("nn.MultiheadAttention's convention", padding_drop, r"scale 1/√d_k", TORCH),
    "boolean mask, True = drop": Design(
        "masked_fill(mask, -inf)",
        lambda query, key, value, mask=None: SDPA(query, key, value, None if mask is None else ~mask),
        r"mask: .*boolean",
        {**TORCH, "mask_means": "drop"},
    ),
    # --- grouped heads
    "grouped heads": Design(
        "Ainslie et al. 2023", grouped(lambda x, n: x.repeat_interleave(n, 1)), r"scale 1/√d_k", TORCH
    ),
    "grouped heads, tiled": Design(
        "consistent with itself", grouped(lambda x, n: x.repeat(1, n, 1, 1)), r"[Gg]rouped", TORCH
    ),
    # --- precision
    "bfloat16": Design("the fused kernel in bfloat16", SDPA, r"scale 1/√d_k", {**TORCH, "dtype": "bfloat16"}),
    "bfloat16, d_k = 128": Design(
        "the fused kernel in bfloat16", SDPA, r"scale 1/√d_k", {**TORCH, "dtype": "bfloat16", "d_k": 128}
    ),
    "bfloat16, 1/d_k": Design(
        "muP in bfloat16", eager(lambda d, n: 1 / d), r"scale 1/d_k", {**TORCH, "dtype": "bfloat16", "d_k": 64}
    ),
    "float16": Design("the fused kernel in float16", SDPA, r"scale 1/√d_k", {**TORCH, "dtype": "float16"}),
    "computed in single precision": Design("a cast inside", in_single, r"scale 1/√d_k", TORCH),
    "softmax in single precision": Design("Gemma's eager attention", single_softmax, r"scale 1/√d_k", TORCH),
}
