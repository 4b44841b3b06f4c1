"""Where shards run: threads of this process, processes, or any `concurrent.futures.Executor` that a caller brings."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ExecutorLike = Executor | str | None

_AHEAD = 3
_UNKNOWN_WIDTH = 16


class _Inline(Executor):
    """One worker: the caller's own thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def open_executor(executor: ExecutorLike, workers: int | None) -> Iterator[Executor]:
    """
    Give an executor, and close it afterwards unless the caller brought it.

    Parameters
    ----------
    executor : None, {"threads", "processes"} or concurrent.futures.Executor
        None is threads. Processes are started by forkserver or spawn, never by fork, which deadlocks under threads.
    workers : int, optional
        How many; default `available_cpus`. Not allowed beside an executor of the caller's, which has its own.
    """
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers must be a whole number of at least 1: got {workers!r}")
    if isinstance(executor, Executor):
        if workers is not None:
            raise ValueError("workers is a property of the executor that was given: leave one of the two out")
        yield executor
        return
    count = workers or available_cpus()
    if executor == "processes":
        pool: Executor = _process_pool(count)
    elif executor is None or executor == "threads":
        pool = _Inline() if count == 1 else ThreadPoolExecutor(count, thread_name_prefix="attnsym")
    else:
        raise ValueError(f"executor must be 'threads', 'processes' or a concurrent.futures.Executor: got {executor!r}")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _process_pool(count: int) -> ProcessPoolExecutor:
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    return ProcessPoolExecutor(count, mp_context=context, initializer=_leave_interrupts_to_the_parent)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def in_flight(executor: Executor) -> int:
    """Return how many tasks to hand out ahead: enough to keep all workers busy, few enough to keep memory flat."""
    if isinstance(executor, _Inline):
        return 1
    count = getattr(executor, "_max_workers", None)
    client: Any = getattr(executor, "_client", None)  # dask's executor has its cluster's threads
    if hasattr(client, "nthreads"):
        count = sum(client.nthreads().values())
    return _AHEAD * (count if isinstance(count, int) and count > 0 else _UNKNOWN_WIDTH)


def check_sendable(executor: Executor, argument: str, function: Any) -> None:
    """Refuse, by name, a callable that another process cannot import."""
    if not isinstance(executor, ProcessPoolExecutor) or not callable(function) or not hasattr(function, "__qualname__"):
        return
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise ValueError(
            f"{argument} {function.__qualname__!r} cannot be sent to another process: define it at the top of a "
            "module, or use threads"
        )


def available_cpus() -> int:
    """Return the CPUs that this process may use: its affinity, cut to the quota of its container."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(affinity, _container_quota())))


def _container_quota(root: Path = Path("/sys/fs/cgroup")) -> float:
    """Return the CPU quota of the control group, version 2 or 1, as a number of CPUs; infinite where there is none."""
    try:
        if (root / "cpu.max").exists():
            quota, period = (root / "cpu.max").read_text(encoding="ascii").split()[:2]
        else:
            quota, period = (
                (root / "cpu" / f"cpu.cfs_{part}_us").read_text(encoding="ascii").strip()
                for part in ("quota", "period")
            )
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (OSError, ValueError):
        return math.inf
