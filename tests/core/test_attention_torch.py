"""Attention against torch's, where torch is installed: masks, grouped heads, scales, 16-bit types, large and small."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from attnsym import scaled_dot_product_attention

pytestmark = pytest.mark.slow

SHAPES = [(2, 4, 2, 5, 7, 3), (1, 2, 2, 300, 300, 16), (1, 4, 1, 9, 1000, 64)]  # batch, heads, kv heads, L, S, d
DTYPES = {
    "float64": (np.float64, 2.0**-52),
    "float32": (np.float32, 2.0**-23),
    "float16": (np.float16, 2.0**-10),
    "bfloat16": (ml_dtypes.bfloat16, 2.0**-7),
}


@pytest.mark.parametrize(
    ("shape", "dtype", "mask_kind", "scale"),
    list(itertools.product(SHAPES, DTYPES, [None, "bool", "float", "causal"], [None, 2.0])),
)
def test_equals_torch(shape, dtype, mask_kind, scale):
    torch = pytest.importorskip("torch")
    batch, heads, kv_heads, n_queries, n_keys, d = shape
    rng = np.random.default_rng(n_queries)
    numpy_type, eps = DTYPES[dtype]
    shapes = (heads, n_queries), (kv_heads, n_keys), (kv_heads, n_keys)
    arrays = [rng.standard_normal((batch, h, n, d)).astype(numpy_type) for h, n in shapes]
    options = {"scale": scale, "enable_gqa": True, "is_causal": mask_kind == "causal"}
    mask = None
    if mask_kind == "bool":
        mask = rng.random((batch, 1, n_queries, n_keys)) < 0.8
    elif mask_kind == "float":
        mask = rng.standard_normal((n_queries, n_keys))
    tensors = [torch.from_numpy(x.astype(np.float64)).to(getattr(torch, dtype)) for x in arrays]
    torch_mask = None if mask is None else torch.from_numpy(mask)
    if mask_kind == "float":
        torch_mask = torch_mask.to(getattr(torch, dtype))
        mask = torch_mask.to(torch.float64).numpy()
    want = torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=torch_mask, **options)
    got = scaled_dot_product_attention(*arrays, mask, **options)
    assert got.dtype == numpy_type
    # two roundings of the output, and a few of scores up to 100 in float32 or better, which move a weight by as much
    tolerance = 4 * eps + (400 + n_keys) * min(eps, 2.0**-23)
    np.testing.assert_allclose(
        got.astype(np.float64),
        want.to(torch.float64).numpy(),
        rtol=0,
        atol=tolerance * np.abs(arrays[2]).max().astype(float),
    )
