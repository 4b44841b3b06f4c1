"""Threads, processes and foreign executors: how many, how they start, and what happens when one dies."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from analysis import run_study
from analysis.measure.run.executors import _container_quota, available_cpus, in_flight, open_executor
from attnsym import _threads

ROOT = Path(__file__).parent.parent.parent
STUDY = {"d_k": 8, "n_keys": 64, "replicates": 70_000, "seed": 2}  # 2 shards


def blas_threads() -> set[int]:
    """NumPy's, which is what the core calls."""
    return {library["num_threads"] for library in threadpool_info() if "numpy" in library["filepath"]}


def first_component(query, key, scale):
    return query[:, 0, 0] * scale


def dies(query, key, scale):
    os.kill(os.getpid(), signal.SIGKILL)


def fails(query, key, scale):
    raise ValueError("the quantity's own trouble")


def test_processes_give_the_bits_of_threads():
    processes = run_study("entropy", **STUDY, workers=2, executor="processes")
    assert processes == run_study("entropy", **STUDY, workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_any_process_pool_gives_the_same_bits(workers, method):
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        found = run_study(first_component, d_k=8, n_keys=3, replicates=50_000, executor=pool)
        assert pool.submit(os.getpid).result(timeout=60), "the caller's pool is left open"
    assert found == run_study(first_component, d_k=8, n_keys=3, replicates=50_000, workers=1)


def test_a_worker_that_dies_is_reported_and_what_was_done_is_kept(tmp_path):
    with pytest.raises(OSError, match=r"a worker process ended without an answer while it drew 'dies' at d_k=8"):
        run_study(dies, d_k=8, n_keys=1, replicates=10, workers=1, executor="processes", store=tmp_path / "s.db")


def test_errors_of_a_worker_arrive_as_they_are():
    with pytest.raises(ValueError, match="the quantity's own trouble"):
        run_study(fails, d_k=8, n_keys=1, replicates=10, workers=2)


def test_what_cannot_travel_is_refused_by_name():
    with pytest.raises(ValueError, match=r"quantity .*<lambda>.* cannot be sent to another process"):
        run_study(lambda q, k, s: q[:, 0, 0], d_k=2, n_keys=1, replicates=10, executor="processes")


class LosesTheFirst(Executor):
    """A cluster that loses each task once."""

    def __init__(self):
        self.lost = 0

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        if self.lost % 2 == 0:
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_result(fn(*args, **kwargs))
        self.lost += 1
        return future


def test_lost_tasks_are_handed_out_again():
    executor = LosesTheFirst()
    assert run_study("entropy", **STUDY, executor=executor) == run_study("entropy", **STUDY, workers=1)
    assert executor.lost > 2


class LosesAll(Executor):
    """A cluster without workers."""

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        future.set_exception(CancelledError())
        return future


def test_a_lost_cluster_is_reported():
    with pytest.raises(OSError, match="ended without an answer"):
        run_study("entropy", **STUDY, executor=LosesAll())


def test_blas_is_held_to_one_thread_while_shards_run_and_restored():
    before, inside = blas_threads(), set()

    def spy(query, key, scale):
        inside.update(blas_threads())
        return query[:, 0, 0]

    run_study(spy, d_k=2, n_keys=1, replicates=200_000, workers=2)
    assert inside == {1}
    assert blas_threads() == before


@pytest.mark.parametrize("first", ["core", "study"])
def test_core_and_study_share_one_guard(first):
    """Entered one after the other and left in the order of entering, from two threads that both stay alive."""
    core_inside, study_inside, leave = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def call_core():
        def new_worker():
            return lambda task: (core_inside.set(), (study_inside if first == "core" else leave).wait(20))

        if first == "study":
            study_inside.wait(20)
        _threads.for_each(1, new_worker, 1)
        core_left.set()
        leave.wait(20)

    def stay(query, key, scale):
        study_inside.set()
        (core_left if first == "core" else core_inside).wait(20)
        seen.append(blas_threads())
        return query[:, 0, 0]

    core_left = threading.Event()
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        caller = threading.Thread(target=call_core)
        caller.start()
        if first == "core":
            core_inside.wait(20)
        run_study(stay, d_k=2, n_keys=1, replicates=10, workers=1)
        if first == "study":
            seen.append(blas_threads())
        leave.set()
        caller.join(20)
        assert all(counts == {1} for counts in seen)
        assert blas_threads() == before


def test_a_shard_that_outlives_its_study_does_not_keep_blas():
    def fail(query, key, scale):
        time.sleep(0.01)
        raise ValueError("stop")

    before = blas_threads()
    for _ in range(30):
        with pytest.raises(ValueError, match="stop"):
            run_study(fail, d_k=8, n_keys=1, replicates=10, workers=2)
        assert blas_threads() == before


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({"cpu.max": "nonsense"}, math.inf),
        ({}, math.inf),
    ],
)
def test_container_quotas_are_read(tmp_path, files, cpus):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert _container_quota(tmp_path) == cpus


def test_workers_default_to_what_the_process_may_use(monkeypatch):
    monkeypatch.setattr("analysis.measure.run.executors._container_quota", lambda: 1.5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert available_cpus() == 2
    monkeypatch.setattr("analysis.measure.run.executors._container_quota", lambda: math.inf)
    assert available_cpus() == 64


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_workers_are_whole_numbers(workers):
    with pytest.raises(ValueError, match="workers must be a whole number of at least 1"):
        run_study("entropy", **STUDY, workers=workers)


def test_executors_are_named_or_brought():
    with pytest.raises(ValueError, match="executor must be 'threads', 'processes' or a"):
        run_study("entropy", **STUDY, executor="dask")
    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError, match="leave one of the two out"):
        run_study("entropy", **STUDY, executor=pool, workers=2)


def test_processes_are_never_forked():
    with open_executor("processes", 1) as pool:
        assert isinstance(pool, ProcessPoolExecutor)
        assert pool._mp_context.get_start_method() in ("forkserver", "spawn")


def test_tasks_in_flight_are_bounded():
    with open_executor(None, 1) as inline, open_executor(None, 4) as threads:
        assert in_flight(inline) == 1
        assert in_flight(threads) == 12
    assert in_flight(LosesAll()) == 48


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_a_real_interrupt_keeps_what_is_done(tmp_path, executor):
    store = tmp_path / "s.db"
    command = [
        sys.executable,
        "-m",
        "analysis",
        "study",
        "entropy",
        "--d-k",
        "16",
        "--n-keys",
        "256",
        "--scale",
        "sqrt",
    ]
    command += ["--replicates", "4000000", "--store", str(store), "--workers", "2"]
    command += ["--processes"] if executor == "processes" else []
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True)
    limit = time.monotonic() + 60
    while not (store.exists() and store.stat().st_size > 20_000) and time.monotonic() < limit:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.count("\n") == 1, errors
    assert "run the same study with that store again to resume" in errors


def test_memory_is_flat_in_the_replicates():
    import tracemalloc

    def peak(replicates, statistic):
        tracemalloc.start()
        run_study("score", d_k=4, scale="sqrt", replicates=replicates, statistic=statistic, workers=1)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(10_000, "mean")
    assert peak(4_000_000, "mean") < 1.2 * peak(400_000, "mean")
    assert peak(4_000_000, "median") < 1.5 * peak(1_000_000, "median")


def test_generators_are_no_seeds():
    with pytest.raises(ValueError, match="seed must be"):
        run_study("entropy", **{**STUDY, "seed": np.random.default_rng(0)})
