"""Entropy at the memory of the fused kernel: the numbers of the direct route, and nowhere n² of them."""

import math

import pytest

from analysis import watch

NAMES = ("entropy_ratio", "logsumexp", "within_row_variance", "predicted_entropy_ratio", "first_key_share")
EXACT = ("rows", "rows_left_out", "query_norm", "key_norm", "score_bound")


@pytest.mark.slow
class TestFused:
    @pytest.fixture(autouse=True)
    def torch(self):
        torch = pytest.importorskip("torch")
        torch.manual_seed(5)
        return torch

    @pytest.fixture
    def model(self, torch):
        class Fused(torch.nn.Module):
            def forward(self, q, k, **options):
                return torch.nn.functional.scaled_dot_product_attention(q, k, k, **options)

        return Fused()

    def both(self, model, *args, **options):
        rows, outputs, unseen = [], [], []
        for every_score in (True, False):
            with watch(model, every_score=every_score) as watcher:
                outputs.append(model(*args, **options))
            rows.append(watcher.rows)
            unseen.append(watcher.unseen)
        assert outputs[0].equal(outputs[1])
        assert unseen[0] == ()
        return *rows, unseen[1]

    def agree(self, direct, fused, tolerance):
        for one, other in zip(direct, fused, strict=True):
            for name in EXACT:
                assert getattr(other, name) == getattr(one, name), name
            for name in NAMES:
                assert getattr(other, name) == pytest.approx(getattr(one, name), rel=tolerance, abs=tolerance), name
            assert math.isnan(other.largest_score)
            assert math.isnan(other.largest_signed_score)
            assert math.isnan(other.dead_row_fraction)
            assert (other.largest_channel, other.key_at_largest) == (-1, -1)

    @pytest.mark.parametrize("kind", ["plain", "causal", "cross", "padded", "additive", "scale"])
    @pytest.mark.parametrize("size", [0.3, 10.0])
    @pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
    def test_the_numbers_are_those_of_the_direct_route(self, torch, model, kind, size, dtype):
        n_keys = 150 if kind == "cross" else 300
        q, k = size * torch.randn(2, 3, 300, 16), torch.randn(2, 3, n_keys, 16) + 3.0 * torch.randn(16)
        q, k = q.to(getattr(torch, dtype)), k.to(getattr(torch, dtype))
        keep = torch.arange(300) < torch.tensor([[300], [170]])
        keep = keep[:, None, None, :]
        options = {
            "causal": {"is_causal": True},
            "padded": {"attn_mask": keep},
            "additive": {"attn_mask": torch.zeros(2, 1, 1, 300).masked_fill(~keep, -math.inf).to(q.dtype)},
            "scale": {"scale": -0.7},
        }.get(kind, {})
        direct, fused, unseen = self.both(model, q, k, **options)
        assert unseen == ()
        # float32: 16 roundings of the largest product, whose bound is about size·40, in both routes
        self.agree(direct, fused, 1e-12 if dtype == "float64" else 2e-5 * (1 + size))

    def test_what_is_hidden_may_be_nan(self, torch, model):
        q, k = torch.randn(2, 1, 2, 20, 8)
        k[:, :, 12:] = math.nan
        keep = (torch.arange(20) < 12)[None, None, None, :]
        with watch(model, every_score=False) as watcher:
            model(q, k, attn_mask=keep)
        whole = watcher.rows
        with watch(model) as watcher:
            model(q[:, :, :12], k[:, :, :12])
        for row, alone in zip(whole, watcher.rows, strict=True):
            assert row.rows == alone.rows == 12
            assert row.entropy_ratio == pytest.approx(alone.entropy_ratio, abs=1e-5)

    @pytest.mark.parametrize("kind", ["by query", "bias", "wrong kernel"])
    def test_other_masks_are_read_in_full_and_told(self, torch, model, kind, monkeypatch):
        q, k = torch.randn(2, 1, 2, 20, 8)
        mask = {"by query": torch.rand(20, 20) < 0.8, "bias": torch.randn(1, 1, 1, 20)}.get(kind)
        if kind == "wrong kernel":
            from analysis.audit.live import fused

            kernel = fused._fused
            monkeypatch.setattr(fused, "_fused", lambda *a, **o: [1.01 * x for x in kernel(*a, **o)])
        direct, fused_rows, unseen = self.both(model, q, k, attn_mask=mask)
        assert [str(row) for row in direct] == [str(row) for row in fused_rows]
        assert len(unseen) == 1
        assert unseen[0].startswith("Fused: every score was computed, since the fused kernel could not be asked (")
        assert ("disagrees" in unseen[0]) == (kind == "wrong kernel")

    @pytest.mark.parametrize("causal", [False, True])
    def test_nothing_as_large_as_the_score_matrix_is_made(self, torch, model, causal):
        from torch.utils._python_dispatch import TorchDispatchMode

        sizes = []

        class Sizes(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                result = function(*args, **(kwargs or {}))
                sizes.extend(x.numel() for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor))
                return result

        n = 4096
        q, k = torch.randn(2, 1, 1, n, 8)
        with watch(model, every_score=False) as watcher, Sizes():
            model(q, k, is_causal=causal)
        assert watcher.rows[0].rows == n - causal
        assert max(sizes) <= 64 * n  # vectors of length 8, tables of 24 nodes, chunks of 128; n² would be 4,096 n
