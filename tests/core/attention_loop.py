"""Attention written a second time, from the formula alone: one query at a time, one key at a time, in Python floats."""

import math

import numpy as np


def loop_attention(
    query, key, value, *, mask=None, is_causal=False, scale=None, softcap=None, window=None, offset=0, score="dot",
    sink=None, normalizer="softmax", normalizer_bias=None
):  # fmt: skip
    """
    Attention for one head, float64: query (L, d_k), key (S, d_k), value (S, d_v), mask (L, S) boolean or added.

    Query i stands at position i + offset. A key that is not allowed is never looked at. A scale may be one for each
    query; sink and bias are numbers.
    """
    output = np.zeros((len(query), value.shape[1]))
    for i, q in enumerate(query):
        scores = {}
        for j, k in enumerate(key):
            if not allowed(i + offset, j, is_causal, window):
                continue
            if mask is not None and (mask[i, j] is np.False_ or mask[i, j] == -math.inf):
                continue
            default = 1 / math.sqrt(len(q)) if score == "dot" else 1
            s = similarity(q, k, score) * (default if scale is None else np.broadcast_to(scale, len(query))[i])
            s = s if softcap is None else softcap * math.tanh(s / softcap)
            scores[j] = s if mask is None or mask.dtype == bool else s + float(mask[i, j])
        if not scores:
            continue
        weights = weigh(scores, len(key), sink, normalizer, normalizer_bias)
        for c in range(value.shape[1]):
            output[i, c] = math.fsum(w * float(value[j, c]) for j, w in weights.items())
    return output


def weigh(scores, n_keys, sink, normalizer, bias):
    """Return the weight of every key, of which {key: score} are allowed, n_keys in all."""
    if normalizer == "sigmoid":
        bias = -math.log(n_keys) if bias is None else bias
        return {j: 1 / (1 + math.exp(-s - bias)) if s + bias > -700 else 0.0 for j, s in scores.items()}
    if normalizer == "relu":
        return {j: max(s + (bias or 0), 0) / n_keys for j, s in scores.items()}
    sinks = [] if sink is None or sink == -math.inf else [sink]
    peak = max([*scores.values(), *sinks])
    exponentials = {j: math.exp(s - peak) for j, s in scores.items()}
    total = math.fsum([*exponentials.values(), *(math.exp(s - peak) for s in sinks)])
    return {j: e / total for j, e in exponentials.items()}


def allowed(position, j, is_causal, window):
    """Whether a query at this position may attend to key j."""
    if is_causal and j > position:
        return False
    if window is None:
        return True
    if isinstance(window, tuple):
        left, right = window
        return (left is None or position - j <= left) and (right is None or j - position <= right)
    return abs(position - j) < window


def similarity(q, k, score):
    """kᵀq, or the cosine of the angle between the two."""
    dot = math.fsum(float(a) * float(b) for a, b in zip(q, k, strict=True))
    if score == "dot":
        return dot
    lengths = math.hypot(*map(float, q)) * math.hypot(*map(float, k))
    return dot / lengths if lengths else 0.0


def loop_over_heads(query, key, value, mask=None, scale=None, sink=None, normalizer_bias=None, **options):
    """
    `loop_attention` for (batch, heads, …): consecutive query heads share a key head; the mask has four axes.

    A scale broadcasts to (heads, n_queries); sink and bias are numbers or one for each head.
    """
    batch, heads = query.shape[:2]
    shared = heads // key.shape[1]
    full = None if mask is None else np.broadcast_to(mask, (batch, heads, query.shape[2], key.shape[2]))
    rows = [
        [
            loop_attention(
                query[b, h],
                key[b, h // shared],
                value[b, h // shared],
                mask=None if full is None else full[b, h],
                scale=None if scale is None else np.broadcast_to(scale, (heads, query.shape[2]))[h],
                sink=None if sink is None else float(np.broadcast_to(sink, heads)[h]),
                normalizer_bias=None if normalizer_bias is None else float(np.broadcast_to(normalizer_bias, heads)[h]),
                **options,
            )
            for h in range(heads)
        ]
        for b in range(batch)
    ]
    return np.array(rows).reshape(batch, heads, query.shape[2], value.shape[3])


def normal(rng, *shape, dtype=np.float64):
    """Standard normal numbers of this shape and type."""
    return rng.standard_normal(shape).astype(dtype)


def random_mask(rng, kind, shape):
    """No mask, a boolean one, or a floating one with some −inf."""
    if kind is None:
        return None
    if kind == "bool":
        return rng.random(shape) < 0.7
    return np.where(rng.random(shape) < 0.2, -math.inf, rng.standard_normal(shape))
