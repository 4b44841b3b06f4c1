"""
Time and memory of attention in one process, as ratios to torch's fused CPU kernel.

    python benchmarks/attention.py --threads 1
    python benchmarks/attention.py --threads 2 --only forward

Contenders take turns within a round, so that a slow minute of the machine hits all of them; each number is the ratio
of medians over the rounds. The process is pinned to as many cores as threads before anything is imported, which holds
every library to the same number. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHAPES = [(1, 8, 512, 512, 64), (2, 12, 1024, 1024, 64), (1, 8, 4096, 4096, 64), (8, 12, 128, 128, 32)]
CLOCK = time.perf_counter
MEMORY_SHAPE = (1, 8, 4096, 4096, 64)
UNSCALED = 22.6  # the standard deviation of an unscaled score at d_k = 512
Call = Callable[[], Any]


def draw(shape: tuple[int, ...], seed: int = 0) -> list[Any]:
    import numpy as np

    batch, heads, n_queries, n_keys, d = shape
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((batch, heads, n, d), dtype=np.float32) for n in (n_queries, n_keys, n_keys, n_queries)]


def attnsym_call(q: Any, k: Any, v: Any, causal: bool, scale: float, threads: int) -> Call:
    import attnsym

    return lambda: attnsym.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


def torch_call(q: Any, k: Any, v: Any, causal: bool, scale: float, threads: int) -> Call:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    torch.set_num_threads(threads)
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    return lambda: scaled_dot_product_attention(*tensors, is_causal=causal, scale=scale).numpy()


def jax_call(q: Any, k: Any, v: Any, causal: bool, scale: float, threads: int) -> Call:
    import jax

    arrays = [jax.numpy.asarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    jitted = jax.jit(lambda a, b, c: jax.nn.dot_product_attention(a, b, c, is_causal=causal, scale=scale))
    return lambda: jitted(*arrays).block_until_ready().swapaxes(1, 2)


def onnxruntime_call(q: Any, k: Any, v: Any, causal: bool, scale: float, threads: int) -> Call:
    import onnxruntime
    from onnx import TensorProto, helper

    names = ["Q", "K", "V"]
    node = helper.make_node("Attention", names, ["Y"], is_causal=int(causal), scale=scale)
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in zip(names, (q, k, v), strict=True)
    ]
    graph = helper.make_graph([node], "a", inputs, [helper.make_tensor_value_info("Y", TensorProto.FLOAT, q.shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feed = dict(zip(names, (q, k, v), strict=True))
    return lambda: session.run(None, feed)[0]


def numpy_scores(q: Any, k: Any, causal: bool, scale: float) -> Any:
    import numpy as np

    scores = q @ k.swapaxes(-1, -2) * np.float32(scale)
    return np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, np.float32(-np.inf)) if causal else scores


def naive_call(q: Any, k: Any, v: Any, causal: bool, scale: float, threads: int) -> Call:
    import numpy as np

    def attention() -> Any:
        scores = numpy_scores(q, k, causal, scale)
        exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True) @ v

    return attention


def scipy_call(q: Any, k: Any, v: Any, causal: bool, scale: float, threads: int) -> Call:
    from scipy.special import softmax

    return lambda: softmax(numpy_scores(q, k, causal, scale), axis=-1) @ v


def limit_call(q: Any, k: Any, v: Any, causal: bool) -> Call:
    """
    Return the two products and the exponentials alone, tile by tile in cache: what attention in NumPy cannot beat.

    No attention comes of it. Where a causal mask hides a tile, it is left out.
    """
    import numpy as np

    rows, columns = (128 if causal else 256), 512
    q, v = (x.reshape(-1, *x.shape[-2:]) for x in (q, v))
    transposed = np.ascontiguousarray(k.reshape(-1, *k.shape[-2:]).swapaxes(-1, -2))
    n_heads, n_queries, n_keys = len(q), q.shape[1], v.shape[1]
    together = max(1, min(n_heads, 2**17 // (min(rows, n_queries) * min(columns, n_keys))))

    def products_and_exponentials() -> None:
        for h, i in itertools.product(range(0, n_heads, together), range(0, n_queries, rows)):
            heads, queries = slice(h, h + together), slice(i, i + rows)
            for j in range(0, min(n_keys, i + rows) if causal else n_keys, columns):
                keys = slice(j, min(j + columns, i + rows) if causal else j + columns)
                scores = np.matmul(q[heads, queries], transposed[heads, :, keys])
                np.matmul(np.exp(scores, out=scores), v[heads, keys])

    return products_and_exponentials


CONTENDERS = {
    "attnsym": attnsym_call,
    "torch": torch_call,
    "onnxruntime": onnxruntime_call,
    "jax": jax_call,
    "scipy softmax": scipy_call,
    "naive numpy": naive_call,
}


def medians(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """
    Let the contenders take turns and return the median seconds of each, after one round that does not count.

    The order is shuffled in every round: whoever follows one that frees a gigabyte pays for fresh memory.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names, order = list(calls), random.Random(0)
    for turn in range(rounds + 1):
        order.shuffle(names)
        for name in names:
            start = CLOCK()
            calls[name]()
            if turn:
                seconds[name].append(CLOCK() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def make_calls(names: list[str], arrays: list[Any], causal: bool, scale: float, threads: int) -> dict[str, Call]:
    """Return the contenders that are installed, each checked against torch."""
    import numpy as np

    calls = {}
    want = torch_call(*arrays, causal, scale, threads)()
    for name in names:
        try:
            calls[name] = CONTENDERS[name](*arrays, causal, scale, threads)
        except ImportError:
            continue
        np.testing.assert_allclose(np.asarray(calls[name]()), want, rtol=0, atol=1e-3, err_msg=name)
    return calls


def forward(shapes: list[tuple[int, ...]], names: list[str], rounds: int, threads: int) -> None:
    others = [name for name in names if name != "torch"]
    print("\nThe limit is the time of NumPy's two products and exponentials alone, on one thread.")
    print(f"\n| (B, H, L, S, d) | causal | torch, ms | {' | '.join(others)} | attnsym, unscaled |", end="")
    print(" limit | attnsym / limit | unscaled / limit |")
    print("|---" * (len(names) + 6) + "|")
    for shape in shapes:
        *arrays, _ = draw(shape)
        scale = 1 / math.sqrt(shape[-1])
        for causal in (False, True):
            limit = {"limit": limit_call(*arrays, causal)} if threads == 1 else {}
            seconds = medians(make_calls(names, arrays, causal, scale, threads) | limit, rounds)
            ratios = [f"{seconds[n] / seconds['torch']:.2f}" if n in seconds else "–" for n in others]
            saturated = make_calls(["attnsym", "torch"], arrays, causal, UNSCALED * scale, threads)
            times = medians(saturated, rounds)
            ratios.append(f"{times['attnsym'] / times['torch']:.2f}")
            alone = seconds.get("limit", math.nan)
            ratios += [
                f"{x:.2f}" for x in (alone / seconds["torch"], seconds["attnsym"] / alone, times["attnsym"] / alone)
            ]
            cells = [str(shape), "yes" if causal else "no", f"{1e3 * seconds['torch']:.1f}", *ratios]
            print(f"| {' | '.join(cells)} |", flush=True)


def backward_calls(arrays: list[Any], causal: bool) -> dict[str, Call]:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    import attnsym

    tensors, upstream = [torch.from_numpy(x).requires_grad_() for x in arrays[:3]], torch.from_numpy(arrays[3])
    output = scaled_dot_product_attention(*tensors, is_causal=causal)
    return {
        "torch": lambda: torch.autograd.grad(output, tensors, upstream, retain_graph=True),
        "attnsym": lambda: attnsym.scaled_dot_product_attention_vjp(*arrays, is_causal=causal),
    }


def backward(shapes: list[tuple[int, ...]], rounds: int, threads: int) -> None:
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    print("\n| (B, H, L, S, d) | causal | torch backward, ms | attnsym vjp with its forward |\n|---|---|---|---|")
    for shape in shapes:
        for causal in (False, True):
            calls = backward_calls(draw(shape), causal)
            for mine, theirs in zip(calls["attnsym"](), calls["torch"](), strict=True):
                np.testing.assert_allclose(mine, theirs.numpy(), rtol=0, atol=1e-3)
            seconds = medians(calls, rounds)
            ratio = seconds["attnsym"] / seconds["torch"]
            print(f"| {shape} | {'yes' if causal else 'no'} | {1e3 * seconds['torch']:.1f} | {ratio:.2f} |", flush=True)


def memory_of(name: str, threads: int) -> None:
    """Print the growth of this process's peak resident memory in one call, after a small call to warm up (Linux)."""

    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))

    for shape in ((1, 8, 256, 256, 64), MEMORY_SHAPE):
        *arrays, _ = draw(shape)
        call = CONTENDERS[name](*arrays, False, 0.125, threads)
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        kept = call()
        grown = status("VmHWM") - before
        del kept
    print(f"{grown / 1024:.1f}")


def memory(names: list[str], threads: int) -> None:
    print(f"\n| peak extra memory at {MEMORY_SHAPE}, output included | MB |\n|---|---|")
    for name in names:
        command = [sys.executable, __file__, "--threads", str(threads), "--memory-of", name]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"| {name} | {child.stdout.strip() or 'not installed'} |", flush=True)


def describe(threads: int) -> None:
    import numpy
    import threadpoolctl
    import torch

    blas = [
        f"{x['internal_api']} {x.get('architecture')}" for x in threadpoolctl.threadpool_info() if "architecture" in x
    ]
    print(f"{threads} thread(s); numpy {numpy.__version__} ({', '.join(blas)}), torch {torch.__version__}")
    print("Ratios: time divided by torch's, medians of interleaved runs; below 1 is faster than torch.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["forward", "backward", "memory"])
    parser.add_argument("--cpu-time", action="store_true", help="count CPU time: on a busy machine, with one thread")
    parser.add_argument("--shapes", default="0,1,2,3", help="positions in the list of shapes")
    parser.add_argument("--peers", default=",".join(CONTENDERS), help="comma-separated")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cpu_time:
        if arguments.threads != 1:
            parser.error("--cpu-time adds up all threads: use it with --threads 1")
        global CLOCK
        CLOCK = time.process_time
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    if arguments.memory_of:
        memory_of(arguments.memory_of, arguments.threads)
        return
    shapes = [SHAPES[int(i)] for i in arguments.shapes.split(",")]
    names = [name for name in CONTENDERS if name in arguments.peers.split(",") or name in ("attnsym", "torch")]
    describe(arguments.threads)
    if arguments.only in (None, "forward"):
        forward(shapes, names, arguments.rounds, arguments.threads)
    if arguments.only in (None, "backward"):
        backward(shapes, arguments.rounds, arguments.threads)
    if arguments.only in (None, "memory"):
        memory(names, arguments.threads)


if __name__ == "__main__":
    main()
