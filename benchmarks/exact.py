"""
Time of the exact predictions, beside the time that Monte Carlo would need for a relative standard error of 1e-3.

    python benchmarks/exact.py
    python benchmarks/exact.py --json

Exact times are medians, every cache emptied before each run. Monte Carlo times are extrapolated: the time of a draw
is measured over some of them, the number of replicates that 1e-3 needs is (σ/μ/1e-3)² with the deviation and mean of
the quantity from draws of its exact conditional law, and the two are multiplied. The plain loop draws one query and its
keys per step; torch draws batches that fill about 64 MB.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import analysis
from analysis.predict import average as exact_average
from analysis.predict import maximum as exact_maximum
from analysis.predict.quadrature import gaussian_softmax

SIGMAS = (1e-3, 1.0, 22.6, 200.0)
D_K, N_KEYS = 512, 1024
RELATIVE_ERROR = 1e-3
GRID_D_K = np.unique(np.round(np.geomspace(1, 4096, 57)).astype(int))
GRID_N_KEYS = np.unique(np.round(np.geomspace(2, 65536, 20)).astype(int))


def empty_caches() -> None:
    for cached in (
        exact_average.chi_rule,
        exact_average.gaussian_attention,
        exact_average.gaussian_attention_max_weight,
        exact_maximum.legendre,
    ):
        cached.cache_clear()


def seconds(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        empty_caches()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def exact_times() -> dict[str, float]:
    """Five quantities come from one table: logsumexp, entropy, power sums, trace and squared norm of the Jacobian."""
    n = np.array([float(N_KEYS)])
    times = {
        f"five quantities, sigma {s:g}, n_keys {N_KEYS}": seconds(lambda s=s: gaussian_softmax(s, n), 31)
        for s in SIGMAS
    }
    for scale in ("sqrt", "unscaled"):
        cell = {"d_k": D_K, "scale": scale}
        label = f"d_k {D_K}, n_keys {N_KEYS}, {scale}"
        times[f"five quantities, {label}"] = seconds(lambda c=cell: analysis.expected_entropy(N_KEYS, **c), 9)
        times[f"max weight, {label}"] = seconds(lambda c=cell: analysis.expected_max_weight(N_KEYS, **c), 5)
        times[f"second route, entropy, {label}"] = seconds(
            lambda c=cell: analysis.expected_entropy(N_KEYS, **c, method="direct"), 1
        )
    times["scale_for entropy_fraction, d_k 64"] = seconds(
        lambda: analysis.scale_for("entropy_fraction", 0.5, N_KEYS, d_k=64), 5
    )
    times[f"grid of {GRID_D_K.size} d_k x {GRID_N_KEYS.size} n_keys x 2 scales"] = seconds(
        lambda: [
            analysis.expected_entropy(GRID_N_KEYS, d_k=GRID_D_K[:, None], scale=scale) for scale in ("sqrt", "unscaled")
        ],
        1,
    )
    return times


def quantities(scores: np.ndarray) -> dict[str, np.ndarray]:
    """Entropy and tr J of each row, formed without cancellation from the weights beside the largest."""
    x = scores - scores.max(-1, keepdims=True)
    e = np.exp(x)
    total = e.sum(-1)
    p = e / total[:, None]
    largest = np.argmax(x, axis=-1)[:, None]
    others = p.copy()
    np.put_along_axis(others, largest, 0.0, -1)
    rest = others.sum(-1)
    trace = rest * (2 - rest) - np.einsum("ij,ij->i", others, others)
    return {"entropy": np.log(total) - np.einsum("ij,ij->i", p, x), "jacobian_trace": trace}


def coefficients_of_variation(scale: float, replicates: int = 40_000, batch: int = 4000) -> dict[str, float]:
    """σ/μ of each quantity from the exact conditional law of the scores, z ~ N(0, (scale‖q‖)²)."""
    rng = np.random.default_rng(0)
    parts: dict[str, list[np.ndarray]] = {"entropy": [], "jacobian_trace": []}
    for _ in range(replicates // batch):
        sigma = scale * np.sqrt(rng.chisquare(D_K, (batch, 1)))
        for name, values in quantities(sigma * rng.standard_normal((batch, N_KEYS))).items():
            parts[name].append(values)
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    return {name: float(values.std() / values.mean()) for name, values in joined.items()}


def numpy_replicate_seconds(scale: float, steps: int = 150) -> float:
    rng = np.random.default_rng(1)
    start = time.perf_counter()
    for _ in range(steps):
        query, key = rng.standard_normal(D_K), rng.standard_normal((N_KEYS, D_K))
        scores = scale * (key @ query)
        p = np.exp(scores - scores.max())
        p /= p.sum()
        -np.sum(p * np.log(np.where(p > 0, p, 1.0))), 1 - np.sum(p**2)
    return (time.perf_counter() - start) / steps


def torch_replicate_seconds(scale: float, batches: int = 12) -> float | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    torch.manual_seed(1)
    batch = max(1, 2**26 // (4 * D_K * N_KEYS))
    start = time.perf_counter()
    with torch.inference_mode():
        for _ in range(batches):
            query, key = torch.randn(batch, 1, D_K), torch.randn(batch, N_KEYS, D_K)
            scores = scale * (query @ key.transpose(1, 2))[:, 0]
            log_p = torch.log_softmax(scores, dim=-1)
            p = log_p.exp()
            -(p * log_p).sum(-1), 1 - (p**2).sum(-1)
    return (time.perf_counter() - start) / (batches * batch)


def monte_carlo() -> list[dict[str, Any]]:
    rows = []
    for name, scale in (("sqrt", 1 / math.sqrt(D_K)), ("unscaled", 1.0)):
        per_replicate = {"NumPy loop": numpy_replicate_seconds(scale), "torch": torch_replicate_seconds(scale)}
        for quantity, variation in coefficients_of_variation(scale).items():
            function = getattr(analysis, f"expected_{quantity}")
            exact = seconds(lambda f=function, s=name: f(N_KEYS, d_k=D_K, scale=s), 5)
            needed = max(math.ceil((variation / RELATIVE_ERROR) ** 2), 1)
            for peer, each in per_replicate.items():
                if each is not None:
                    rows.append(
                        {
                            "quantity": quantity, "scale": name, "peer": peer, "replicates_for_1e-3": needed,
                            "seconds_per_replicate": each, "extrapolated_seconds": needed * each,
                            "exact_seconds": exact,
                        }
                    )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--json", action="store_true", help="print JSON")
    as_json = parser.parse_args().json
    times, rows = exact_times(), monte_carlo()
    if as_json:
        print(json.dumps({"exact_seconds": times, "monte_carlo": rows}, indent=2))
        return
    for label, value in times.items():
        print(f"{label:60s} {value * 1e3:10.2f} ms")
    print(f"\nMonte Carlo to 1e-3 at d_k {D_K}, n_keys {N_KEYS}, extrapolated from the time of a replicate:")
    for row in rows:
        print(
            f"{row['quantity']:15s} {row['scale']:9s} {row['peer']:11s} {row['replicates_for_1e-3']:9d} replicates x "
            f"{row['seconds_per_replicate'] * 1e3:6.2f} ms = {row['extrapolated_seconds']:9.1f} s;  exact "
            f"{row['exact_seconds'] * 1e3:6.1f} ms ({row['extrapolated_seconds'] / row['exact_seconds']:.3g} to 1)"
        )


if __name__ == "__main__":
    main()
