"""Attention written a second time, from the formula alone: one query at a time, one key at a time, in Python floats."""

import math

import numpy as np


def loop_attention(
    query, key, value, *, mask=None, is_causal=False, scale=None, softcap=None, window=None, offset=0, score="dot"
):
    """
    Attention for one head, float64: query (L, d_k), key (S, d_k), value (S, d_v), mask (L, S) boolean or added.

    Query i stands at position i + offset. A key that is not allowed is never looked at.
    """
    output = np.zeros((len(query), value.shape[1]))
    for i, q in enumerate(query):
        scores = {}
        for j, k in enumerate(key):
            if not allowed(i + offset, j, is_causal, window):
                continue
            if mask is not None and (mask[i, j] is np.False_ or mask[i, j] == -math.inf):
                continue
            s = similarity(q, k, score) * ((1 / math.sqrt(len(q)) if score == "dot" else 1) if scale is None else scale)
            s = s if softcap is None else softcap * math.tanh(s / softcap)
            scores[j] = s if mask is None or mask.dtype == bool else s + float(mask[i, j])
        if not scores:
            continue
        peak = max(scores.values())
        exponentials = {j: math.exp(s - peak) for j, s in scores.items()}
        total = math.fsum(exponentials.values())
        for c in range(value.shape[1]):
            output[i, c] = math.fsum(e / total * float(value[j, c]) for j, e in exponentials.items())
    return output


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


def loop_over_heads(query, key, value, mask=None, **options):
    """`loop_attention` for (batch, heads, …): consecutive query heads share a key head; the mask has four axes."""
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
