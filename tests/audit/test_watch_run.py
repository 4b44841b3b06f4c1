"""A watched training run: maxima over micro-batches and processes, predicted entropy, memory, a run that is killed."""

import gc
import json
import math
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import audit_tensors, expected_entropy, read_history, watch
from analysis.audit.live.expected import key_nodes, predicted_ratio


@given(st.integers(2, 5000), st.floats(-9, 11))
@settings(max_examples=15)
def test_the_tables_agree_with_quadrature(n_keys, log_variance):
    variance = math.exp(log_variance)
    nodes = key_nodes(n_keys)
    assert list(nodes) == sorted(set(nodes))
    assert nodes[0] == 2
    counts = [3.0 if node == n_keys else 0.0 for node in nodes]
    exact = expected_entropy(n_keys, sigma=math.sqrt(variance)) / math.log(n_keys)
    assert sum(counts) == 3
    assert abs(predicted_ratio(counts, nodes, variance) - exact) < 1e-3


@pytest.mark.parametrize(("variance", "ratio"), [(0.0, 1.0), (1e9, 0.0), (math.nan, math.nan), (-1.0, math.nan)])
def test_the_ends_of_the_tables(variance, ratio):
    np.testing.assert_equal(predicted_ratio([0.0, 2.0], (2, 3), variance), ratio)
    assert math.isnan(predicted_ratio([0.0, 0.0], (2, 3), 1.0))


PROGRAM = """
import json, sys, torch
from analysis import watch
rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=2)
class Fused(torch.nn.Module):
    def forward(self, q):
        return torch.nn.functional.scaled_dot_product_attention(q, -q, q)
class Own(Fused):
    pass
model = torch.nn.ModuleDict({"shared": Fused(), f"stage{rank}": Own()})
model.forward = lambda q: model[f"stage{rank}"](model["shared"](q))
with watch(model) as watcher:
    found = []
    for size in (1.0, 3.0, 2.0):
        q = torch.ones(1, 2, 3, 4) * torch.tensor([size + rank, size - rank])[:, None, None]
        model(q)
    found.append([vars(each) for each in watcher.take_maxima()])
    model(torch.ones(1, 2, 3, 4))
    found.append([vars(each) for each in watcher.take_maxima()])
open(f"{folder}/{rank}.json", "w").write(json.dumps(found))
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
class TestRun:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.fixture
    def fused(self, torch):
        class Fused(torch.nn.Module):
            def forward(self, q, k, mask=None, causal=False):
                return torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask, is_causal=causal)

            def generate(self, q):
                return self(q, q)

        return Fused()

    @pytest.mark.parametrize("causal", [False, True])
    def test_the_predicted_entropy_is_that_of_the_audit(self, torch, fused, causal):
        torch.manual_seed(1)
        spread = torch.tensor([0.1, 1.0, 4.0])[:, None, None]
        q, k = torch.randn(2, 3, 90, 16, dtype=torch.float64) * spread, torch.randn(2, 3, 90, 16, dtype=torch.float64)
        padding = torch.ones(2, 90, dtype=torch.bool)
        padding[1, 37:] = False
        mask = padding[:, None, None, :] & (torch.ones(90, 90, dtype=torch.bool).tril() if causal else True)
        with watch(fused) as watcher:
            fused(q, k, mask)
        audit = audit_tensors(q.numpy(), k.numpy(), padding_mask=padding.numpy(), is_causal=causal)
        for row, head in zip(watcher.rows, audit.heads, strict=True):
            assert row.rows == head.rows
            assert abs(row.predicted_entropy_ratio - head.predicted_entropy_ratio) < 0.001 + 0.005 * causal
            assert abs(row.entropy_ratio - head.entropy_ratio) < 1e-9

    def test_maxima_live_through_micro_batches_and_start_anew(self, torch, fused):
        with watch(fused) as watcher:
            assert watcher.take_maxima() == ()
            for size in (1.0, -3.0, 2.0):
                q = torch.full((1, 1, 2, 4), size)
                fused(q, torch.ones(1, 1, 2, 4))
            (maximum,) = watcher.take_maxima()
            assert (maximum.largest_score, maximum.largest_signed_score, maximum.passes) == (6.0, 4.0, 3)
            fused(q[:, :, :0], q)
            (maximum,) = watcher.take_maxima()
            assert math.isnan(maximum.largest_score)
            assert watcher.take_maxima() == ()

    def test_two_processes_by_gloo(self, tmp_path):
        started = [
            subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), str(tmp_path)], stderr=subprocess.PIPE)
            for rank in (0, 1)
        ]
        for process in started:
            errors = process.communicate(timeout=120)[1]
            assert process.returncode == 0, errors.decode()[-2000:]
        first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
        key = str
        assert sorted(first[0], key=key) == sorted(second[0], key=key)
        assert sorted(first[1], key=key) == sorted(second[1], key=key)
        # q is size + rank in head 0 and size - rank in head 1, sizes up to 3; scores are -q.q/2 = -2 q²
        shared = {each["head"]: each for each in first[0] if each["module"] == "shared"}
        assert [shared[h]["largest_score"] for h in (0, 1)] == [32.0, 18.0]
        assert [shared[h]["largest_signed_score"] for h in (0, 1)] == [-2.0, 0.0]
        assert [shared[h]["passes"] for h in (0, 1)] == [6, 6]
        assert {each["module"]: each["passes"] for each in first[0]} == {"shared": 6, "stage0": 3, "stage1": 3}
        assert {each["largest_score"] for each in first[1] if each["module"] == "shared"} == {2.0}

    def test_a_method_that_goes_around_the_call_is_one_pass(self, torch, fused):
        q = torch.randn(1, 2, 5, 4)

        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = fused

            def training_step(self, q):
                return self.inner(self.inner(q, q), q)

        outer = Outer()
        expected = outer.training_step(q)
        with watch(outer) as watcher:
            for _ in range(2):
                with watcher.one_pass():
                    assert torch.equal(outer.training_step(q), expected)
            with pytest.raises(ZeroDivisionError), watcher.one_pass():
                1 / 0  # noqa: B018
        assert [(r.step, r.module, r.call, r.head) for r in watcher.rows] == [
            (step, "inner", call, head) for step in (0, 1) for call in (0, 1) for head in (0, 1)
        ]
        assert watcher.unseen == ()
        assert not torch.nn.modules.module._has_any_global_hook()

    def test_memory_is_flat_over_a_thousand_steps(self, torch, tmp_path):
        model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        held = []
        with watch(model, history=tmp_path / "h.csv", alert={"largest_score": 1e9}, on_row=lambda row: None) as watcher:
            tracemalloc.start()
            for step in range(1000):
                model(torch.randn(1, 4, 8)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                if step % 4 == 3:
                    watcher.take_maxima()
                if step in (199, 999):
                    gc.collect()
                    held.append(tracemalloc.get_traced_memory()[0])
                    held.append(sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects()))
            tracemalloc.stop()
        assert held[2] - held[0] < 800 * 200, held  # steps that kept a row of each head would add 800 · 2 · 1 kB
        assert held[3] <= held[1] + 5, held
        assert len(read_history(tmp_path / "h.csv")) == 2000

    @pytest.mark.parametrize("name", ["h.csv", "h.jsonl"])
    def test_the_history_of_a_killed_run_is_read(self, tmp_path, name):
        program = f"""
import torch
from analysis import watch
model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
with watch(model, history={str(tmp_path / name)!r}):
    step = 0
    while True:
        model(torch.randn(1, 4, 8)).square().mean().backward()
        step += 1
        if step == 20:
            print("twenty", flush=True)
"""
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"twenty\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        steps = [row.step for row in read_history(tmp_path / name)]
        assert steps[:38] == [step for step in range(19) for _ in (0, 1)]
