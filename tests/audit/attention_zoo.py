"""Attention functions to audit: one right core whose parts can each be exchanged for a wrong or a legitimate one."""

import math

import numpy as np


def softmax(s, axis=-1):
    with np.errstate(all="ignore"):
        e = np.exp(s - np.max(s, axis=axis, keepdims=True))
        e = np.where(np.isnan(e), 0.0, e)
        total = e.sum(axis=axis, keepdims=True)
        return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


def hide(s, mask):
    return np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask


def sqrt_scale(d, heads, keys):
    return 1 / math.sqrt(d)


def lower(n, m):
    return np.tri(n, m, dtype=bool)


def build(
    *, scale=sqrt_scale, axis=-1, normalise=softmax, products=lambda q, k: q @ k.swapaxes(-1, -2),
    prepare=lambda q, k: (q, k), cap=None, cap_first=True, mask=hide, after=lambda w, m: w,
    causal=lower, always=None, bias=None, join=None,
    mix=lambda w, v: w @ v, group=None, takes=("attn_mask", "is_causal"),
):  # fmt: skip
    """Return softmax(scale·q kᵀ)·v over (..., heads, length, d) with the given parts exchanged."""

    def capped(s):
        return s if cap is None else cap * np.tanh(s / cap)

    def core(q, k, v, attn_mask=None, is_causal=False):
        if group is not None and q.shape[-3] != k.shape[-3]:
            k, v = group(k, q.shape[-3] // k.shape[-3]), group(v, q.shape[-3] // k.shape[-3])
        heads = q.shape[-3] if q.ndim > 2 else 1
        query, key = prepare(q, k)
        s = products(query, key) * scale(q.shape[-1], heads, k.shape[-2])
        s = capped(s) if cap_first else s
        s = s if bias is None else s + bias(*s.shape[-2:])
        pattern = causal(*s.shape[-2:]) if is_causal else None
        if join is not None and attn_mask is not None and is_causal:
            attn_mask, pattern = join(attn_mask, pattern)
        for visible in (pattern, None if always is None else always(*s.shape[-2:])):
            s = s if visible is None else np.where(visible, s, -np.inf)
        s = s if attn_mask is None else mask(s, attn_mask)
        w = normalise(s if cap_first else capped(s), axis)
        return mix(w if attn_mask is None else after(w, attn_mask), v)

    variants = {
        ("attn_mask", "is_causal"): lambda query, key, value, attn_mask=None, is_causal=False: core(
            query, key, value, attn_mask, is_causal
        ),
        ("attn_mask",): lambda query, key, value, attn_mask=None: core(query, key, value, attn_mask),
        (): lambda query, key, value: core(query, key, value),
    }
    return variants[takes]


def merged(core, num_heads=3, split="right", merge="right"):
    """Return a (batch, length, heads·d) attention that splits and merges heads around a core, rightly or not."""

    def cut(x):
        b, n, m = x.shape
        if split == "right":
            return x.reshape(b, n, num_heads, m // num_heads).swapaxes(1, 2)
        return x.reshape(b, num_heads, n, m // num_heads)

    def attention(query, key, value):
        out = core(cut(query), cut(key), cut(value))
        b, h, n, d = out.shape
        return (out.swapaxes(1, 2) if merge == "right" else out).reshape(b, n, h * d)

    return attention


def bshd(core):
    """Return the same attention over (batch, length, heads, d)."""
    return lambda query, key, value: core(*(x.swapaxes(1, 2) for x in (query, key, value))).swapaxes(1, 2)


def heads_as_tokens(core):
    """Return an attention over (batch, length, heads, d) that forgets to move the heads."""
    return lambda query, key, value: core(query, key, value)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def rms(x):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-12)


def dropout(p, rescale, seed=0):
    rng = np.random.default_rng(seed)

    def normalise(s, axis):
        w = softmax(s, axis)
        return w * (rng.random(w.shape) >= p) / (1 - p if rescale else 1)

    return normalise


def without_maximum(s, axis):
    with np.errstate(all="ignore"):
        e = np.exp(s)
        return e / e.sum(axis=axis, keepdims=True)


def with_sink(s, axis):
    with np.errstate(all="ignore"):
        top = np.maximum(s.max(axis=axis, keepdims=True), 0.0)
        e = np.exp(s - top)
        return e / (e.sum(axis=axis, keepdims=True) + np.exp(-top))
