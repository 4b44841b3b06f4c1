"""Where shards run: threads of this process, processes, or any `concurrent.futures.Executor` that a caller brings."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analysis.vocabulary.numbers import positive_integer, shown

ExecutorLike = Executor | str | None

_AHEAD = 3
_UNKNOWN_WIDTH = 16
_MOST_WORKERS = 1024
_UNGUARDED = 78  # exit code of a worker that would start workers of its own


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
        None is threads. Processes are spawned, never forked, which deadlocks under threads.
    workers : int, optional
        How many; default `available_cpus`. Not allowed beside an executor of the caller's, which has its own.
    """
    count = available_cpus() if workers is None else positive_integer("workers", workers, _MOST_WORKERS)
    if isinstance(executor, Executor):
        if workers is not None:
            raise ValueError("workers is a property of the executor that was given: leave one of the two out")
        _check_cluster(executor)
        yield executor
        return
    if isinstance(executor, str) and executor == "processes":
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            sys.exit(_UNGUARDED)  # a worker that runs its parent's script again: the parent says so
        pool: Executor = _Processes(count)
    elif executor is None or (isinstance(executor, str) and executor == "threads"):
        pool = _Inline() if count == 1 else ThreadPoolExecutor(count, thread_name_prefix="attnsym")
    else:
        raise ValueError(
            f"executor must be 'threads', 'processes' or a concurrent.futures.Executor: got {shown(executor)}"
        )
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Processes(ProcessPoolExecutor):
    """Workers that leave Ctrl-C to their parent from their first moment on, before they can say so themselves."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        super().__init__(count, mp_context=context, initializer=_leave_interrupts_to_the_parent)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(fn, *args, **kwargs)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process that starts inherits it
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def why_a_worker_ended(executor: Executor) -> str:
    """Return what is known of why a worker process ended without an answer."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if not isinstance(executor, ProcessPoolExecutor) or not script or not Path(script).is_file():
        return "killed, or out of memory"
    if "__main__" in Path(script).read_text(encoding="utf-8", errors="replace"):
        return "killed, or out of memory"
    return f"{script} runs again in every worker: put what it does under if __name__ == '__main__':"


def _check_cluster(executor: Executor) -> None:
    """Refuse a dask cluster whose workers lack attnsym: they could not even say so, and their tasks wait for ever."""
    client: Any = getattr(executor, "_client", None)
    if hasattr(client, "run"):
        try:
            client.run(exec, f"import {__name__}")
        except ImportError as error:
            raise ImportError(f"executor: its workers cannot import attnsym: {error}") from None


def workers_of(executor: Executor) -> int:
    """Return the number of an executor's workers, 16 where it does not say."""
    if isinstance(executor, _Inline):
        return 1
    count = getattr(executor, "_max_workers", None)
    client: Any = getattr(executor, "_client", None)  # dask's executor has its cluster's threads
    if hasattr(client, "nthreads"):
        count = sum(client.nthreads().values())
    return count if isinstance(count, int) and count > 0 else _UNKNOWN_WIDTH


def in_flight(executor: Executor) -> int:
    """Return how many tasks to hand out ahead: enough to keep all workers busy, few enough to keep memory flat."""
    return 1 if isinstance(executor, _Inline) else _AHEAD * workers_of(executor)


def packed(executor: Executor, work: Any) -> bytes | None:
    """Return work as bytes for workers elsewhere; None for this process, or where the executor must pack it itself."""
    if isinstance(executor, _Inline | ThreadPoolExecutor):
        return None
    try:
        if hasattr(executor, "_client"):  # dask's
            from distributed.protocol.pickle import dumps

            return bytes(dumps(work))
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


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
