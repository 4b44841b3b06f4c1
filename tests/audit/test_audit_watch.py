"""Watching a live torch model: the same bits, the numbers of hand computations, and honesty about what is not seen."""

import dataclasses
import itertools
import math
import subprocess
import sys
import time

import numpy as np
import pytest

from analysis import AttentionAlert, AttentionWarning, WatchRow, read_history, watch
from analysis.audit.live.alerts import Alarm, cause
from analysis.audit.live.history import HistoryFile


def example_row(**changes):
    row = WatchRow(
        step=3, module='h.0,"attn"', call=0, head=1, d_k=8, n_queries=5, n_keys=7, scale=0.125, dtype="bfloat16",
        rows=4, rows_left_out=1, largest_score=130.0,
        within_row_variance=1 / 3, entropy_ratio=0.5, dead_row_fraction=0.25,
        query_norm=2.0, key_norm=3.0, cosine_at_largest=-0.5, largest_channel=2, largest_channel_share=0.75,
        rounding_step=1.0, query_gradient_norm=1e-9, key_gradient_norm=math.nan,
    )  # fmt: skip
    return dataclasses.replace(row, **changes)


@pytest.mark.parametrize("name", ["h.csv", "h.jsonl"])
def test_history_gives_back_its_rows(tmp_path, name):
    rows = [example_row(), example_row(step=4, module="é", key_gradient_norm=0.5)]
    file = HistoryFile(tmp_path / name)
    file.write(rows[:1])
    file.write(rows[1:])
    file.close()
    read = read_history(tmp_path / name)
    assert str(read) == str(tuple(rows))  # NaN included, and every digit of 1/3


@pytest.mark.parametrize("name", ["h.csv", "h.jsonl"])
def test_history_survives_a_crash_in_the_middle_of_a_line(tmp_path, name):
    file = HistoryFile(tmp_path / name)
    file.write([example_row(), example_row(step=4)])
    file.close()
    text = (tmp_path / name).read_text()
    (tmp_path / name).write_text(text[:-20])
    assert [row.step for row in read_history(tmp_path / name)] == [3]


@pytest.mark.parametrize("name", ["h.csv", "h.jsonl"])
def test_every_process_writes_a_file_and_the_reader_takes_them_all(tmp_path, monkeypatch, name):
    monkeypatch.setenv("WORLD_SIZE", "11")
    for rank in (10, 2):
        monkeypatch.setenv("RANK", str(rank))
        file = HistoryFile(tmp_path / name)
        file.write([example_row(step=step, rank=rank) for step in (0, 1)])
        file.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"h.rank{r}{name[1:]}" for r in (2, 10))
    assert [(row.step, row.rank) for row in read_history(tmp_path / name)] == [(0, 2), (0, 10), (1, 2), (1, 10)]


def test_a_history_of_an_older_version_is_read(tmp_path):
    file = HistoryFile(tmp_path / "h.csv")
    file.write([example_row()])
    file.close()
    later = 12  # columns that came after the first release stand last
    lines = [",".join(line.split(",")[:-later]) for line in (tmp_path / "h.csv").read_text().split("\n")]
    (tmp_path / "old.csv").write_text("\n".join(lines).replace('"', "").replace("h.0,attn", "h.0"))
    (row,) = read_history(tmp_path / "old.csv")
    assert (row.step, row.source, row.rank) == (3, "fused", 0)


def test_history_refuses_other_files(tmp_path):
    with pytest.raises(ValueError, match=r"must be a \.csv or \.jsonl"):
        HistoryFile(tmp_path / "h.txt")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "x.jsonl").write_text("[1]\n")
    for name in ("x.csv", "x.jsonl"):
        with pytest.raises(ValueError, match="no history"):
            read_history(tmp_path / name)


def test_watch_without_torch_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "analysis.audit.live.torch_calls", raising=False)
    with pytest.raises(ImportError, match="pip install"), watch(object()):
        pass


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_every_must_be_a_positive_whole_number(every):
    with pytest.raises(ValueError, match="every must be"), watch(object(), every=every):
        pass


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scale": 8.0}, "the scale × 22.6 (channel 2 carries 75% of the largest score)"),
        ({"query_norm": 90.0, "largest_channel_share": 0.1}, "norms of the queries × 31.8"),
        ({"key_norm": 90.0, "largest_channel_share": 0.1}, "norms of the keys × 31.8"),
        ({"cosine_at_largest": -1.0, "largest_channel_share": 0.1}, "alignment of q and k × 1.43"),
        ({"d_k": 0}, "its queries and keys were not seen"),
    ],
)
def test_an_alert_names_the_largest_factor(changes, words):
    alarm, told = Alarm({"largest_score": 100, "action": lambda alert: told.append(alert)}), []
    row = example_row(**changes)
    alarm.see([row, example_row(head=2, largest_score=99.0), row])  # a head is told once
    (alert,) = told
    assert (alert.row, alert.quantity, alert.value, alert.threshold, alert.cause) == (
        row,
        "largest_score",
        130,
        100,
        words,
    )
    assert str(alert) == f'h.0,"attn", head 1, step 3: largest_score 130 is above 100; {words}.'


def test_an_alert_tells_what_grew():
    told = []
    alarm = Alarm({"largest_score": 100, "action": told.append})
    calm = example_row(step=0, largest_score=20.0, scale=8.0, largest_channel_share=0.1, key_norm_at_largest=3.0)
    alarm.see([calm, dataclasses.replace(calm, head=0, largest_score=99.0)])
    # the scale is the largest factor, and was so from the start: the keys have grown
    alarm.see([dataclasses.replace(calm, step=7, largest_score=120.0, key_norm=18.0, key_norm_at_largest=18.0)])
    alarm.see([dataclasses.replace(calm, step=8, head=0, largest_score=101.0, key_norm=3.1)])
    assert [alert.cause for alert in told] == ["norms of the keys × 6 since step 0", "the scale × 22.6"]


def test_alignment_is_what_chance_does_not_give():
    # in three dimensions a random cosine is uniform: one of N exceeds 1 - 1/N
    row = example_row(d_k=3, rows=10, n_keys=10, cosine_at_largest=0.99, scale=0.1, query_norm=0.1, key_norm=0.1)
    assert cause(row).startswith("alignment of q and k × 1 ")
    one = dataclasses.replace(row, d_k=1, cosine_at_largest=1.0)
    assert cause(one).startswith("alignment of q and k × 1 ")


@pytest.mark.parametrize(
    ("alert", "message"),
    [
        ({}, "takes thresholds of .*: got none"),
        ({"entropy": 0.1}, "takes thresholds of .*: got 'entropy'"),
        ({"largest_score": math.nan}, "must be a finite number"),
        ({"largest_score": "3"}, "must be a finite number"),
        ({"largest_score": 3, "action": "stop"}, 'must be "warn", "raise" or a function'),
    ],
)
def test_alerts_that_cannot_be_are_refused(alert, message):
    with pytest.raises(ValueError, match=message):
        Alarm(alert)


@pytest.mark.parametrize("name", ["largest_score", "largest_signed_score", "dead_row_fraction"])
def test_an_alert_on_what_is_not_computed_is_refused(name):
    with pytest.raises(ValueError, match=f"an alert on {name} needs every score"):
        Alarm({"score_bound": 9, name: 0.5}, every_score=False)


def by_hand(q, k, visible, scale, kept):
    """All numbers of one head over a batch, by loops; q, k: (batch, length, d), kept: (batch, n_queries)."""
    variances, ratios, dead, best = [], [], [], (-1.0, None)
    for b in range(len(q)):
        for i in range(q.shape[1]):
            seen = np.flatnonzero(visible[b, i])
            if len(seen) < 2 or not kept[b, i]:
                continue
            s = scale * k[b, seen] @ q[b, i]
            p = np.exp(s - s.max())
            p /= p.sum()
            variances.append(s.var())
            ratios.append(-(p[p > 0] * np.log(p[p > 0])).sum() / math.log(len(seen)))
            dead.append((1 - (p**2).sum()) < 1e-3)
            j = int(np.abs(s).argmax())
            if abs(s[j]) > best[0]:
                best = (abs(s[j]), (b, i, seen[j]))
    b, i, j = best[1]
    products = np.abs(q[b, i] * k[b, j])
    return {
        "rows": len(ratios),
        "largest_score": best[0],
        "within_row_variance": np.mean(variances),
        "entropy_ratio": np.mean(ratios),
        "dead_row_fraction": np.mean(dead),
        "query_norm": math.sqrt((q[kept] ** 2).sum(-1).mean()),
        "key_norm": math.sqrt(((k[kept] if q.shape == k.shape else k) ** 2).sum(-1).mean()),
        "cosine_at_largest": q[b, i] @ k[b, j] / np.linalg.norm(q[b, i]) / np.linalg.norm(k[b, j]),
        "largest_channel": int(products.argmax()),
        "largest_channel_share": products.max() / products.sum(),
    }


def assert_is(row, expected, rtol=2e-5):
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(row, name), value, rtol=rtol, atol=1e-7, err_msg=name)


def Fused(torch):
    class Fused(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return Fused()


def ByProduct(torch):
    class ByProduct(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1) @ v

    return ByProduct()


@pytest.mark.slow
class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.fixture
    def transformer(self, torch):
        """A two-layer causal transformer with grouped heads, which also keeps its queries and keys for the test."""
        functional = torch.nn.functional

        class Attention(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v = (torch.nn.Linear(32, width) for width in (32, 16, 16))
                self.growth, self.kept = 1.0, None

            def forward(self, x):
                b, n, _ = x.shape
                q = self.growth * self.q(x).view(b, n, 4, 8).transpose(1, 2)
                k, v = (f(x).view(b, n, 2, 8).transpose(1, 2) for f in (self.k, self.v))
                self.kept = (q, k)
                if torch.is_grad_enabled():
                    q.retain_grad(), k.retain_grad()
                out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)
                return out.transpose(1, 2).reshape(b, n, 32)

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.attn, self.mlp = (
                    Attention(),
                    torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32)),
                )

            def forward(self, x):
                x = x + self.attn(x)
                return x + torch.nn.functional.dropout(self.mlp(x), 0.1, self.training)

        torch.manual_seed(0)
        return torch.nn.Sequential(Block(), Block())

    def test_training_with_a_growing_query_norm(self, torch, transformer, tmp_path):
        optimizer = torch.optim.SGD(transformer.parameters(), lr=0.05)
        expected, gradients = [], []
        with watch(transformer, history=tmp_path / "h.csv") as watcher:
            for step in range(6):
                for block in transformer:
                    block.attn.growth = 3.0**step
                x = torch.randn(3, 10, 32)
                loss = (transformer(x) - x.roll(1, dims=1)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                kept = [
                    (layer, *(t.detach().double().numpy() for t in block.attn.kept))
                    for layer, block in enumerate(transformer)
                ]
                for layer, q, k in kept:
                    for head in range(4):
                        visible = np.broadcast_to(np.tri(10, dtype=bool), (3, 10, 10))
                        hand = by_hand(q[:, head], k[:, head // 2], visible, 0.3, np.ones((3, 10), bool))
                        expected.append((step, f"{layer}.attn", head, hand))
                        q_grad, k_grad = (t.grad.double().numpy() for t in transformer[layer].attn.kept)
                        gradients.append(
                            [math.sqrt((g**2).sum(-1).mean()) for g in (q_grad[:, head], k_grad[:, head // 2])]
                        )
                optimizer.step()
        rows = read_history(tmp_path / "h.csv")
        assert len(rows) == len(expected) == 6 * 2 * 4
        for row, (step, module, head, hand), norms in zip(rows, expected, gradients, strict=True):
            assert (row.step, row.module, row.head, row.call, row.scale) == (step, module, head, 0, 0.3)
            assert row.rows_left_out == 3  # the first row of a causal head sees one key
            assert_is(row, hand, rtol=1e-4)  # float32 scores up to 10³: 10³·eps of each row's exponent
            np.testing.assert_allclose([row.query_gradient_norm, row.key_gradient_norm], norms, rtol=1e-4)
        of_head = [row for row in rows if (row.module, row.head) == ("0.attn", 0)]
        assert all(later.query_norm > 2 * earlier.query_norm for earlier, later in itertools.pairwise(of_head))
        assert of_head[-1].dead_row_fraction > 0.5 > of_head[0].dead_row_fraction
        assert watcher.unseen == ()

    @pytest.mark.parametrize("kind", ["mha", "weights", "post-norm", "pre-norm", "stack", "decoder"])
    @pytest.mark.parametrize("training", [False, True])
    @pytest.mark.parametrize("grad", [False, True])
    @pytest.mark.parametrize("padded", [False, True])
    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    @pytest.mark.parametrize("every_score", [True, False])
    def test_the_output_and_the_random_numbers_are_the_same_to_the_bit(
        self, torch, kind, training, grad, padded, every_score
    ):
        nn = torch.nn
        torch.manual_seed(0)
        layer = {"batch_first": True, "dropout": 0.1}
        model = {
            "mha": lambda: nn.MultiheadAttention(32, 4, batch_first=True, dropout=0.1),
            "weights": lambda: nn.MultiheadAttention(32, 4, dropout=0.1),
            "post-norm": lambda: nn.TransformerEncoderLayer(32, 4, 64, **layer),
            "pre-norm": lambda: nn.TransformerEncoderLayer(32, 4, 64, norm_first=True, **layer),
            "stack": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, **layer), 2),
            "decoder": lambda: nn.TransformerDecoderLayer(32, 4, 64, **layer),
        }[kind]().train(training)
        x = torch.randn(3, 12, 32)
        mask = torch.zeros(3, 12, dtype=torch.bool)
        mask[1, 7:] = mask[2, 4:] = padded
        mask = mask if padded else None

        def call():
            if kind in ("mha", "weights"):
                y = x if kind == "mha" else x.transpose(0, 1)
                return model(y, y, y, key_padding_mask=mask, need_weights=kind == "weights")[0]
            if kind == "decoder":
                return model(x, x, tgt_key_padding_mask=mask)
            return model(x, src_key_padding_mask=mask)

        with torch.set_grad_enabled(grad):
            torch.manual_seed(1)
            plain, after = call(), torch.rand(1)
            torch.manual_seed(1)
            with watch(model, every_score=every_score) as watcher:
                watched, after_watched = call(), torch.rand(1)
        assert torch.equal(plain, watched)
        assert torch.equal(after, after_watched)
        assert watcher.unseen == ()
        calls = {"stack": 2, "decoder": 2}.get(kind, 1)
        assert len(watcher.rows) == 4 * calls
        names = {
            "mha": {"MultiheadAttention"},
            "weights": {"MultiheadAttention"},
            "stack": {"layers.0.self_attn", "layers.1.self_attn"},
            "decoder": {"self_attn", "multihead_attn"},
        }.get(kind, {"self_attn"})
        assert {row.module for row in watcher.rows} == names
        first = next(row for row in watcher.rows if row.module != "multihead_attn")
        assert (first.rows, first.rows_left_out) == ((23, 13) if padded else (36, 0))

    @pytest.mark.parametrize("grad", [False, True])
    def test_a_fused_layer_against_hand_computations(self, torch, grad):
        torch.manual_seed(2)
        model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        x, padding = 3 * torch.randn(2, 9, 16), torch.zeros(2, 9, dtype=torch.bool)
        padding[1, 5:] = True
        with torch.set_grad_enabled(grad), watch(model) as watcher:
            model(x, src_key_padding_mask=padding)
        weight, bias = model.self_attn.in_proj_weight.detach().double(), model.self_attn.in_proj_bias.detach().double()
        q, k = ((x.double() @ weight[rows].T + bias[rows]).numpy() for rows in (slice(0, 16), slice(16, 32)))
        valid = ~padding.numpy()
        for head, row in enumerate(watcher.rows):
            part = slice(8 * head, 8 * head + 8)
            visible = np.broadcast_to(valid[:, None, :], (2, 9, 9))
            assert_is(row, by_hand(q[..., part], k[..., part], visible, 8**-0.5, valid))

    @pytest.mark.parametrize("mask_kind", ["boolean", "additive", "per head", "three axes"])
    def test_masks_are_those_of_the_call(self, torch, mask_kind):
        functional = torch.nn.functional
        torch.manual_seed(3)
        q, k = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 8, 4)
        shape = {"boolean": (6, 8), "additive": (2, 1, 6, 8), "per head": (2, 3, 6, 8), "three axes": (3, 6, 8)}[
            mask_kind
        ]
        seen = torch.rand(shape) < 0.6
        mask = seen if mask_kind != "additive" else torch.zeros(shape).masked_fill(~seen, -math.inf)

        class Model(torch.nn.Module):
            def forward(self):
                return functional.scaled_dot_product_attention(q, k, k, mask)

        with watch(Model()) as watcher:
            Model()
            watcher._capture.model()
        visible = np.broadcast_to(seen.numpy(), (2, 3, 6, 8))
        for head, row in enumerate(watcher.rows):
            hand = by_hand(
                q[:, head].double().numpy(), k[:, head].double().numpy(), visible[:, head], 0.5, np.ones((2, 6), bool)
            )
            assert_is(row, hand)

    def test_sdpa_imported_by_name_is_seen_once(self, torch):
        from torch.nn.functional import scaled_dot_product_attention as early

        class Model(torch.nn.Module):
            def forward(self, x):
                return early(x, x, x)

        model = Model()
        with watch(model) as watcher:
            model(torch.randn(1, 2, 5, 4))
        assert [row.head for row in watcher.rows] == [0, 1]

    def test_a_module_called_attention_that_shows_none_is_named(self, torch):
        class SelfAttention(torch.nn.Module):
            def forward(self, x):
                return x

        model = torch.nn.Sequential(SelfAttention())
        with watch(model) as watcher:
            model(torch.randn(1, 2, 5, 4))
        assert watcher.unseen == ("0 (SelfAttention): no attention call was seen.",)

    @pytest.mark.parametrize("form", ["matmul", "bmm", "einsum", "module", "in place"])
    @pytest.mark.parametrize("masked", [False, True])
    def test_attention_by_hand_is_read_at_its_softmax(self, torch, form, masked):
        functional = torch.nn.functional

        class ByHand(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.softmax, self.dropout = torch.nn.Softmax(dim=-1), torch.nn.Dropout(0.1)

            def forward(self, q, k, v):
                if form == "einsum":
                    scores = torch.einsum("bhid,bhjd->bhij", q, k) * 0.3
                else:
                    scores = q @ k.transpose(-1, -2) * 0.3
                if masked:
                    scores = scores + torch.full((6, 6), torch.finfo(scores.dtype).min).triu(1)
                if form == "module":
                    return self.dropout(self.softmax(scores)) @ v
                weights = functional.softmax(scores.float(), dim=-1, dtype=torch.float32).to(q.dtype)
                if form == "in place":
                    scores.zero_()
                if form == "einsum":
                    return torch.einsum("bhij,bhjd->bhid", self.dropout(weights), v)
                if form == "bmm":
                    return torch.bmm(weights.flatten(0, 1), v.flatten(0, 1)).view_as(v)
                return torch.matmul(functional.dropout(weights, 0.1, self.training), v)

        class Router(torch.nn.Module):
            def forward(self, x):
                gates = x.softmax(-1)  # over experts, of three axes, and no product with values
                return x * gates.topk(2, dim=-1).values.sum(-1, keepdim=True)

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.attn, self.router = ByHand(), Router()

            def forward(self, q, k, v):
                return functional.softmax(self.router(self.attn(q, k, v).flatten(1, 2)), dim=-1)

        torch.manual_seed(5)
        q, k, v = torch.randn(3, 2, 3, 6, 4)
        q.requires_grad_()
        model = Model().eval()
        plain = model(q, k, v)
        with watch(model) as watcher:
            watched = model(q, k, v)
            watched.square().sum().backward()
        assert torch.equal(plain, watched)
        if form == "in place":
            assert watcher.rows == []
            assert watcher.unseen == ("attn: not read (its scores were changed in place after the softmax).",)
            return
        assert [(row.module, row.head, row.source) for row in watcher.rows] == [("attn", h, "eager") for h in range(3)]
        visible = np.broadcast_to(np.tri(6, dtype=bool) if masked else np.ones((6, 6), bool), (2, 6, 6))
        for head, row in enumerate(watcher.rows):
            hand = by_hand(q[:, head].detach().double().numpy(), k[:, head].double().numpy(), visible, 0.3,
                           np.ones((2, 6), bool))  # fmt: skip
            if form == "einsum":  # its letters do not say which factor holds the queries
                hand = {n: x for n, x in hand.items() if not n.endswith(("_norm", "share", "channel", "at_largest"))}
                assert row.d_k == 0
            else:
                assert row.d_k == 4
                norm = float(q.grad[:, head].square().sum(-1).mean().sqrt())
                assert row.query_gradient_norm == pytest.approx(norm, rel=1e-5)
            assert_is(row, hand)
        assert watcher.unseen == ()

    @pytest.mark.parametrize("eager", [False, True])
    def test_inference_mode_is_read(self, torch, eager):
        model = ByProduct(torch) if eager else Fused(torch)
        q, k = torch.randn(2, 1, 2, 5, 4)
        with torch.inference_mode(), watch(model) as watcher:
            model(q, k, k)
        assert watcher.unseen == ()
        assert [row.rows for row in watcher.rows] == [5, 5]

    def test_a_sink_and_a_soft_cap_are_in_the_scores(self, torch):
        class Sink(torch.nn.Module):
            def forward(self, x):
                scores = 5 * torch.tanh(x @ x.mT / 5)
                beside = torch.full((*scores.shape[:-1], 1), 1.5)
                weights = torch.softmax(torch.cat([scores, beside], dim=-1), dim=-1)
                return weights[..., :-1] @ x

        x = torch.randn(2, 1, 7, 4)
        model = Sink()
        with watch(model) as watcher:
            model(x)
        (row,) = watcher.rows
        scores = (5 * torch.tanh(x @ x.mT / 5)).double()
        assert row.n_keys == 7
        assert row.largest_signed_score == pytest.approx(float(scores.max()), rel=1e-5)
        assert row.within_row_variance == pytest.approx(float(scores.var(-1, correction=0).mean()), rel=1e-5)
        share = math.exp(1.5) / (scores.exp().sum(-1) + math.exp(1.5))
        assert row.sink_share == pytest.approx(float(share.mean()), rel=1e-5)
        assert row.logsumexp == pytest.approx(float(scores.logsumexp(-1).mean()), rel=1e-5)
        assert row.first_key_share == pytest.approx(float(scores.softmax(-1)[..., 0].mean()), rel=1e-5)

    def test_the_bound_and_the_signed_maximum(self, torch):
        model = Fused(torch)
        q, k = torch.randn(2, 1, 2, 6, 4)
        k = -k.abs()
        with watch(model) as watcher:
            model(q.abs(), k, k)
        for row in watcher.rows:
            scores = q.abs()[0, row.head] @ k[0, row.head].T / 2
            assert row.largest_signed_score == pytest.approx(float(scores.max()), rel=1e-5)
            assert row.largest_score == pytest.approx(float(-scores.min()), rel=1e-5)
            bound = q[0, row.head].norm(dim=-1).max() * k[0, row.head].norm(dim=-1).max() / 2
            assert row.score_bound == pytest.approx(float(bound), rel=1e-5)
            assert row.score_bound >= row.largest_score

    @pytest.mark.parametrize("eager", [False, True])
    def test_autocast_is_the_type_of_the_product(self, torch, eager):
        model = ByProduct(torch) if eager else Fused(torch)
        q, k = 12 * torch.randn(2, 1, 1, 30, 16)
        with watch(model) as watcher, torch.autocast("cpu", torch.bfloat16):
            model(q, k, k)
        (row,) = watcher.rows
        assert row.dtype == "bfloat16"
        assert row.rounding_step == 2.0 ** (math.floor(math.log2(row.largest_score)) - 7)
        rounded = (q.bfloat16().double() @ k.bfloat16().double().mT / 4).abs().max()
        assert row.largest_score == pytest.approx(float(rounded), rel=2**-7 if eager else 1e-5)

    @pytest.mark.parametrize("how", ["wrapper", "model", "in place"])
    @pytest.mark.parametrize("eager", [False, True])
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_passes_that_are_not_watched_keep_their_compiled_path(self, torch, how, eager):
        runs = []

        def backend(graph, examples):
            def run(*args):
                runs.append(len(args))
                return graph(*args)

            return run

        torch._dynamo.reset()
        model = ByProduct(torch) if eager else Fused(torch)
        call = model if how == "in place" else torch.compile(model, backend=backend, fullgraph=True)
        if how == "in place":
            model.compile(backend=backend, fullgraph=True)
        q = torch.randn(1, 2, 5, 4)
        plain = call(q, q, q)
        runs.clear()
        with watch(call if how == "wrapper" else model, every=3) as watcher:
            outputs = [call(q, q, q) for _ in range(7)]
            assert len(runs) == 4  # of seven passes three were watched
        assert [row.step for row in watcher.rows] == [0, 0, 3, 3, 6, 6]
        assert watcher.unseen == ()
        for output in outputs:
            torch.testing.assert_close(output, plain)
        call(q, q, q)
        assert len(runs) == 5

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.filterwarnings("ignore:There is a performance drop")
    def test_zero_rows_always_say_why(self, torch):
        functional = torch.nn.functional
        q = torch.randn(1, 2, 5, 4)

        class ExpAndSum(torch.nn.Module):
            def forward(self, q):
                weights = (q @ q.mT).exp()
                return weights / weights.sum(-1, keepdim=True) @ q

        class Part(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Fused(torch)

            def training_step(self, q):
                return self.inner(q, q, q)

        def scripted():
            inner = torch.jit.trace(lambda q: functional.scaled_dot_product_attention(q, q, q), q)
            model = torch.nn.Sequential(torch.nn.Identity())
            model.forward = inner
            return model, (q,)

        models = {
            "never": (Fused(torch), None, "was not called inside the block"),
            "part": (Part(), lambda m: m.training_step(q), "goes around it"),
            "copy": (Part(), lambda m: __import__("copy").deepcopy(m).inner(q, q, q), "goes around it"),
            "exp and sum": (ExpAndSum(), lambda m: m(q), "no attention was seen"),
            "scripted": (scripted()[0], lambda m: m(q), "no attention was seen"),
            "vmap": (Fused(torch), lambda m: torch.func.vmap(m)(q, q, q), "torch.func"),
            "jacrev": (Fused(torch), lambda m: torch.func.jacrev(m)(q, q, q), "torch.func"),
            "meta": (Fused(torch), lambda m: m(*[q.to("meta")] * 3), "fake"),
        }
        for name, (model, run, words) in models.items():
            with watch(model) as watcher:
                run and run(model)
            assert watcher.rows == [], name
            assert any(words in sentence for sentence in watcher.unseen), (name, watcher.unseen)

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_fake_tensors_export_and_flex_attention_never_raise(self, torch):
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.nn.attention.flex_attention import flex_attention

        class Flex(torch.nn.Module):
            def forward(self, q, k, v):
                return flex_attention(q, k, v)

        q = torch.randn(1, 2, 16, 16)
        for every in (1, 2):
            for strict in (False, True):
                model = Fused(torch)
                with watch(model, every=every) as watcher:
                    exported = torch.export.export(model, (q, q, q), strict=strict)
                assert watcher.rows == []
                assert len(watcher.unseen) == 1
                assert sum("attention" in str(node.target) for node in exported.graph.nodes) == 1
            with watch(model, every=every) as watcher, FakeTensorMode(allow_non_fake_inputs=True) as mode:
                fake = mode.from_tensor(q)
                model(fake, fake, fake)
            assert "fake" in watcher.unseen[0]
            model = Flex()
            with watch(model, every=every) as watcher:
                model(q, q, q)
            assert watcher.rows == []
            assert "flex_attention keeps its scores to itself" in watcher.unseen[0]

    @pytest.mark.parametrize("empty", ["batch", "queries"])
    @pytest.mark.parametrize("eager", [False, True])
    def test_empty_calls_leave_rows_without_numbers(self, torch, empty, eager):
        model = ByProduct(torch) if eager else Fused(torch)
        q, k = torch.randn(2, 2, 3, 5, 4)
        q, k = (q[:0], k[:0]) if empty == "batch" else (q[:, :, :0], k)
        with watch(model) as watcher:
            model(q, k, k)
        assert [row.rows for row in watcher.rows] == [0, 0, 0]
        assert all(math.isnan(row.largest_score) for row in watcher.rows)

    def test_alerts_of_a_run_warn_once_and_raise_when_asked(self, torch):
        model = Fused(torch)
        q = torch.randn(1, 2, 5, 4)
        large = q * torch.tensor([1.0, 50.0])[:, None, None]

        def run():
            with watch(model, alert={"largest_score": 500, "entropy_fraction": 0.2}):
                for x in (q, large, large):
                    model(x, x, x)

        with pytest.warns(AttentionWarning) as caught:
            run()
        assert [str(w.message).split(";")[0].split(" is ")[0].rsplit(" ", 1)[0] for w in caught] == [
            "Fused, head 1, step 1: largest_score",
            "Fused, head 1, step 1: entropy_fraction",
        ]
        with watch(model, alert={"largest_score": 500, "action": "raise"}) as watcher:
            model(q, q, q)
            with pytest.raises(AttentionAlert, match="head 1, step 1: largest_score"):
                model(large, large, large)
        assert sorted({row.step for row in watcher.rows}) == [0, 1]
        assert not torch.nn.modules.module._has_any_global_hook()

    def test_two_processes_write_two_files_and_one_history(self, torch, tmp_path):
        program = """
import sys, torch
from analysis import watch
rank = int(sys.argv[1])
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[2] + "/meet", rank=rank, world_size=2)
model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
with watch(model, history=sys.argv[2] + "/h.csv"):
    for step in range(3):
        x = torch.full((1, 4, 8), 1.0 + rank).cumsum(1)
        model(x, x, x)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""
        ranks = [subprocess.Popen([sys.executable, "-c", program, str(rank), str(tmp_path)]) for rank in (0, 1)]
        assert [process.wait(timeout=120) for process in ranks] == [0, 0]
        rows = read_history(tmp_path / "h.csv")
        assert [(row.step, row.rank, row.head) for row in rows] == [
            (s, r, h) for s in range(3) for r in range(2) for h in range(2)
        ]

    def test_every_finished_row_is_handed_on(self, torch, tmp_path):
        model, handed = Fused(torch), []
        q = torch.randn(1, 2, 5, 4, requires_grad=True)
        with watch(model, on_row=handed.append) as watcher:
            for step in range(3):
                model(q, q, q).sum().backward()
                assert [row.step for row in handed] == [s for s in range(step) for _ in range(2)]
        assert handed == watcher.rows
        assert all(row.query_gradient_norm > 0 for row in handed)

        def broken(row):
            raise KeyError("no tracker")

        with watch(model, on_row=broken, history=tmp_path / "h.csv") as watcher:
            model(q, q, q)
        assert len(read_history(tmp_path / "h.csv")) == 2
        assert watcher.unseen == ("on_row: raised KeyError: 'no tracker'.",)

    def test_reentrant_checkpointing_is_told(self, torch):
        from torch.utils.checkpoint import checkpoint

        class Model(torch.nn.Module):
            def __init__(self, reentrant):
                super().__init__()
                self.inner, self.reentrant = Fused(torch), reentrant

            def forward(self, q):
                return checkpoint(self.inner, q, q, q, use_reentrant=self.reentrant)

        for reentrant in (False, True):
            model = Model(reentrant)
            with watch(model) as watcher:
                model(torch.randn(1, 1, 5, 4, requires_grad=True)).sum().backward()
            (row,) = watcher.rows
            assert math.isnan(row.query_gradient_norm) == reentrant
            assert any("reentrant checkpointing" in sentence for sentence in watcher.unseen) == reentrant

    @pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning")
    def test_compiled_models_are_seen(self, torch):
        functional = torch.nn.functional

        class Model(torch.nn.Module):
            def forward(self, x):
                return functional.scaled_dot_product_attention(x, x, x) + 1

        model = torch.compile(Model(), backend="eager")
        x = torch.randn(1, 2, 5, 4)
        plain = model(x)
        with watch(model) as watcher:
            watched = model(x)
        assert torch.equal(plain, watched)
        assert len(watcher.rows) == 2

    def test_hooks_on_a_learned_query_do_not_pile_up(self, torch):
        functional = torch.nn.functional

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.query = torch.nn.Parameter(torch.randn(1, 2, 3, 4))

            def forward(self, x):
                return functional.scaled_dot_product_attention(self.query, x, x)

        model = Model()
        with watch(model) as watcher:
            for _ in range(4):
                model.query.grad = None
                model(torch.randn(1, 2, 5, 4)).square().sum().backward()
                expected = model.query.grad.square().sum(-1).mean((0, 2)).sqrt()
        assert not model.query._backward_hooks
        np.testing.assert_allclose([row.query_gradient_norm for row in watcher.rows[-2:]], expected, rtol=1e-6)

    def test_every_and_history_lines(self, torch, transformer, tmp_path):
        with watch(transformer, every=3, history=tmp_path / "h.jsonl"), torch.no_grad():
            for _ in range(7):
                transformer(torch.randn(1, 4, 32))
        assert sorted({row.step for row in read_history(tmp_path / "h.jsonl")}) == [0, 3, 6]

    def test_finished_steps_are_on_disk_while_the_model_runs(self, torch, transformer, tmp_path):
        with watch(transformer, history=tmp_path / "h.csv"), torch.no_grad():
            transformer(torch.randn(1, 4, 32))
            transformer(torch.randn(1, 4, 32))
            assert {row.step for row in read_history(tmp_path / "h.csv")} == {0}

    def test_an_exception_in_the_model_leaves_nothing_behind(self, torch):
        functional = torch.nn.functional
        original, hooks = functional.scaled_dot_product_attention, torch.nn.modules.module

        class Broken(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)

            def forward(self, x):
                self.layer(x[..., :5])

        before = len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)
        with pytest.raises(Exception, match="8"), watch(Broken()) as watcher:
            watcher._capture.model(torch.randn(1, 3, 8))
        assert functional.scaled_dot_product_attention is original
        assert (len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)) == before
        assert not hooks._has_any_global_hook()
        assert not torch._C._is_torch_function_mode_enabled()
        assert torch.overrides.has_torch_function((torch.nn.Parameter(torch.zeros(1)),)) is False

    @pytest.mark.parametrize(("value", "step"), [(127.0, 0.5), (128.0, 1.0), (300.0, 2.0)])
    def test_rounding_step_of_bfloat16(self, torch, value, step):
        from analysis.audit.live.vectors import rounding_step

        assert rounding_step(value, torch.bfloat16) == step
        assert rounding_step(value, torch.float32) == float(np.spacing(np.float32(value)))
        assert rounding_step(value, torch.float16) == float(np.spacing(np.float16(value)))
        assert rounding_step(1e6, torch.float16) == math.inf
        assert math.isnan(rounding_step(math.nan, torch.float16))

    def test_a_nan_query_row_is_left_out(self, torch):
        functional = torch.nn.functional

        class Model(torch.nn.Module):
            def forward(self, q):
                return functional.scaled_dot_product_attention(q, torch.ones(1, 1, 4, 2), torch.ones(1, 1, 4, 2))

        q = torch.ones(1, 1, 3, 2)
        q[0, 0, 1] = math.nan
        model = Model()
        with watch(model) as watcher:
            model(q)
        (row,) = watcher.rows
        assert (row.rows, row.rows_left_out) == (2, 1)
        assert row.entropy_ratio == pytest.approx(1.0)

    def test_bad_arguments(self, torch, tmp_path):
        with pytest.raises(ValueError, match="must be a torch"), watch(3):
            pass
        with watch(torch.nn.Linear(1, 1)), pytest.raises(ValueError, match="one watch"), watch(torch.nn.Linear(1, 1)):
            pass
        with pytest.raises(FileNotFoundError), watch(torch.nn.Linear(1, 1), history=tmp_path / "no" / "h.csv"):
            pass
        assert torch.nn.functional.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"

    def test_watching_costs_less_than_three_forward_passes(self, torch):
        layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
        model, x = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(4, 64, 128)
        plain, watched, threads = [], [], torch.get_num_threads()
        torch.set_num_threads(1)  # idle cores of a shared machine are no part of the comparison
        for _ in range(15):
            start = time.perf_counter()
            model(x)
            plain.append(time.perf_counter() - start)
            with watch(model):
                start = time.perf_counter()
                model(x)
                watched.append(time.perf_counter() - start)
        torch.set_num_threads(threads)
        assert min(watched) - min(plain) < 3 * min(plain)
