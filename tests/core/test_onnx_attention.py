"""ONNX's own Attention cases (opsets 23 to 25), through a thin adapter from its operator to these functions."""

import importlib
import warnings

import numpy as np
import onnx.backend.test.case.node as onnx_cases
import pytest

import attnsym

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # onnx builds its cases with code that warns
    # What collect_testcases("Attention") does, less the six seconds of importing every other operator's cases.
    onnx_cases._TargetOpType = "Attention"
    importlib.import_module("onnx.backend.test.case.node.attention")
    CASES = [case for case in onnx_cases._NodeTestCases if not case.name.endswith("_expanded")]

# The suite rounds 16-bit intermediates where attnsym keeps float32: allow two units in the last place of the type.
RTOL = {"float32": 1e-5, "float16": 2 * 2.0**-10, "bfloat16": 2 * 2.0**-7}


def attributes(node):
    return {a.name: a.f if a.type == a.FLOAT else a.i for a in node.attribute}


def pad_mask(mask, n_keys):
    missing = n_keys - mask.shape[-1]
    fill = False if mask.dtype == bool else -np.inf
    return np.concatenate([mask, np.full((*mask.shape[:-1], missing), fill, mask.dtype)], axis=-1)


def intersect(mask, allowed):
    if mask is None or allowed is None:
        return allowed if mask is None else mask
    return mask & allowed if mask.dtype == bool else np.where(allowed, mask, -np.inf)


def one_item(q, k, v, mask, options, offset):
    """Attention of one batch item whose first query stands behind `offset` cached keys."""
    n_queries, n_keys = q.shape[-2], k.shape[-2]
    causal, window = options["is_causal"], options["window"]
    keywords = {"scale": options["scale"], "softcap": options["softcap"], "enable_gqa": True}
    if offset in (0, n_keys - n_queries):
        keywords |= {"is_causal": causal, "window": window}
        keywords["causal_alignment"] = "top_left" if offset == 0 else "bottom_right"
    allowed = np.ones((n_queries, n_keys), bool)
    if causal:
        allowed &= attnsym.causal_mask(offset + n_queries, n_keys)[offset:]
    if window is not None:
        allowed &= attnsym.window_mask(offset + n_queries, n_keys, window)[offset:]
    both = intersect(mask, allowed)
    keywords["attn_mask"] = mask if "is_causal" in keywords else both
    output = attnsym.scaled_dot_product_attention(q, k, v, **keywords)
    weights = attnsym.attention_weights(q, k, **keywords)
    scores = {"scale": options["scale"], "enable_gqa": True}
    raw = attnsym.attention_scores(q, k, **scores)
    capped = attnsym.attention_scores(q, k, **scores, softcap=options["softcap"])
    biased = np.where(both, capped, -np.inf) if both.dtype == bool else capped + both
    return output, (raw, capped, biased, weights)[options["mode"]]


def run(node, inputs):
    given = {name: x for name, x in zip(node.input, inputs_in_place(node, inputs), strict=True) if name}
    attribute = attributes(node)
    q, k, v = given["Q"], given["K"], given["V"]
    flat = q.ndim == 3
    if flat:
        q = attnsym.split_heads(q, attribute["q_num_heads"])
        k, v = (attnsym.split_heads(x, attribute["kv_num_heads"]) for x in (k, v))
    past = given["past_key"].shape[-2] if "past_key" in given else 0
    if past:
        k, v = np.concatenate([given["past_key"], k], -2), np.concatenate([given["past_value"], v], -2)
    sides = [attribute.get(f"{side}_window_size", -1) for side in ("left", "right")]
    options = {
        "scale": attribute.get("scale"),
        "softcap": attribute.get("softcap"),
        "is_causal": bool(attribute.get("is_causal", 0)),
        "window": None if sides == [-1, -1] else tuple(None if side < 0 else side for side in sides),
        "mode": attribute.get("qk_matmul_output_mode", 0),
    }
    mask = given.get("attn_mask")
    if mask is not None:
        mask = pad_mask(mask, k.shape[-2])
        mask = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
    items = []
    for b in range(q.shape[0]):
        valid = int(given["nonpad_kv_seqlen"][b]) if "nonpad_kv_seqlen" in given else k.shape[-2]
        offset = valid - q.shape[-2] if "nonpad_kv_seqlen" in given else past
        before = max(0, -offset) if options["is_causal"] else 0  # these stand before the first key and see nothing
        own_mask = None if mask is None else mask[b, :, before:, :valid]
        own = q[b][:, before:], k[b][:, :valid], v[b][:, :valid]
        part = one_item(*own, own_mask, options, max(offset, 0))
        zeros = np.zeros((q.shape[1], before, v.shape[-1]), part[0].dtype)
        items.append((np.concatenate([zeros, part[0]], axis=1), part[1]))
    output = np.stack([output for output, _ in items])
    results = {"Y": attnsym.merge_heads(output) if flat else output, "present_key": k, "present_value": v}
    if "qk_matmul_output" in node.output:
        results["qk_matmul_output"] = np.stack([scores for _, scores in items])
    return results


def inputs_in_place(node, inputs):
    """Put None where an optional input is not given."""
    rest = iter(inputs)
    return [next(rest) if name else None for name in node.input]


def test_the_suite_is_whole():
    assert len(CASES) == 93


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removeprefix("test_attention_"))
def test_onnx_case(case):
    (node,) = case.model.graph.node
    inputs, outputs = case.data_sets[0]
    results = run(node, inputs)
    names = [name for name in node.output if name]
    assert len(names) == len(outputs)
    for name, want in zip(names, outputs, strict=True):
        got = results[name]
        if name == "Y":
            assert got.dtype == want.dtype
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=RTOL[want.dtype.name], atol=1e-7, equal_nan=False
        )
