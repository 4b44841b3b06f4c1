"""Shards computed anywhere and merged in the order of their numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import closing
from functools import partial

from analysis.measure.estimate.accumulators import Sample
from analysis.measure.run.executors import in_flight, packed, why_a_worker_ended
from analysis.measure.run.shard import Draw, Drawable, Shard, ShardResult, run_sent, run_shard, shards_of
from analysis.measure.run.store import Store
from attnsym._threads import one_blas_thread

_ATTEMPTS = 5


def run_cells(
    work: Sequence[tuple[Drawable, int]],
    *,
    draw: Draw,
    seed: int,
    keep_values: bool,
    executor: Executor,
    store: Store | None,
    advance: Callable[[int], None],
) -> Generator[Sample]:
    """Yield the sample of each (cell, replicates) in order; `advance` hears of every shard's replicates."""
    cut = partial(shards_of, draw=draw, seed=seed, keep_values=keep_values)
    stream = (shard for cell, count in work for shard in cut(cell, count))
    results = _in_order(stream, executor, store, advance)
    with one_blas_thread(), closing(results):
        for cell, count in work:
            sample: Sample | None = None
            for _ in range(-(-count // cell.shard)):
                part = next(results).sample()
                sample = part if sample is None else sample.merge(part)
            assert sample is not None
            yield sample


def _in_order(
    shards: Iterator[Shard], executor: Executor, store: Store | None, advance: Callable[[int], None]
) -> Generator[ShardResult]:
    """Yield results in the order of `shards` while later ones are computed; each is stored as soon as it is seen."""
    waiting: deque[tuple[Shard, ShardResult | Future[ShardResult]]] = deque()
    window = in_flight(executor)
    try:
        while True:
            while len(waiting) < window and (shard := next(shards, None)) is not None:
                known = store and store.get(shard.cell.digest, shard.number, shard.size, with_values=shard.keep_values)
                waiting.append((shard, known or _submit(shard, executor)))
            if not waiting:
                return
            shard, pending = waiting.popleft()
            if isinstance(pending, ShardResult):
                result = pending
            else:
                result = _outcome(shard, pending, executor)
                if store:
                    store.put(shard.cell.digest, shard.number, shard.size, result)
            advance(shard.size)
            yield result
    finally:
        for shard, pending in waiting:
            if isinstance(pending, ShardResult) or pending.cancel() or not pending.done() or pending.exception():
                continue
            if store:  # finished although nobody came to ask: a resumed study will
                store.put(shard.cell.digest, shard.number, shard.size, pending.result())


def _submit(shard: Shard, executor: Executor) -> Future[ShardResult]:
    try:
        payload = packed(executor, shard)
        return executor.submit(run_shard, shard) if payload is None else executor.submit(run_sent, payload)
    except BrokenExecutor:
        raise _dead_worker(shard, executor) from None


def _outcome(shard: Shard, future: Future[ShardResult], executor: Executor) -> ShardResult:
    for _ in range(_ATTEMPTS):
        try:
            return future.result()
        except CancelledError:  # a cluster lost the worker that held it
            future = _submit(shard, executor)
        except BrokenExecutor:
            break
        except Exception as error:
            if type(error).__name__ != "KilledWorker":  # dask's, for a task that several workers died of
                raise
            break
    raise _dead_worker(shard, executor)


def _dead_worker(shard: Shard, executor: Executor) -> OSError:
    return OSError(
        f"a worker process ended without an answer while it drew {shard.cell.name!r} at {shard.cell.where} "
        f"({why_a_worker_ended(executor)})"
    )
