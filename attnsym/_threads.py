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


class _Holds:
    """Which BLAS libraries are held to one thread: by how many users, and to what count each returns."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users: dict[tuple[str, int], int] = {}
        self.threads: dict[tuple[str, int], int] = {}


_holds = _Holds()


def available_workers() -> int:
    """
    Return how many threads BLAS would use now, were nobody inside `one_blas_thread`.

    A caller who holds BLAS to one thread (``OPENBLAS_NUM_THREADS=1``, threadpoolctl, a worker process) thereby holds
    attention to one.
    """
    with _holds.lock:
        counts = [_holds.threads.get(_holder(library), library.num_threads) for library in _blas().lib_controllers]
    known = [count for count in counts if count]
    return max(known) if known else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def useful_workers(n_scores: int) -> int:
    """Return how many threads to use on this many scores: none that would have less to do than its start costs."""
    return max(1, min(available_workers(), n_scores // _SCORES_PER_WORKER))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """
    Hold BLAS to one thread while any caller is inside, and give back the count of before when the last one leaves.

    Callers enter and leave in any order and from any thread. Every thread that calls BLAS enters by itself, since the
    count of a BLAS on OpenMP belongs to the thread; that of any other belongs to the process. A count that somebody
    else has changed meanwhile is left as it is.
    """
    held: list[tuple[Any, tuple[str, int]]] = []
    with _holds.lock:
        for library in _blas().lib_controllers:
            threads, holder = library.num_threads, _holder(library)
            if threads:
                _holds.users[holder] = _holds.users.get(holder, 0) + 1
                _holds.threads.setdefault(holder, threads)
                _set_threads(library, 1)
                held.append((library, holder))
    try:
        yield
    finally:
        with _holds.lock:
            for library, holder in held:
                _holds.users[holder] -= 1
                if not _holds.users[holder]:
                    del _holds.users[holder]
                    threads = _holds.threads.pop(holder)
                    if library.num_threads == 1:
                        _set_threads(library, threads)


def _holder(library: Any) -> tuple[str, int]:
    """Return whose count it is: the process's, or under OpenMP this thread's."""
    own = getattr(library, "threading_layer", None) == "openmp"
    return library.filepath, threading.get_ident() if own else 0


def _set_threads(library: Any, threads: int) -> None:
    """Set the count itself: newer versions of threadpoolctl listen only to the first thread that ever set one."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(threads)


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
            with one_blas_thread(), np.errstate(all="ignore"):
                run = new_worker()
                while not failures and (task := next(next_task)) < n_tasks:
                    run(task)
        except BaseException as error:
            failures.append(error)

    helpers = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, n_tasks) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]
