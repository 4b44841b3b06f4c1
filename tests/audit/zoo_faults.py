"""Attention functions with one fault each, planted in published designs, with the codes that name the cause."""

import functools
import math
from dataclasses import dataclass, field

import numpy as np
from zoo_designs import SDPA, TORCH, F, eager, lower, numpy_softmax, off_by_one, positions, relative, rotate, torch


@dataclass(frozen=True)
class Planted:
    """A wrong function: the first fault that the audit names must be one of ``causes``."""

    function: object
    causes: tuple
    keywords: dict = field(default_factory=dict)


SQRT = {"intended_scale": "sqrt"}


def scores(query, key, scale=None):
    return query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)


def simple(normalise=lambda s: torch.softmax(s, -1), mix=lambda w, v: w @ v, **options):
    return lambda query, key, value: mix(normalise(scores(query, key, **options)), value)


def masked(apply, argument="attn_mask", always=None, after=None):
    """Return an attention whose mask acts as ``apply(scores, mask)``."""

    def attention(query, key, value, mask):
        s = scores(query, key)
        s = s if always is None else s.masked_fill(~always(*s.shape[-2:]), -torch.inf)
        w = torch.softmax(s if mask is None else apply(s, mask), -1)
        return (w if after is None or mask is None else after(w, mask)) @ value

    if argument == "key_padding_mask":
        return lambda query, key, value, key_padding_mask=None: attention(query, key, value, key_padding_mask)
    return lambda query, key, value, attn_mask=None: attention(query, key, value, attn_mask)


def filled(number):
    return lambda s, m: s.masked_fill(~m, number) if m.dtype == torch.bool else s + m


def with_causal(hide):
    def attention(query, key, value, is_causal=False):
        s = scores(query, key)
        return torch.softmax(hide(s) if is_causal else s, -1) @ value

    return attention


def running(block=64, rescale=True, first_only=False, drop_last=False):
    """Return a running softmax over blocks of keys, with a step left out."""

    def attention(query, key, value):
        top = np.full((*query.shape[:-1], 1), -np.inf)
        total, out = np.zeros_like(top), np.zeros((*query.shape[:-1], value.shape[-1]))
        stop = key.shape[-2] // block * block if drop_last and key.shape[-2] > block else key.shape[-2]
        for start in range(0, stop, block):
            part = slice(start, min(start + block, stop))
            s = query @ key[..., part, :].swapaxes(-1, -2) / math.sqrt(query.shape[-1])
            new = np.maximum(top, s.max(-1, keepdims=True))
            old = np.exp(top - new) if rescale else np.ones_like(top)
            e = np.exp(s - new)
            total = total * (old if not first_only or start == 0 else 1.0) + e.sum(-1, keepdims=True)
            out, top = out * old + e @ value[..., part, :], new
        return out / total

    return attention


def local_maximum(query, key, value):
    """Each block of 32 keys takes off its own maximum, and nobody puts it back."""
    s = scores(query, key)
    e = torch.cat([(part - part.amax(-1, keepdim=True)).exp() for part in s.split(32, -1)], -1)
    return e / e.sum(-1, keepdim=True) @ value


def first_keys(number):
    return lambda query, key, value: SDPA(query, key[..., :number, :], value[..., :number, :])


def split(x, heads, right=True):
    b, n, m = x.shape
    return x.reshape(b, n, heads, m // heads).transpose(1, 2) if right else x.reshape(b, heads, n, m // heads)


def layer(split_right=True, merge_right=True, over_heads=False, scale=None, twice=False):
    def attention(query, key, value, num_heads):
        b, n, m = query.shape
        if over_heads:
            q, k, v = (x.reshape(b, -1, num_heads, m // num_heads) for x in (query, key, value))
            return SDPA(q, k, v).reshape(b, n, m)
        q, k, v = (split(x, num_heads, split_right) for x in (query, key, value))
        out = SDPA(q, k, v, scale=None if scale is None else scale(m, num_heads))
        return (out.transpose(1, 2) if merge_right else out).reshape(b, n, m)

    return attention


def grouped(keys, values):
    return lambda query, key, value: SDPA(
        query, keys(key, query.shape[1] // key.shape[1]), values(value, query.shape[1] // value.shape[1])
    )


def interleave(x, n):
    return x.repeat_interleave(n, 1)


def tile(x, n):
    return x.repeat(1, n, 1, 1)


def gumbel(query, key, value):
    return F.gumbel_softmax(scores(query, key), dim=-1) @ value


def gumbel_hard(query, key, value):
    return F.gumbel_softmax(scores(query, key), dim=-1, hard=True) @ value


class Half(torch.autograd.Function):
    """A softmax whose backward pass is half of what it should be."""

    @staticmethod
    def forward(ctx, s):
        w = torch.softmax(s, -1)
        ctx.save_for_backward(w)
        return w

    @staticmethod
    def backward(ctx, g):
        (w,) = ctx.saved_tensors
        return 0.5 * w * (g - (g * w).sum(-1, keepdim=True))


class NoSum(torch.autograd.Function):
    """A softmax whose backward pass forgets the sum."""

    @staticmethod
    def forward(ctx, s):
        w = torch.softmax(s, -1)
        ctx.save_for_backward(w)
        return w

    @staticmethod
    def backward(ctx, g):
        (w,) = ctx.saved_tensors
        return w * g


def rotary_on_queries(query, key, value):
    return SDPA(rotate(query, positions(query.shape[-2])), key, value)


def rotary_against(query, key, value):
    return SDPA(rotate(query, positions(query.shape[-2])), rotate(key, -positions(key.shape[-2])), value)


def no_maximum(s):
    e = s.exp()
    return e / e.sum(-1, keepdim=True)


def numpy_off(factor):
    def attention(query, key, value):
        s = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
        return numpy_softmax(s) / factor @ value

    return attention


def padded_rows(query, key, value, mask=None):
    s = scores(query, key)
    return torch.softmax(s if mask is None else s.masked_fill(~mask[:, None, :, None], -1e9), -1) @ value


def padding(apply):
    def attention(query, key, value, mask=None):
        s = scores(query, key)
        return torch.softmax(s if mask is None else apply(s, mask[:, None, None, :]), -1) @ value

    return attention


def capped_after(query, key, value, attn_mask=None):
    s = scores(query, key)
    s = (
        s
        if attn_mask is None
        else s.masked_fill(~attn_mask, -torch.inf)
        if attn_mask.dtype == torch.bool
        else s + attn_mask
    )
    return torch.softmax(5 * torch.tanh(s / 5), -1) @ value


def tri(offset):
    return lambda s: s.masked_fill(~(relative(*s.shape[-2:]) >= offset), -torch.inf)


FAULTS = {
    # --- scale
    "no scale": Planted(simple(scale=1.0), ("scale",), SQRT),
    "scaled twice": Planted(lambda q, k, v: SDPA(q * q.shape[-1] ** -0.5, k, v), ("scale",), SQRT),
    "scaled on both sides by the root": Planted(eager(lambda d, n: 1 / d), ("scale",), SQRT),
    "multiplied, not divided": Planted(eager(lambda d, n: d**0.5), ("scale-axis",)),
    "multiplied, not divided, intended": Planted(eager(lambda d, n: d**0.5), ("scale",), SQRT),
    "by the width of the model": Planted(layer(scale=lambda m, h: m**-0.5), ("scale-d-model",)),
    "by the number of keys": Planted(eager(lambda d, n: n**-0.5), ("scale-axis",)),
    "by the number of heads": Planted(
        lambda q, k, v: SDPA(q, k, v, scale=q.shape[1] ** -0.5), ("scale-axis",), {"layout": "bhsd"}
    ),
    "by the batch": Planted(
        lambda q, k, v: SDPA(q, k, v, scale=q.shape[0] ** -0.5), ("scale-axis",), {"layout": "bhsd"}
    ),
    "a constant for one width": Planted(functools.partial(SDPA, scale=0.25), ("scale",), SQRT | TORCH),
    "one percent off": Planted(eager(lambda d, n: 1.01 * d**-0.5), ("scale",), SQRT),
    "integer division": Planted(eager(lambda d, n: 1 / int(math.sqrt(d / 1.5))), ("scale",), SQRT),
    "negative": Planted(eager(lambda d, n: -(d**-0.5)), ("negative-scale",)),
    "no scale in bfloat16": Planted(
        functools.partial(SDPA, scale=1.0), ("scale",), SQRT | TORCH | {"dtype": "bfloat16"}
    ),
    "another cap": Planted(eager(cap=30.0), ("softcap-unintended",), {"intended_softcap": 50.0}),
    "a cap that was forgotten": Planted(eager(), ("softcap-unintended",), {"intended_softcap": 50.0}),
    "another sink": Planted(eager(normalise=off_by_one), ("sink-unintended",), {"intended_sink": 1.0}),
    # --- softmax
    "over the queries": Planted(simple(lambda s: torch.softmax(s, -2)), ("softmax-axis",)),
    "over the heads": Planted(simple(lambda s: torch.softmax(s, 1)), ("softmax-axis",)),
    "over the batch": Planted(simple(lambda s: torch.softmax(s, 0)), ("softmax-axis",)),
    "twice": Planted(simple(lambda s: torch.softmax(torch.softmax(s, -1), -1)), ("nonlinear",)),
    "log softmax": Planted(simple(lambda s: torch.log_softmax(s, -1)), ("no-softmax", "row-sums")),
    "none": Planted(simple(lambda s: s), ("no-softmax",)),
    "exponentials only": Planted(simple(torch.exp), ("row-sums",)),
    "denominator one percent off": Planted(simple(lambda s: torch.softmax(s, -1) / 1.01), ("row-sums",)),
    "rows that sum to .994": Planted(numpy_off(1 / 0.994), ("row-sums",)),
    "mean for sum": Planted(simple(lambda s: torch.softmax(s, -1) / s.shape[-1]), ("row-sums",)),
    "no maximum": Planted(simple(no_maximum), ("overflow",)),
    "clipped": Planted(simple(lambda s: torch.softmax(s.clamp(-3, 3), -1)), ("large-scores",)),
    "transposed weights": Planted(
        lambda q, k, v: torch.softmax(scores(q, k), -1).mT @ v, ("weights-transposed",), {"n_queries": 7, "n_keys": 7}
    ),
    # --- length
    "rescaling forgotten": Planted(running(rescale=False), ("long-rows",)),
    "sum rescaled in the first block only": Planted(running(first_only=True), ("long-rows",)),
    "a maximum of each block": Planted(local_maximum, ("long-rows",)),
    "keys beyond 64": Planted(first_keys(64), ("keys-dropped",)),
    "keys beyond 128": Planted(first_keys(128), ("keys-dropped",)),
    "last block of 64 forgotten": Planted(running(drop_last=True), ("keys-dropped",)),
    # --- masks
    "inverted": Planted(masked(lambda s, m: s.masked_fill(m, -torch.inf)), ("mask-inverted",)),
    "inverted, filled": Planted(masked(lambda s, m: s.masked_fill(m, -1e9)), ("mask-inverted",)),
    "ignored": Planted(masked(lambda s, m: s), ("mask-ignored",)),
    "added as 0 and 1": Planted(masked(lambda s, m: s + m), ("mask-added",)),
    "multiplied": Planted(masked(lambda s, m: s * m), ("mask-multiplied",)),
    "filled with -2.5": Planted(masked(filled(-2.5)), ("mask-leaks",)),
    "filled with -5": Planted(masked(filled(-5.0)), ("mask-leaks",)),
    "lowered by 10": Planted(masked(lambda s, m: s - 10.0 * ~m), ("mask-leaks",)),
    "filled with -2.5 in single precision": Planted(masked(filled(-2.5)), ("mask-leaks",), {"dtype": "float32"}),
    "filled with -5 in bfloat16": Planted(masked(filled(-5.0)), ("mask-leaks",), {"dtype": "bfloat16"}),
    "filled with -5, always causal": Planted(masked(filled(-5.0), always=lower), ("mask-leaks",)),
    "added as 0 and 1, always causal": Planted(masked(lambda s, m: s + m, always=lower), ("mask-added",)),
    "inverted, always causal": Planted(
        masked(lambda s, m: s.masked_fill(m, -torch.inf), always=lower), ("mask-inverted",)
    ),
    "after softmax": Planted(masked(lambda s, m: s, after=lambda w, m: w * m), ("mask-after-softmax",)),
    "transposed": Planted(masked(lambda s, m: s.masked_fill(~m.mT, -1e30)), ("mask-transposed",)),
    "padding inverted": Planted(padding(lambda s, m: s.masked_fill(m, -torch.inf)), ("mask-inverted",), TORCH),
    "padding added": Planted(padding(lambda s, m: s + m), ("mask-added",), TORCH),
    "padding leaks": Planted(padding(lambda s, m: s - 5.0 * ~m), ("mask-leaks",), TORCH),
    "padding inverted against a stated meaning": Planted(
        masked(lambda s, m: s.masked_fill(m[:, None, None, :], -torch.inf), "key_padding_mask"),
        ("mask-inverted",),
        TORCH | {"mask_means": "keep"},
    ),
    "padding of queries": Planted(padded_rows, ("mask-transposed", "mask-position"), TORCH),
    "padding of the first item for all": Planted(
        padding(lambda s, m: s.masked_fill(~m[:1], -torch.inf)), ("mask-batch-order",), TORCH
    ),
    "cap after mask": Planted(capped_after, ("softcap-after-mask",)),
    # --- causal flag
    "shows the next": Planted(with_causal(tri(-1)), ("causal-off-by-one",)),
    "hides itself": Planted(with_causal(lambda s: tri(1)(s).nan_to_num(neginf=-1e9)), ("causal-off-by-one",)),
    "upper triangle": Planted(
        with_causal(lambda s: s.masked_fill(relative(*s.shape[-2:]) > 0, -torch.inf)), ("causal-inverted",)
    ),
    "causal leaks": Planted(with_causal(lambda s: s - 5.0 * (relative(*s.shape[-2:]) < 0)), ("causal-leaks",)),
    "causal ignored": Planted(with_causal(lambda s: s), ("causal-ignored",)),
    # --- heads and batch
    "over heads, merged": Planted(layer(over_heads=True), ("attends-over-heads",)),
    "over heads": Planted(lambda q, k, v: SDPA(q, k, v), ("attends-over-heads",), {"layout": "bshd"}),
    "split": Planted(layer(split_right=False), ("head-split",), {"layout": "bsm", "framework": "torch"}),
    "merge": Planted(layer(merge_right=False), ("head-merge",), {"layout": "bsm", "framework": "torch"}),
    "split and merge": Planted(
        layer(split_right=False, merge_right=False), ("head-split",), {"layout": "bsm", "framework": "torch"}
    ),
    "keys of another head": Planted(lambda q, k, v: SDPA(q, k.flip(1), v), ("head-mix",), TORCH),
    "keys of the first item": Planted(lambda q, k, v: SDPA(q, k[:1].expand_as(k), v), ("batch-mix",), TORCH),
    "values of another item": Planted(lambda q, k, v: SDPA(q, k, v.flip(0)), ("batch-mix",), TORCH),
    "keys interleaved, values tiled": Planted(grouped(interleave, tile), ("grouped-order",), TORCH),
    "keys tiled, values interleaved": Planted(grouped(tile, interleave), ("grouped-order",), TORCH),
    # --- arguments
    "keys as values": Planted(lambda q, k, v: SDPA(q, k, k), ("ignores-value",), TORCH),
    "queries as keys": Planted(lambda q, k, v: SDPA(q, q, v), ("ignores-key",), TORCH | {"n_queries": 7, "n_keys": 7}),
    "queries exchanged with keys": Planted(
        lambda q, k, v: SDPA(k, q, v), ("swapped-query-key",), TORCH | {"n_queries": 7, "n_keys": 7}
    ),
    # --- randomness
    "dropout at inference": Planted(lambda q, k, v: SDPA(q, k, v, dropout_p=0.2), ("dropout-on",), TORCH),
    "dropout without rescaling": Planted(
        simple(lambda s: torch.softmax(s, -1) * (torch.rand_like(s) > 0.2)), ("dropout-on",), TORCH
    ),
    "Gumbel noise": Planted(gumbel, ("random-output",), TORCH),
    "Gumbel noise, one-hot": Planted(gumbel_hard, ("random-output",), TORCH),
    # --- positions and gradients
    "rotary on queries only": Planted(rotary_on_queries, ("unexplained",), TORCH),
    "rotary the other way round on keys": Planted(rotary_against, ("unexplained",), TORCH),
    "half a gradient": Planted(simple(Half.apply), ("gradient",), TORCH),
    "a gradient without its sum": Planted(simple(NoSum.apply), ("gradient",), TORCH),
    "detached keys": Planted(lambda q, k, v: SDPA(q, k.detach(), v), ("gradient",), TORCH),
}
