"""
Speed of the audits: `python benchmarks/audit.py [gigabytes]`.

Writes a safetensors file of float16 queries and keys (64 layers per GB; 32 heads, 1024 tokens, d_k = 128) into a
temporary folder and audits it by memory map, next to what the machine can do: reading the file once, and the matrix
products alone in float32. Then the example, a function, and a watched transformer where torch is installed. Medians of
five for the short ones.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from analysis import audit_callable, audit_example, watch
from attnsym import scaled_dot_product_attention

HEADS, LENGTH, WIDTH = 32, 1024, 128
LAYER_BYTES = 2 * HEADS * LENGTH * WIDTH * 2


# in a process of its own; RssAnon leaves out the pages of the mapped file, which the system may drop
AUDIT = """
import sys, threading, time
from analysis import audit_example, audit_files
def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))
audit_example()
before, peak, done = resident(), [0], threading.Event()
def sample():
    while not done.wait(0.02):
        peak[0] = max(peak[0], resident())
thread = threading.Thread(target=sample)
thread.start()
start = time.perf_counter()
audit_files([sys.argv[1]])
seconds = time.perf_counter() - start
done.set()
thread.join()
print(seconds, peak[0], before)
"""


def write_file(path: Path, gigabytes: float) -> int:
    """Write layers of standard normal float16 queries and keys; the same random block, scaled anew per layer."""
    layers = max(1, round(gigabytes * 2**30 / LAYER_BYTES))
    header, offset = {}, 0
    for layer in range(layers):
        for role in "qk":
            span = [offset, offset + LAYER_BYTES // 2]
            header[f"layer{layer}.{role}"] = {"dtype": "F16", "shape": [1, HEADS, LENGTH, WIDTH], "data_offsets": span}
            offset = span[1]
    text = json.dumps(header).encode()
    blocks = np.random.default_rng(0).standard_normal((2, HEADS, LENGTH, WIDTH), np.float32)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for layer in range(layers):
            stream.write((blocks * np.float32(1 + layer / layers)).astype(np.float16).tobytes())
    return layers


def seconds(function: Callable[[], object], repeats: int = 1) -> float:
    """Return the median time of some calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def read_once(path: Path) -> None:
    """Read a file through, as fast as the page cache or disk gives it."""
    buffer = bytearray(2**24)
    with path.open("rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass


def products(layers: int) -> None:
    """Do the matrix products of the audit and nothing else."""
    q = np.ones((LENGTH, WIDTH), np.float32)
    out = np.empty((LENGTH, LENGTH), np.float32)
    for _ in range(layers * HEADS):
        np.matmul(q, q.T, out=out)


def main() -> None:
    """Print the table."""
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.safetensors"
        layers = write_file(path, gigabytes)
        size = path.stat().st_size / 1e9
        for what, function in (
            ("read the file once", lambda: read_once(path)),
            ("matrix products alone, float32", lambda: products(layers)),
        ):
            time_taken = seconds(function)
            print(f"{what:34s} {time_taken:8.2f} s  {size / time_taken:6.2f} GB/s")
        output = subprocess.run(
            [sys.executable, "-c", AUDIT, str(path)], check=True, capture_output=True, text=True
        ).stdout
        time_taken, resident, before = map(float, output.split())
        print(f"{'audit_files':34s} {time_taken:8.2f} s  {size / time_taken:6.2f} GB/s")
        print(f"its own memory grew by {(resident - before) / 2**10:.0f} MiB over {size:.2f} GB in {layers} layers")
    print(f"{'six-layer example':34s} {seconds(audit_example, 5):8.3f} s")
    command = [sys.executable, "-m", "analysis", "audit", "--example"]
    run = seconds(lambda: subprocess.run(command, check=True, capture_output=True), 5)
    print(f"{'attnsym audit --example, all of it':34s} {run:8.3f} s")
    print(f"{'audit_callable':34s} {seconds(lambda: audit_callable(scaled_dot_product_attention), 5):8.3f} s")
    watched()


def watched() -> None:
    """Compare a small transformer's forward pass with and without a watch."""
    try:
        import torch
    except ImportError:
        return
    for training in (True, False):
        layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).train(training)
        forward, plain, watched_times = partial(model, torch.randn(8, 128, 256)), [], []
        with torch.set_grad_enabled(training):
            for _ in range(9):
                plain.append(seconds(forward))
                with watch(model):
                    watched_times.append(seconds(forward))
        ratio = (statistics.median(watched_times) - statistics.median(plain)) / statistics.median(plain)
        print(f"watching a forward pass, {'training' if training else 'fused'}: adds {ratio:.2f} of its own time")


if __name__ == "__main__":
    main()
