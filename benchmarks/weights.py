"""
Speed of the audit of weights: `python benchmarks/weights.py [layers]`.

Writes a bfloat16 checkpoint of a 7B model's query and key projections into a temporary folder, 32 layers of 32 heads at
d_model = 4096 (one random layer's bytes, written once per layer: 64 MiB each, 2 GiB in all), sharded and found by its
index, and audits it in a process of its own: wall and processor time, resident memory at its peak, and the part of it
that is no page of the mapped files (which the system may drop).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

D_MODEL, HEADS, PER_SHARD = 4096, 32, 8

AUDIT = """
import resource, sys, threading, time
from analysis import audit_checkpoint, audit_weights
import numpy as np
audit_weights(np.ones((4, 4)), np.ones((4, 4)), num_heads=2)  # libraries loaded
def resident():
    rows = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(rows["RssAnon"].split()[0])
before, peak, done = resident(), [0], threading.Event()
def sample():
    while not done.wait(0.02):
        peak[0] = max(peak[0], resident())
thread = threading.Thread(target=sample)
thread.start()
wall, used = time.perf_counter(), time.process_time()
audit = audit_checkpoint(sys.argv[1])
wall, used = time.perf_counter() - wall, time.process_time() - used
done.set()
thread.join()
whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(len(audit.heads), wall, used, whole, peak[0], before)
"""


def write_checkpoint(folder: Path, layers: int) -> int:
    """Write the shards, their index and a config.json; return the bytes of the weights."""
    import ml_dtypes

    block = np.random.default_rng(0).standard_normal((D_MODEL, D_MODEL), np.float32) * np.float32(D_MODEL**-0.5)
    data = block.astype(ml_dtypes.bfloat16).tobytes()
    places: dict[str, str] = {}
    for first in range(0, layers, PER_SHARD):
        shard = f"model-{first:05d}.safetensors"
        names = [
            f"model.layers.{layer}.self_attn.{role}_proj.weight"
            for layer in range(first, min(first + PER_SHARD, layers))
            for role in "qk"
        ]
        header = {
            name: {"dtype": "BF16", "shape": [D_MODEL, D_MODEL], "data_offsets": [i * len(data), (i + 1) * len(data)]}
            for i, name in enumerate(names)
        }
        text = json.dumps(header).encode()
        with (folder / shard).open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for _ in names:
                stream.write(data)
        places |= dict.fromkeys(names, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    config = {"model_type": "llama", "num_attention_heads": HEADS, "rope_theta": 1e4}
    (folder / "config.json").write_text(json.dumps(config))
    return len(places) * len(data)


def main() -> None:
    """Print the table."""
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 32
    with tempfile.TemporaryDirectory() as folder:
        size = write_checkpoint(Path(folder), layers)
        command = [sys.executable, "-c", AUDIT, folder]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    heads, wall, used, whole, peak, before = map(float, output.split())
    print(f"{heads:.0f} heads in {layers} layers, {size / 1e9:.2f} GB of weights")
    print(f"wall time      {wall:8.2f} s")
    print(f"processor time {used:8.2f} s, {used / layers:.3f} s a layer")
    print(f"memory         {whole / 2**10:8.0f} MiB at its peak, mapped pages counted")
    print(f"its own        {peak / 2**10:8.0f} MiB, {(peak - before) / 2**10:.0f} MiB of it for the audit")


if __name__ == "__main__":
    main()
