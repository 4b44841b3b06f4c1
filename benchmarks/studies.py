"""
Time to a relative standard error of 1e-3 on E[entropy], against the loop, vectorised NumPy and vectorised torch.

All methods draw replicates of one law, so each needs the same number of them, (sd / mean / 1e-3)²; what differs is the
time of one. It is the median over interleaved rounds of whole calls, `run_study` with everything that it does. Run with

    python benchmarks/studies.py            # --quick for one short round

The targets that the ratios are held to are in `TARGETS`; the exit status is 1 if one is missed. A ratio depends on the
processor; beside it stands the share of the limit, which depends on it less: the time of the random numbers and the
exponentials alone, drawn and taken in the same blocks by one worker, over the time of the whole study.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from analysis import run_study
from analysis.measure.draw.cell import StudyCell
from analysis.measure.draw.chunks import sizes
from analysis.measure.draw.normals import NormalBlock
from analysis.measure.settings import Asked, read_settings
from attnsym import entropy, softmax

CELLS = [(512, 1024), (64, 128), (512, 10)]
SCALES = {"sqrt": lambda d_k: 1 / math.sqrt(d_k), "unscaled": lambda d_k: 1.0}
RSE = 1e-3
# (d_k, n_keys, ours, against) -> least ratio
TARGETS = {
    (512, 1024, "single", "loop"): 800,
    (512, 1024, "single", "torch"): 400,
    (64, 128, "single", "torch"): 40,
    (512, 10, "single", "torch"): 100,
    (512, 1024, "double", "loop"): 350,
    (512, 1024, "double", "double, 1 worker"): 1.7,
    (512, 1024, "single", "single, 1 worker"): 1.7,
}

Run = Callable[[int], object]


def loop(d_k: int, n_keys: int, scale: float) -> Run:
    """One replicate at a time, as a notebook has it."""
    rng = np.random.default_rng(0)

    def run(replicates: int) -> object:
        values = []
        for _ in range(replicates):
            query, key = rng.standard_normal(d_k), rng.standard_normal((n_keys, d_k))
            scores = key @ query * scale
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            values.append(-np.sum(weights * np.log(np.maximum(weights, 1e-300))))
        return np.mean(values)

    return run


def vectorised(d_k: int, n_keys: int, scale: float) -> Run:
    """Batches of 8 million float32 normals."""
    rng = np.random.default_rng(0)
    batch = max(1, (1 << 23) // (n_keys * d_k))

    def run(replicates: int) -> object:
        values = []
        for done in range(0, replicates, batch):
            b = min(batch, replicates - done)
            query = rng.standard_normal((b, d_k, 1), dtype=np.float32)
            key = rng.standard_normal((b, n_keys, d_k), dtype=np.float32)
            values.append(entropy(softmax((key @ query)[..., 0] * np.float32(scale))))
        return np.concatenate(values).mean()

    return run


def torch_vectorised(d_k: int, n_keys: int, scale: float) -> Run:
    """The same batches in torch, with all its threads."""
    import torch

    torch.manual_seed(0)
    batch = max(1, (1 << 23) // (n_keys * d_k))

    def run(replicates: int) -> object:
        values = []
        for done in range(0, replicates, batch):
            b = min(batch, replicates - done)
            scores = torch.bmm(torch.randn(b, n_keys, d_k), torch.randn(b, d_k, 1))[..., 0] * scale
            values.append(torch.special.entr(torch.softmax(scores, dim=-1)).sum(dim=-1))
        return torch.cat(values).mean()

    return run


def ours(d_k: int, n_keys: int, scale: str, precision: str, workers: int | None) -> Run:
    """The conditional sampler, through the public function."""

    def run(replicates: int) -> object:
        return run_study(
            "entropy", d_k=d_k, n_keys=n_keys, scale=scale, replicates=replicates, precision=precision, workers=workers
        )

    return run


def limit(d_k: int, n_keys: int, cell: StudyCell) -> Run:
    """Random numbers and exponentials, without which no replicate is had."""
    rng = np.random.default_rng(0)
    normals, exponentials = NormalBlock(n_keys, cell.chunk, cell.dtype), np.empty((n_keys, cell.chunk), cell.dtype)

    def run(replicates: int) -> object:
        for _ in sizes(replicates, cell.chunk):
            rng.chisquare(d_k, cell.chunk)  # the squared lengths of the queries
            np.exp(normals.fill(rng), out=exponentials)
        return exponentials

    return run


def methods(d_k: int, n_keys: int, scale: str) -> dict[str, Run]:
    """All contestants; torch only where it is installed."""
    factor = SCALES[scale](d_k)
    found = {"loop": loop(d_k, n_keys, factor), "NumPy": vectorised(d_k, n_keys, factor)}
    try:
        found["torch"] = torch_vectorised(d_k, n_keys, factor)
    except ImportError:
        print("torch is not installed: its column is left out", file=sys.stderr)
    for precision in ("double", "single"):
        cell = read_settings("entropy", Asked(d_k, n_keys, scale, precision=precision)).cells[0]
        found[f"{precision}, limit"] = limit(d_k, n_keys, cell)
        found[f"{precision}, 1 worker"] = ours(d_k, n_keys, scale, precision, 1)
        found[precision] = ours(d_k, n_keys, scale, precision, None)
    return found


def sized(run: Run, seconds: float) -> int:
    """Return the replicates that take about that long."""
    replicates = 16
    run(replicates)  # imports and page faults are nobody's speed
    while True:
        start = time.perf_counter()
        run(replicates)
        taken = time.perf_counter() - start
        if taken > seconds / 4:
            return max(1, int(replicates * seconds / taken))
        replicates *= 4


def measure(d_k: int, n_keys: int, scale: str, rounds: int, seconds: float) -> dict[str, float]:
    """Return the seconds per replicate of each method: medians of interleaved rounds."""
    runs = methods(d_k, n_keys, scale)
    sizes = {name: sized(run, seconds) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run(sizes[name])
            times[name].append((time.perf_counter() - start) / sizes[name])
    return {name: statistics.median(values) for name, values in times.items()}


def report(d_k: int, n_keys: int, scale: str, found: dict[str, float]) -> bool:
    """Print one cell; whether its targets are met."""
    row = run_study("entropy", d_k=d_k, n_keys=n_keys, scale=scale, replicates=20_000).rows[0]
    needed = row.replicates * (row.standard_error / row.estimate / RSE) ** 2
    print(f"\n(d_k, n_keys) = ({d_k}, {n_keys}), {scale}: {needed:,.0f} replicates")
    for name, taken in found.items():
        print(f"  {name:18} {taken * 1e6:10.3f} µs each {taken * needed:12.4g} s   x {found['loop'] / taken:8.1f}")
    for precision in ("double", "single"):
        share = found[f"{precision}, limit"] / found[f"{precision}, 1 worker"]
        print(f"  {precision}, 1 worker: {share:.0%} of the limit")
    met = True
    for (d, n, mine, peer), least in TARGETS.items():
        if (d, n) == (d_k, n_keys) and peer in found:
            ratio = found[peer] / found[mine]
            met &= ratio >= least
            print(f"  {mine} against {peer}: {ratio:.1f}, target {least}{'' if ratio >= least else '  MISSED'}")
    return met


def main() -> int:
    """Measure all cells."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of a tenth of a second")
    quick = parser.parse_args().quick
    rounds, seconds = (1, 0.1) if quick else (7, 0.4)
    met = [
        report(d_k, n_keys, scale, measure(d_k, n_keys, scale, rounds, seconds))
        for d_k, n_keys in CELLS
        for scale in SCALES
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
