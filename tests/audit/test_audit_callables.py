"""Audit of functions: every kind of fault is identified, variants are named and not accused."""

import functools
import json
import math
import sys
import textwrap

import numpy as np
import pytest
from attention_zoo import (
    bshd,
    build,
    dropout,
    heads_as_tokens,
    hide,
    lower,
    merged,
    rms,
    softmax,
    unit,
    with_sink,
    without_maximum,
)

from analysis import audit_callable
from analysis.audit.functions.findings import source_line
from analysis.cli import main
from attnsym import scaled_dot_product_attention
from attnsym.masks import window_mask


def tile(x, times):
    return np.concatenate([x] * times, axis=-3)


def repeat(x, times):
    return np.repeat(x, times, axis=-3)


def wrong_batch_order(s, mask):
    if mask.ndim < 4 or mask.shape[0] == 1:
        return hide(s, mask)
    b, h = s.shape[:2]
    repeated = np.broadcast_to(np.tile(mask, (h, 1, 1, 1)), (b * h, *mask.shape[1:]))  # should be np.repeat
    return hide(s.reshape(b * h, 1, *s.shape[2:]), repeated).reshape(s.shape)


def halved(q, k, v):
    half = [x.astype(np.float16) for x in (q, k, v)]
    with np.errstate(all="ignore"):
        scores = half[0] @ half[1].swapaxes(-1, -2) / np.float16(math.sqrt(q.shape[-1]))
        return (softmax(scores) @ half[2]).astype(q.dtype)


def batch_as_heads(q, k, v):
    w = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
    return (w @ v)[::-1] if q.shape[0] > 1 else w @ v


def model_width(d, heads, keys):
    return 1 / math.sqrt(d * heads)


def d_model(d, heads, keys):
    return 1 / (d * heads)


def none(d, heads, keys):
    return 1.0


def twice(d, heads, keys):
    return 1 / d


def fixed(d, heads, keys):
    return 0.25


def multiply(s, mask):
    return s * mask if mask.dtype == bool else s + mask


def leak(s, mask):
    return s + np.where(mask, 0.0, -10.0) if mask.dtype == bool else s + mask


def transposed(s, mask):
    return hide(s, mask.swapaxes(-1, -2)) if mask.shape[-1] == mask.shape[-2] else hide(s, mask)


def flipped(mask):
    return mask.swapaxes(-1, -2)


def filled(fill):
    return lambda s, mask: np.where(mask, fill, s)


def added(s, mask):
    return s + mask.astype(float)


def floating_only(s, mask):
    if mask.dtype == bool:
        raise TypeError("attn_mask must be floating")
    return s + mask


def head_average(q, k):
    scores = q @ k.swapaxes(-1, -2)
    return np.broadcast_to(scores.mean(axis=1, keepdims=True), scores.shape) if scores.ndim == 4 else scores


def hides_itself(query, key, value, is_causal=False):
    s = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    return softmax(np.where(np.tri(*s.shape[-2:], -1, dtype=bool), s, -1e9) if is_causal else s) @ value


def invert(s, mask):
    return hide(s, ~mask if mask.dtype == bool else mask)


def with_window(s, mask):
    return hide(np.where(window_mask(*s.shape[-2:], 3), s, -np.inf), mask)


def first_row(s, mask):
    return hide(s, mask[..., :1, :])


def needs_equal_lengths(core):
    def attention(query, key, value, attn_mask=None):
        if query.shape != key.shape:
            raise ValueError("self-attention only")
        return core(query, key, value, attn_mask)

    return attention


def before_scaling(s, mask):
    return s + 0.25 * mask if mask.dtype != bool else hide(s, mask)


NOISE = np.random.default_rng(1)

FAULTY = {
    # what is wrong: (function, keywords, codes that must be among the faults)
    "no scale": (build(scale=none), {"intended_scale": "sqrt"}, {"scale"}),
    "scaled twice": (build(scale=twice), {"intended_scale": "sqrt"}, {"scale"}),
    "scaled by model width": (build(scale=model_width), {}, {"scale-d-model"}),
    "scaled by model width, intended": (build(scale=model_width), {"intended_scale": "sqrt"}, {"scale"}),
    "one over model width": (build(scale=d_model), {"intended_scale": "sqrt"}, {"scale"}),
    "fourth root on one side": (build(scale=lambda d, h, n: d**-0.25), {"intended_scale": "sqrt"}, {"scale"}),
    "constant that fits one size": (build(scale=fixed), {"intended_scale": "sqrt"}, {"scale"}),
    "scale off by one percent": (
        build(scale=lambda d, h, n: 1.01 / math.sqrt(d)), {"intended_scale": "sqrt"}, {"scale"}),
    "negative scale": (build(scale=lambda d, h, n: -1 / math.sqrt(d)), {}, {"negative-scale"}),
    "softmax over queries": (build(axis=-2), {}, {"softmax-axis"}),
    "softmax over heads": (build(axis=1), {}, {"softmax-axis"}),
    "softmax over the batch": (build(axis=0), {}, {"softmax-axis"}),
    "softmax over the matrix": (build(axis=(-2, -1)), {}, {"softmax-axis"}),
    "no softmax": (build(normalise=lambda s, axis: s), {}, {"no-softmax"}),
    "unnormalised exponentials": (build(normalise=lambda s, axis: np.exp(s)), {}, {"row-sums"}),
    "weights halved": (build(normalise=lambda s, axis: softmax(s) / 2), {}, {"row-sums"}),
    "attends over heads": (heads_as_tokens(build(takes=())), {"layout": "bshd"}, {"attends-over-heads"}),
    "split without transpose": (merged(build(takes=()), split="wrong"), {"layout": "bsm"}, {"head-split"}),
    "merge without transpose": (merged(build(takes=()), merge="wrong"), {"layout": "bsm"}, {"head-merge"}),
    "split and merge without transpose": (
        merged(build(takes=()), split="wrong", merge="wrong"), {"layout": "bsm"}, {"head-split"}),
    "batch items exchanged": (batch_as_heads, {}, {"batch-mix"}),
    "queries ignored": (build(products=lambda q, k: np.ones_like(q) @ k.swapaxes(-1, -2)), {}, {"ignores-query"}),
    "keys tied to queries": (
        needs_equal_lengths(build(products=lambda q, k: q @ q.swapaxes(-1, -2))), {}, {"ignores-key"}),
    "values tied to keys": (lambda q, k, v: build()(q, k, k), {}, {"ignores-value"}),
    "queries and keys exchanged": (
        needs_equal_lengths(build(products=lambda q, k: k @ q.swapaxes(-1, -2))), {}, {"swapped-query-key"}),
    "mask ignored": (build(mask=lambda s, m: s), {}, {"mask-ignored"}),
    "mask inverted": (build(mask=invert), {}, {"mask-inverted"}),
    "mask kept where drop is declared": (build(), {"mask_means": "drop"}, {"mask-inverted"}),
    "mask added as 0 and 1": (build(mask=lambda s, m: s + m if m.dtype == bool else s), {}, {"mask-added"}),
    "mask multiplied": (build(mask=multiply), {}, {"mask-multiplied"}),
    "mask leaks": (build(mask=leak), {}, {"mask-leaks"}),
    "mask after softmax": (build(mask=lambda s, m: s, after=lambda w, m: w * m), {}, {"mask-after-softmax"}),
    "mask transposed": (needs_equal_lengths(build(mask=transposed, takes=("attn_mask",))), {}, {"mask-transposed"}),
    "mask transposed, unequal lengths refused": (
        build(mask=lambda s, m: np.where(flipped(m), s, -1e30)), {}, {"mask-transposed"}),
    "mask transposed and added": (build(mask=lambda s, m: s + flipped(m)), {}, {"mask-transposed"}),
    "floating mask transposed, boolean ones refused": (
        build(mask=lambda s, m: floating_only(s, flipped(m))), {}, {"mask-transposed"}),
    "mask inverted, filled with -1e9": (build(mask=filled(-1e9)), {}, {"mask-inverted"}),
    "mask inverted, filled with -1e30": (build(mask=filled(-1e30)), {}, {"mask-inverted"}),
    "boolean mask added, floating understood": (build(mask=lambda s, m: s + m), {}, {"mask-added"}),
    "mask cast to numbers and added": (build(mask=added), {}, {"mask-added"}),
    "output is NaN": (lambda q, k, v: build()(q, k, v * np.nan), {}, {"not-finite"}),
    "softmax twice": (build(normalise=lambda s, axis: softmax(softmax(s, axis), axis)), {}, {"nonlinear"}),
    "softmax of squared scores": (build(normalise=lambda s, axis: softmax(s**2, axis)), {}, {"nonlinear"}),
    "scores averaged over heads": (build(products=head_average), {}, {"head-mix"}),
    "keys of another batch item": (lambda q, k, v: build()(q, k[::-1], v), {}, {"batch-mix"}),
    "causal hides itself, finite fill": (hides_itself, {}, {"causal-off-by-one"}),
    "always causal, hides itself, finite fill": (
        lambda q, k, v: hides_itself(q, k, v, True), {}, {"causal-off-by-one"}),
    "mask in the wrong batch order": (build(mask=wrong_batch_order), {}, {"mask-batch-order"}),
    "mask added before scaling": (build(mask=before_scaling), {}, {"mask-scaled"}),
    "soft-cap after the mask": (build(cap=5.0, cap_first=False), {}, {"softcap-after-mask", "causal-leaks"}),
    "causal ignored": (build(causal=lambda n, m: np.ones((n, m), bool)), {}, {"causal-ignored"}),
    "causal shows the next token": (build(causal=lambda n, m: np.tri(n, m, 1, dtype=bool)), {}, {"causal-off-by-one"}),
    "causal hides itself": (build(causal=lambda n, m: np.tri(n, m, -1, dtype=bool)), {}, {"causal-off-by-one"}),
    "always causal, shows the next token": (
        build(always=lambda n, m: np.tri(n, m, 1, dtype=bool), takes=()), {}, {"causal-off-by-one"}),
    "causal inverted": (build(causal=lambda n, m: ~np.tri(n, m, -1, dtype=bool)), {}, {"causal-inverted"}),
    "mask replaces causal": (build(join=lambda m, c: (m, None)), {}, {"causal-mask-replaced"}),
    "dropout on, rescaled": (build(normalise=dropout(0.3, True)), {}, {"dropout-on"}),
    "dropout on, not rescaled": (build(normalise=dropout(0.3, False)), {}, {"dropout-on"}),
    "noise in the scores": (build(bias=lambda n, m: NOISE.standard_normal((n, m))), {}, {"random-output"}),
    "no maximum subtracted": (build(normalise=without_maximum), {}, {"overflow"}),
    "computed in float16": (halved, {}, {"overflow"}),
    "scores clipped": (build(products=lambda q, k: np.clip(q @ k.swapaxes(-1, -2), -10, 10)), {}, {"large-scores"}),
    "heads exchanged in the output": (lambda q, k, v: build()(q, k, v)[:, ::-1], {}, {"head-mix"}),
    "window only where a mask is given": (build(mask=with_window), {}, {"mask-all-true"}),
    "mask of the first query for all": (build(mask=first_row), {}, {"mask-position"}),
    "causal off by two": (build(causal=lambda n, m: np.tri(n, m, 2, dtype=bool)), {}, {"causal-pattern"}),
    "queries centred over the sequence": (
        build(prepare=lambda q, k: (q - q.mean(axis=-2, keepdims=True), k)), {}, {"rows-mix"}),
    # two faults at once
    "no scale and inverted mask": (
        build(scale=none, mask=invert), {"intended_scale": "sqrt"}, {"scale", "mask-inverted"}),
    "wrong axis and model width": (build(axis=-2, scale=model_width), {}, {"softmax-axis", "scale-d-model"}),
    "dropout and scaled twice": (
        build(normalise=dropout(0.2, True), scale=twice), {"intended_scale": "sqrt"}, {"dropout-on", "scale"}),
    "over heads and no scale": (
        heads_as_tokens(build(scale=none, takes=())), {"layout": "bshd", "intended_scale": "sqrt"},
        {"attends-over-heads", "scale"}),
    "split wrong and no scale": (
        merged(build(scale=none, takes=()), split="wrong", merge="wrong"), {"layout": "bsm", "intended_scale": "sqrt"},
        {"head-split", "scale"}),
    "leaking mask and no maximum": (
        build(mask=leak, normalise=without_maximum), {}, {"mask-leaks", "overflow"}),
}  # fmt: skip


def alibi(n, m):
    return -0.3 * np.abs(np.arange(n)[:, None] - np.arange(m)[None, :])


def rotated(x):
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[-2])[:, None] * 0.5 ** np.arange(half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], axis=-1)


def learned(value):
    return lambda d, h, n: value / math.sqrt(d)


LEGITIMATE = {
    # (function, keywords, what the audit must have read)
    "plain": (build(), {}, lambda a: a.scale.name == "1/√d_k" and a.causal == "causal top-left"),
    "this project's": (scaled_dot_product_attention, {"intended_scale": "sqrt"}, lambda a: not a.findings),
    "fourth root on each side": (
        build(scale=lambda d, h, n: 1.0, prepare=lambda q, k: (q * q.shape[-1] ** -0.25, k * k.shape[-1] ** -0.25)),
        {"intended_scale": "sqrt"}, lambda a: a.scale.name == "1/√d_k"),
    "muP": (build(scale=twice), {}, lambda a: a.scale.name == "1/d_k"),
    "muP, intended": (
        build(scale=twice), {"intended_scale": "1/d_k"}, lambda a: a.scale.exponent_d == pytest.approx(1)),
    "unscaled, intended": (build(scale=none), {"intended_scale": "unscaled"}, lambda a: a.scale.name == "1 (none)"),
    "learned temperature": (build(scale=learned(1.37)), {}, lambda a: a.scale.name == "1.37/√d_k"),
    "log-length scale": (
        build(scale=lambda d, h, n: math.log(n) / math.sqrt(d)), {"intended_scale": "log(n_keys)/sqrt(d_k)"},
        lambda a: "log n_keys" in a.scale.name),
    "cosine with temperature": (
        build(scale=lambda d, h, n: 10.0, prepare=lambda q, k: (unit(q), unit(k))), {},
        lambda a: a.scale.value == pytest.approx(10)),
    "QK-norm": (
        build(prepare=lambda q, k: (rms(q), rms(k))), {"intended_scale": "sqrt"}, lambda a: "normalised" in codes(a)),
    "sequence-first": (
        lambda query, key, value: np.moveaxis(build()(*(np.moveaxis(x, 0, 2) for x in (query, key, value))), 2, 0),
        {}, lambda a: a.layout == "sbhd"),
    "batch, length, heads, d": (bshd(build()), {}, lambda a: a.layout == "bshd"),
    "one head, (length, d)": (
        lambda q, k, v: softmax(np.einsum("id,jd->ij", q, k) / math.sqrt(q.shape[1])) @ v, {},
        lambda a: a.layout == "sd"),
    "heads in one axis": (
        merged(build(takes=())), {"layout": "bsm", "intended_scale": "sqrt"}, lambda a: a.layout == "bsm"),
    "soft-capped": (build(cap=30.0), {}, lambda a: a.softcap == pytest.approx(30, rel=1e-9)),
    "soft-capped at 50, unscaled": (
        build(cap=50.0, scale=none), {}, lambda a: a.softcap == pytest.approx(50, rel=1e-9)),
    "always causal": (build(always=lower, takes=()), {}, lambda a: a.visibility == "causal top-left"),
    "bottom-right causal": (
        build(causal=lambda n, m: np.tri(n, m, m - n, dtype=bool)), {}, lambda a: a.causal == "causal bottom-right"),
    "sliding window": (
        build(always=lambda n, m: window_mask(n, m, (2, 1))), {}, lambda a: a.visibility == "window (2, 1)"),
    "causal sliding window": (
        build(always=lambda n, m: lower(n, m) & window_mask(n, m, 3)), {},
        lambda a: a.visibility == "causal top-left, window 3"),
    "floating masks only": (build(mask=floating_only), {}, lambda a: a.mask == "floating"),
    "boolean masks only": (build(mask=lambda s, m: np.where(m, s, -np.inf)), {}, lambda a: a.mask == "boolean"),
    "True means drop": (build(mask=invert), {"mask_means": "drop"}, lambda a: "boolean" in a.mask),
    "grouped heads": (build(group=repeat), {}, lambda a: a.grouped == (0, 0, 1, 1)),
    "grouped heads tiled": (
        build(group=tile), {}, lambda a: a.grouped == (0, 1, 0, 1) and "grouped-tiled" in codes(a)),
    "grouped heads in reverse": (
        build(group=lambda x, n: repeat(x, n)[:, ::-1]), {}, lambda a: "grouped-other" in codes(a)),
    "ALiBi": (build(bias=alibi), {}, lambda a: "position" in codes(a)),
    "rotary": (build(prepare=lambda q, k: (rotated(q), rotated(k))), {}, lambda a: "position" in codes(a)),
    "attention sink": (build(normalise=with_sink), {}, lambda a: "sink" in codes(a)),
    "returns weights too": (lambda q, k, v: (build()(q, k, v), None), {}, lambda a: a.scale.name == "1/√d_k"),
    "partial": (
        functools.partial(scaled_dot_product_attention, scale=0.3), {"intended_scale": 0.3}, lambda a: not a.faults),
    "window of this project": (
        functools.partial(scaled_dot_product_attention, window=3), {}, lambda a: a.visibility == "window (2, 2)"),
}  # fmt: skip


def codes(audit):
    return {item.code for item in audit.findings}


@pytest.mark.parametrize("name", FAULTY)
def test_faults_are_identified(name):
    function, keywords, expected = FAULTY[name]
    audit = audit_callable(function, **keywords)
    faults = {item.code for item in audit.faults}
    assert faults == expected, str(audit)
    for item in audit.faults:
        assert item.evidence
        assert item.fix
        assert any(character.isdigit() for character in item.evidence)


@pytest.mark.parametrize("name", LEGITIMATE)
def test_variants_are_named_and_not_accused(name):
    function, keywords, read = LEGITIMATE[name]
    audit = audit_callable(function, **keywords)
    assert audit.faults == (), str(audit)
    assert read(audit), str(audit)


@pytest.mark.parametrize(
    "sizes",
    [{"num_heads": 1}, {"num_heads": 2, "d_k": 8}, pytest.param({"num_heads": 5, "d_k": 3}, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    "name", ["no scale", "softmax over queries", "mask inverted", "causal hides itself", "mask leaks"]
)
def test_faults_are_identified_at_other_sizes(name, sizes):
    function, keywords, expected = FAULTY[name]
    audit = audit_callable(function, **keywords, **sizes, seed=1)
    assert {item.code for item in audit.faults} == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_seed_changes_a_verdict(seed):
    for function, keywords, expected in FAULTY.values():
        assert {item.code for item in audit_callable(function, **keywords, seed=seed).faults} == expected
    for function, keywords, _ in LEGITIMATE.values():
        assert audit_callable(function, **keywords, seed=seed).faults == ()


def test_there_are_enough_of_both():
    assert len(FAULTY) >= 25
    assert len(LEGITIMATE) >= 15


def plain_softmax(s, axis):
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)


LIMITS = {
    "nan-leak": build(),  # 0·NaN in weights @ value
    "masked-row-nan": build(normalise=plain_softmax),
    "masked-row-attends": build(mask=lambda s, m: np.where(m, s, -1e9) if m.dtype == bool else s + m),
    "float16-overflow": build(),
    "low-precision": lambda q, k, v: build()(*(x.astype(np.float32) for x in (q, k, v))).astype(q.dtype),
    "equal-lengths-only": needs_equal_lengths(build()),
}


@pytest.mark.parametrize("code", LIMITS)
def test_limits_are_noted(code):
    audit = audit_callable(LIMITS[code])
    assert code in codes(audit), str(audit)
    assert audit.faults == ()


def test_all_recovered_numbers_of_a_known_function():
    audit = audit_callable(build(scale=model_width, cap=20.0))
    law = audit.scale
    assert law.exponent_d == pytest.approx(0.5, abs=1e-9)
    assert law.exponent_heads == pytest.approx(0.5, abs=1e-9)
    assert law.exponent_keys == pytest.approx(0.0, abs=1e-9)
    assert law.coefficient == pytest.approx(1.0, rel=1e-9)
    assert law.value == pytest.approx(1 / math.sqrt(48), rel=1e-12)
    assert audit.softcap == pytest.approx(20.0, rel=1e-9)
    assert {(d, h, n) for d, h, n, _ in law.measurements} == {(16, 3, 7), (64, 3, 7), (16, 6, 7), (16, 3, 14)}


def test_a_finding_points_at_the_line():
    (item,) = [f for f in audit_callable(halved).findings if f.code == "low-precision"]
    assert item.likely_line.startswith("test_audit_callables.py:")
    assert "np.float16" in item.likely_line


def test_no_line_is_invented():
    (item,) = audit_callable(lambda q, k, v: build()(q, k[::-1], v)).faults
    assert item.likely_line == ""  # that source says nothing of reshapes
    assert source_line(np.linalg.norm, "sqrt") is None
    assert source_line(textwrap.dedent, "re") is None
    for text in (str(audit_callable(FAULTY[name][0])) for name in ("softmax twice", "keys of another batch item")):
        assert "probably like" not in text
        assert "Line: ." not in text


@pytest.mark.slow
def test_no_line_of_an_installed_module_is_shown():
    torch = pytest.importorskip("torch")
    module = torch.nn.MultiheadAttention(48, 3, batch_first=True).double().eval()
    audit = audit_callable(module, framework="torch")
    assert audit.faults == ()
    assert "identity-projections" in codes(audit)
    assert {item.likely_line for item in audit.findings} == {""}


def test_projections_of_a_module_become_identities():
    torch = pytest.importorskip("torch")
    from analysis.audit.functions.modules import with_identity_projections

    layer = torch.nn.Sequential(torch.nn.Linear(4, 4))
    bare = with_identity_projections(layer)
    assert torch.equal(bare(torch.eye(4)), torch.eye(4))
    assert not torch.equal(layer(torch.eye(4)), torch.eye(4))
    with pytest.raises(ValueError, match="no square projection"):
        with_identity_projections(torch.nn.Linear(4, 3))


@pytest.mark.parametrize("order", ["blocks", "heads"])
@pytest.mark.parametrize("fault", ["", "scale", "swapped-query-key"])
def test_a_joint_projection_is_taken_out(order, fault):
    torch = pytest.importorskip("torch")
    from analysis.audit.functions.modules import with_given_projections

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.proj = torch.nn.Linear(20, 36), torch.nn.Linear(12, 12)

        def forward(self, x):
            packed = self.qkv(x)
            if order == "heads":
                q, k, v = packed.unflatten(-1, (3, 12)).transpose(1, 2).chunk(3, dim=-1)
            else:
                q, k, v = (part.unflatten(-1, (3, 4)).transpose(1, 2) for part in packed.chunk(3, dim=-1))
            if fault == "swapped-query-key":
                q, k, v = k, q, v
            scale = 12**-0.5 if fault == "scale" else None
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale, is_causal=True)
            return self.proj(mixed.transpose(1, 2).flatten(-2)), None

    module = Attention().double()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    attend = with_given_projections(module, "qkv", num_heads=3 if order == "heads" else None)
    found = audit_callable(attend, layout="bsm", num_heads=3, d_k=4, framework="torch", intended_scale="sqrt")
    assert [item.code for item in found.faults] == ([fault] if fault else [])
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    with pytest.raises(ValueError, match=r"has no layer 'c_attn': its layers are \['proj', 'qkv'\]"):
        with_given_projections(module, "c_attn")


def test_softmax_twice_is_given_no_scale_and_is_not_called_clipping():
    text = str(audit_callable(FAULTY["softmax twice"][0]))
    assert "softmax is applied twice" in text
    assert "scale not read" in text
    assert "clip" not in text


def test_a_name_of_a_law_holds_only_exponents_that_were_seen():
    assert audit_callable(build(scale=lambda d, h, n: 1.3 * d**-0.3)).scale.name == "1.3·d_k^-0.3"
    assert audit_callable(build(scale=lambda d, h, n: 1.3 * h**-0.3)).scale.name == "1.3·H^-0.3"


def test_a_boolean_mask_that_is_added_is_a_warning_where_floating_ones_work():
    for function in (build(mask=lambda s, m: s + m), build(mask=added)):
        (item,) = audit_callable(function).faults
        assert (item.code, item.severity) == ("mask-added", "warning")
    (item,) = audit_callable(FAULTY["mask added as 0 and 1"][0]).faults
    assert (item.code, item.severity) == ("mask-added", "error")


def test_counts_have_their_plural():
    assert "1 error, 0 warnings, " in str(audit_callable(FAULTY["softmax twice"][0]))


def test_number_of_heads_is_found_in_a_merged_axis():
    audit = audit_callable(merged(build(takes=()), num_heads=4))
    assert (audit.layout, audit.scale.name, audit.faults) == ("bsm", "1/√d_k", ()) or audit.scale.exponent_d == 0.5


def test_scores_in_single_precision_are_no_fault():
    def attention(query, key, value):
        scores = (query.astype(np.float32) @ key.swapaxes(-1, -2).astype(np.float32)).astype(float)
        return softmax(scores / math.sqrt(query.shape[-1])) @ value

    audit = audit_callable(attention, intended_scale="sqrt")
    assert codes(audit) >= {"low-precision"}
    assert audit.faults == ()


def test_required_arguments_are_filled_in():
    def attention(query, key, value, d_k, mask, causal):
        assert causal is False or causal is True
        return build()(query * math.sqrt(query.shape[-1] / d_k), key, value, mask, causal)

    audit = audit_callable(attention)
    assert audit.faults == ()
    assert (audit.mask, audit.causal) == ("boolean and floating", "causal top-left")


def test_one_softmax_over_all_heads_is_a_fault_where_heads_are_declared():
    def attention(query, key, value, num_heads):
        return softmax(query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])) @ value

    assert "heads-not-split" in codes(audit_callable(attention))


def test_projections_inside_are_told():
    mix = np.random.default_rng(2).standard_normal((16, 16))
    assert "channels-mix" in codes(audit_callable(lambda q, k, v: build()(q, k, v) @ mix))


def test_a_wrong_output_shape_is_told():
    with pytest.raises(ValueError, match="the output has shape"):
        audit_callable(lambda q, k, v: build()(q, k, v).sum(axis=-1))


BAD = {
    "not callable": ((3,), {}, "must be callable"),
    "raises": ((lambda q, k, v: 1 / 0,), {}, "ZeroDivisionError"),
    "unknown layout": ((build(),), {"layout": "xyz"}, "layout must be one of"),
    "repeated axis": ((build(),), {"layout": "bbhd"}, "layout must be one of"),
    "one component": ((build(),), {"d_k": 1}, "d_k must be a whole number of at least 2"),
    "heads": ((build(),), {"num_heads": 0}, "num_heads must be"),
    "mask meaning": ((build(),), {"mask_means": "maybe"}, "'keep' or 'drop'"),
    "framework": ((build(),), {"framework": "mxnet"}, "numpy, torch or jax"),
    "scale": ((build(),), {"intended_scale": "none"}, "ambiguous"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case):
    arguments, keywords, message = BAD[case]
    with pytest.raises(ValueError, match=message) as caught:
        audit_callable(*arguments, **keywords)
    assert "\n" not in str(caught.value)


def test_json_and_html(tmp_path):
    def attention(query, key, value):
        """<script>"""
        return softmax(query @ key.swapaxes(-1, -2), axis=-2) @ value  # <img>

    audit = audit_callable(attention)
    audit.to_json(tmp_path / "audit.json")
    stored = json.loads((tmp_path / "audit.json").read_text())
    assert stored["findings"] == audit.to_records()
    assert stored["scale"]["name"] == "1 (none)"
    assert "<img" not in audit._repr_html_()
    assert "softmax-axis" in {item["code"] for item in audit.to_records()}


MODULE = """
import numpy as np

def right(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value

def wrong(query, key, value):
    return right(4 * query, key, value)

class Holder:
    right = staticmethod(right)

number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "their_attention.py").write_text(MODULE)
    (tmp_path / "broken_attention.py").write_text("import sys; sys.exit(7)")
    monkeypatch.chdir(tmp_path)
    yield "their_attention"
    for name in ("their_attention", "broken_attention"):
        sys.modules.pop(name, None)


def run(capsys, *arguments):
    code = main(["audit", *arguments])
    return code, capsys.readouterr()


def test_command_passes_a_right_function(capsys, module):
    code, printed = run(capsys, "--callable", f"{module}:Holder.right", "--scale", "sqrt")
    assert code == 0
    assert "scale 1/√d_k" in printed.out
    assert max(map(len, printed.out.splitlines())) <= 100


def test_command_fails_a_wrong_one_with_evidence(capsys, module):
    code, printed = run(capsys, "--callable", f"{module}:wrong", "--scale", "sqrt", "--json")
    assert code == 1
    (item,) = [f for f in json.loads(printed.out)["findings"] if f["severity"] == "error"]
    assert item["code"] == "scale"
    assert "4 times as large" in item["evidence"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--callable", "their_attention"], "package.module:function"),
        (["--callable", "their_attention:missing"], "has no missing"),
        (["--callable", "their_attention:number"], "not a function"),
        (["--callable", "no_such_module_x:f"], "importing no_such_module_x failed"),
        (["--callable", "broken_attention:f"], "SystemExit"),
        (["--callable", "their_attention:right", "--example"], "name one or more files"),
        (["--callable", "their_attention:right", "--d-k", "0"], "d_k must be"),
        (["--callable", "their_attention:right", "--num-heads", "0"], "num_heads must be"),
        (["--callable", "their_attention:right", "--mask-means", ""], "'keep' or 'drop'"),
        (["--callable", "their_attention:right", "--causal"], "--causal does not apply to an audit of a function"),
        (["--callable", "their_attention:right", "--target", "a=1"], "--target does not apply"),
    ],
)
def test_command_refuses_bad_targets_with_code_2(capsys, module, arguments, message):
    code, printed = run(capsys, *arguments)
    assert code == 2
    assert message in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.slow
class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    def test_sdpa_is_right(self, torch):
        audit = audit_callable(torch.nn.functional.scaled_dot_product_attention, intended_scale="sqrt", layout="bhsd")
        assert audit.faults == ()
        assert (audit.framework, audit.mask, audit.causal) == ("torch", "boolean and floating", "causal top-left")
        assert audit.grouped == (0, 0, 1, 1)
        assert "gradient" not in dict(audit.skipped)

    def test_gradients_that_disagree_are_found(self, torch):
        def detached(query, key, value):
            scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
            return torch.softmax(scores.detach() + 0.5 * (scores - scores.detach()), dim=-1) @ value

        audit = audit_callable(detached)
        assert {item.code for item in audit.faults} == {"gradient"}
        assert len(audit.faults) == 2  # query and key, not value

    def test_a_module_without_gradient_and_dropout_on(self, torch):
        class Attention(torch.nn.Module):
            def forward(self, query, key, value):
                weights = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)
                return torch.nn.functional.dropout(weights, 0.25, training=self.training) @ value

        torch.manual_seed(0)
        assert "dropout-on" in {item.code for item in audit_callable(Attention()).faults}
        assert audit_callable(Attention().eval()).faults == ()

    def test_float32_only_function(self, torch):
        def attention(query, key, value, attn_mask=None):
            assert query.dtype == torch.float32
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, scale=0.125)

        audit = audit_callable(attention)
        assert audit.dtype == "float32"
        assert audit.faults == ()
        assert audit.scale.value == pytest.approx(0.125, rel=1e-5)
