"""Worker threads for NumPy code that calls BLAS: one BLAS thread in each, as many workers as BLAS had threads."""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_SCORES_PER_WORKER = 1 << 18  # about half a millisecond


@functools.cache
def _blas() -> Any:
    """Return threadpoolctl's view of NumPy's BLAS; finding the libraries takes a millisecond, so once."""
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().select(user_api="blas")
    numpys = [x.filepath for x in libraries.lib_controllers if "numpy" in os.path.basename(os.path.dirname(x.filepath))]
    return libraries.select(filepath=numpys) if numpys else libraries


def available_workers() -> int:
    """
    Return how many threads BLAS would use now.

    A caller who holds BLAS to one thread (``OPENBLAS_NUM_THREADS=1``, threadpoolctl, a worker process) thereby holds
    attention to one.
    """
    with _limit.lock:
        if _limit.users:
            return _limit.threads
    counts = [x.num_threads for x in _blas().lib_controllers if x.num_threads]
    return max(counts) if counts else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def useful_workers(n_scores: int) -> int:
    """Return how many threads to use on this many scores: none that would have less to do than its start costs."""
    return max(1, min(available_workers(), n_scores // _SCORES_PER_WORKER))


class _Limit:
    """BLAS's thread count is global to the process: the first user lowers it, the last one restores it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.threads = 1
        self.restore: Any = None


_limit = _Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread while any caller is inside."""
    threads = available_workers()
    with _limit.lock:
        _limit.users += 1
        if _limit.users == 1:
            _limit.threads = threads
            _limit.restore = _blas().limit(limits=1)
    try:
        yield
    finally:
        with _limit.lock:
            _limit.users -= 1
            if _limit.users == 0:
                _limit.restore.restore_original_limits()


def for_each(n_tasks: int, new_worker: Callable[[], Callable[[int], None]], workers: int) -> None:
    """
    Run tasks 0 … n_tasks − 1, started in that order, on `workers` threads, the calling one among them.

    `new_worker` makes a worker's own function of the task number, with its own buffers. NumPy's error state is set
    within each thread, where ±inf and NaN are the tasks' business. The first exception of a worker is raised here.
    """
    next_task = itertools.count()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run = new_worker()
            with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
                while not failures and (task := next(next_task)) < n_tasks:
                    run(task)
        except BaseException as error:
            failures.append(error)

    with one_blas_thread():
        helpers = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, n_tasks) - 1)]
        for helper in helpers:
            helper.start()
        work()
        for helper in helpers:
            helper.join()
    if failures:
        raise failures[0]
