"""Growth planted in one head of a small transformer in training: the alarm names the head, the step and the cause."""

import math

import pytest

from analysis import watch

LAYER, HEAD, START, STEPS = 1, 2, 10, 40
HEADS, D_K, LENGTH = 4, 32, 12
TOKEN = 5


def model_of(torch):
    functional = torch.nn.functional

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(HEADS * D_K, HEADS * D_K) for _ in range(3))
            self.bend = lambda q, k: (q, k)

        def forward(self, x):
            q, k, v = (f(x).unflatten(-1, (HEADS, D_K)).transpose(1, 2) for f in (self.q, self.k, self.v))
            q, k = self.bend(q, k)
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            width = HEADS * D_K
            self.attn, self.norm = Attention(), torch.nn.LayerNorm(width)
            self.mlp = torch.nn.Sequential(
                torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, width)
            )

        def forward(self, x):
            x = x + self.attn(self.norm(x))
            return x + self.mlp(x)

    torch.manual_seed(0)
    embed, head = torch.nn.Embedding(16, HEADS * D_K), torch.nn.Linear(HEADS * D_K, 16)
    return torch.nn.Sequential(embed, Block(), Block(), head)


def only(change):
    """Return what bends queries and keys of the one head, by a copy of the others."""

    def bend(q, k):
        changed = change(q[:, HEAD], k[:, HEAD])
        parts = [[*t.unbind(1)] for t in (q, k)]
        for part, new in zip(parts, changed, strict=True):
            part[HEAD] = new
        import torch

        return tuple(torch.stack(part, dim=1) for part in parts)

    return bend


def norm_of(torch, queries):
    return lambda grown: only(lambda q, k: (q * grown, k) if queries else (q, k * grown))


def alignment(torch, grown):
    """Turn every key towards the query of its own place; its length stays."""

    def change(q, k):
        mixed = k / k.norm(dim=-1, keepdim=True) + (grown - 1) * q / q.norm(dim=-1, keepdim=True)
        return q, mixed * k.norm(dim=-1, keepdim=True) / mixed.norm(dim=-1, keepdim=True)

    return only(change)


def channel(torch, grown):
    gain = torch.ones(D_K)
    gain[3] = grown
    return only(lambda q, k: (q, k * gain))


def token(torch, place, grown):
    gain = torch.ones(LENGTH, 1)
    gain[place] = grown
    return only(lambda q, k: (q, k * gain))


def sink(torch, grown):
    """Move the first key along the mean query."""

    def change(q, k):
        along = torch.zeros_like(k)
        along[:, 0] = 20 * (grown - 1) * q.mean((0, 1))
        return q, k + along

    return only(change)


def trained(torch, plant, alert):
    """Train on the sum of the two tokens before; return the alerts and all rows."""
    model, told, rows = model_of(torch), [], []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    with watch(model, alert={**alert, "action": told.append}, on_row=rows.append) as watcher:
        for step in range(STEPS):
            if step >= START:
                model[1 + LAYER].attn.bend = plant(1.15 ** (step - START))
            x = torch.randint(16, (8, LENGTH), generator=generator)
            wanted = (x + x.roll(1, 1)) % 16
            torch.nn.functional.cross_entropy(model(x).flatten(0, 1), wanted.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert watcher.unseen == ()
    return told, rows


@pytest.mark.slow
class TestPlanted:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            ("queries", "norms of the queries × "),
            ("keys", "norms of the keys × "),
            ("channel", "(channel 3 carries "),
            ("token", f"the norm of one key ({TOKEN}) × "),
            ("alignment", "alignment of q and k × "),
        ],
    )
    def test_the_head_the_step_and_the_cause(self, torch, kind, words):
        plant = {
            "queries": norm_of(torch, True),
            "keys": norm_of(torch, False),
            "channel": lambda grown: channel(torch, grown),
            "token": lambda grown: token(torch, TOKEN, grown),
            "alignment": lambda grown: alignment(torch, grown),
        }[kind]
        _, calm = trained(torch, lambda grown: only(lambda q, k: (q, k)), {"largest_score": 1e9})
        threshold = 1.3 * max(row.largest_score for row in calm)
        told, rows = trained(torch, plant, {"largest_score": threshold})
        (alert,) = told  # no other head, and this one once
        assert (alert.row.module, alert.row.head) == (f"{1 + LAYER}.attn", HEAD)
        crossed = [row.step for row in rows if row.largest_score > threshold]
        assert alert.row.step == crossed[0] > START
        assert words in alert.cause

    def test_a_sink_is_told(self, torch):
        told, rows = trained(torch, lambda grown: sink(torch, grown), {"first_key_share": 0.8})
        (alert,) = told
        assert (alert.row.module, alert.row.head) == (f"{1 + LAYER}.attn", HEAD)
        assert alert.row.step > START
        assert alert.cause.endswith(f"; the first key takes {alert.row.first_key_share:.0%} of the weight")
        before = [row.first_key_share for row in rows if row.step == alert.row.step - 1 and row.head == HEAD]
        assert max(before) <= 0.8
        assert not math.isnan(alert.value)
