"""Monte Carlo studies of attention scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from analysis.measure.draw import samplers
from analysis.measure.pilot import check_targets, first_pilot, replicates_for
from analysis.measure.result import Study, StudyRow
from analysis.measure.rows import row_of
from analysis.measure.run.effort import check_effort, check_memory
from analysis.measure.run.executors import ExecutorLike, check_sendable, open_executor, workers_of
from analysis.measure.run.progress import progress_bar
from analysis.measure.run.shards import run_cells
from analysis.measure.run.store import Store
from analysis.measure.settings import Asked, Settings, read_settings
from analysis.vocabulary.names import (
    NormalizerName,
    NormName,
    PrecisionName,
    QuantityName,
    SamplerName,
    ScoreName,
    StatisticName,
)
from attnsym._threads import one_blas_thread

__all__ = ["Study", "StudyInterrupted", "StudyRow", "run_study"]


class StudyInterrupted(KeyboardInterrupt):
    """
    Ctrl-C during a study: what is done is kept, and the message says how to resume.

    Attributes
    ----------
    study : Study
        The rows of the cells that were finished.
    """

    def __init__(self, message: str, study: Study) -> None:
        super().__init__(message)
        self.study = study


@np.errstate(all="ignore")  # a study checks that its numbers are finite, whatever its caller asks of NumPy
def run_study(
    quantity: QuantityName | Callable[..., Any],
    *,
    d_k: int | Sequence[int],
    n_keys: int | Sequence[int] | None = None,
    scale: Any = ("sqrt", "unscaled"),
    law: Any = "normal",
    alignment: float = 0.0,
    key_correlation: float = 0.0,
    score: ScoreName | Callable[..., Any] = "dot",
    softcap: float | None = None,
    is_causal: bool = False,
    sink: float | None = None,
    bias: str | ArrayLike | None = None,
    normalizer: NormalizerName = "softmax",
    normalizer_bias: float | None = None,
    qk_norm: NormName | None = None,
    statistic: StatisticName | float | Sequence[StatisticName | float] = "mean",
    replicates: int = 100_000,
    target_rse: float | None = None,
    max_replicates: int | None = None,
    confidence_level: float = 0.95,
    sampler: SamplerName = "auto",
    precision: PrecisionName = "double",
    seed: int = 0,
    name: str | None = None,
    workers: int | None = None,
    executor: ExecutorLike = None,
    store: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Study:
    """
    Measure a quantity of random attention over a grid of d_k, n_keys and scale.

    Parameters
    ----------
    quantity : str or callable
        ``"score"`` (one per replicate), ``"entropy"`` (nats), ``"entropy_fraction"`` (of log n_keys),
        ``"effective_keys"`` (e^entropy), ``"logsumexp"``, ``"power_sum_2"``, ``"power_sum_3"``, ``"jacobian_trace"``
        (tr J, J = diag(p) − p pᵀ), ``"jacobian_norm"`` (‖J‖_F), ``"jacobian_frobenius_squared"``, ``"dead_row"`` (1
        where tr J < 1e-3), ``"max_weight"``, ``"score_gradient_norm"`` (‖J g‖, g ~ N(0, I)),
        ``"query_gradient_norm"`` (‖∂(g·p)/∂q‖ = scale·‖Kᵀ J g‖) and ``"query_gradient_squared"``; ``"score_variance"``
        is the variance of ``"score"``. ``"key_weight"`` is the weight of key 0, ``"sink_weight"`` that of a sink,
        ``"row_sum"`` the sum of sigmoid or ReLU weights (``"row_sum_variance"`` its variance). Or a callable
        (query, key, scale) -> values that receives query (replicates, 1, d_k), key (replicates, n_keys, d_k) and the
        scale as a number, and returns (replicates,).
    d_k, n_keys : int or sequence of int
        The grid. `n_keys` may be left out for ``"score"``, where it matters only to a scale that depends on it.
    scale : str, float, callable or a sequence of them
        ``"sqrt"``, ``"unscaled"``, a number, an expression in d_k and n_keys, or a callable (d_k, n_keys) -> number.
    law : str, frozen scipy.stats distribution, pair or callable
        Of the independent components of query and key; a pair is (query, key). A callable (rng, d_k, n_keys) ->
        (query, key) draws one replicate: query (d_k,) or (n_queries, d_k), key (n_keys, d_k).
    alignment, key_correlation : float
        Componentwise correlation of the query with each key (a) and of the keys with one another (ρ). Both are
        marginal, hence n keys need ρ ≥ (n a² − 1)/(n − 1); ρ = a² makes the keys independent given q. They are linear
        mixtures: means, variances and correlations are as asked, the law itself is kept only for ``"normal"``.
    score : {"dot", "cosine"} or callable
        The score function of the core.
    softcap : float, optional
        c in c·tanh(score / c). The Jacobian is that of softmax, the query's gradient goes through the cap.
    is_causal : bool
        One replicate then draws as many queries as keys, and its value is the mean over all rows, of which row i sees
        keys 0 … i.
    sink : float, optional
        A logit in the denominator only; 0 is softmax-off-by-one. Entropy and log Σ exp count it; power sums, Jacobian
        and the largest weight are those of the keys.
    bias : "alibi:SLOPE" or array_like of shape (n_keys,), optional
        Added to the scores, after a soft-cap: -SLOPE times the number of the key, or one number a key.
    normalizer : {"softmax", "sigmoid", "relu"}
        Other than softmax for ``"row_sum"``, ``"key_weight"``, ``"max_weight"``, power sums and gradients by the query.
    normalizer_bias : float, optional
        As in the core: -log n_keys for the sigmoid and 0 for ReLU if left out.
    qk_norm : {"l2", "rms"}, optional
        Norm of query and keys before their product; gains are part of `scale`. A query's gradient goes through it.
    statistic : str, float or a sequence of them
        ``"mean"``, ``"variance"`` (divisor n − 1), ``"rms"``, ``"median"``, or a quantile as a number in (0, 1), all
        of the same replicates.
    replicates : int
        Independent draws per cell: each has a query and keys of its own, since scores that share them depend on
        one another.
    target_rse : float, optional
        Relative standard error to reach: a pilot, then discarded, fixes the number of replicates of each cell.
    max_replicates : int, optional
        Cap on what `target_rse` asks for.
    confidence_level : float
        Of the intervals.
    sampler : {"auto", "direct", "conditional"}
        ``"direct"`` draws vectors and calls the attention core. ``"conditional"`` draws ‖q‖ and, given it, the scores,
        which for Gaussian keys are independent N(0, (scale·‖q‖)²): n_keys numbers per replicate, not n_keys·d_k.
        ``"auto"`` takes the conditional one where it applies; rows say which it was.
    precision : {"double", "single"}
        float64, or float32 draws and scores with statistics in float64.
    seed : int
        Streams derive from (seed, name and settings of the cell, shard), hence the numbers of a cell do not depend on
        workers, executor, or the other cells, and a longer run begins with the shorter one.
    name : str, optional
        Names the streams; default the quantity's name. Needed to resume a study of an unnamed callable.
    workers : int, optional
        Threads, or processes; default the CPUs that this process may use.
    executor : {"threads", "processes"} or concurrent.futures.Executor, optional
        For instance ``dask.distributed.Client(...).get_executor()``.
    store : path-like, optional
        SQLite file for finished shards. A study that was stopped, even killed, resumes from it to the same bits.
    progress : bool
        Whether to show progress on a terminal or in a notebook; in a pipe there is none.

    Returns
    -------
    Study
        Rows with estimate, standard error, interval, exact prediction where one is known, and z-score.

    Raises
    ------
    ValueError
        For settings that make no sense, singly or together; for a store of another study.
    OSError
        If the store cannot be used, or worker processes die.
    StudyInterrupted
        On Ctrl-C; a KeyboardInterrupt that carries the finished rows.

    Examples
    --------
    >>> study = run_study("score", d_k=[4, 64], scale="unscaled", statistic="variance", seed=1)
    >>> [round(row.estimate / row.d_k, 1) for row in study.rows]
    [1.0, 1.0]
    """
    settings = read_settings(
        quantity,
        Asked(
            d_k=d_k,
            n_keys=n_keys,
            scale=scale,
            law=law,
            alignment=alignment,
            key_correlation=key_correlation,
            score=score,
            softcap=softcap,
            is_causal=is_causal,
            sink=sink,
            bias=bias,
            normalizer=normalizer,
            normalizer_bias=normalizer_bias,
            qk_norm=qk_norm,
            statistic=statistic,
            replicates=replicates,
            target_rse=target_rse,
            max_replicates=max_replicates,
            confidence_level=confidence_level,
            sampler=sampler,
            precision=precision,
            seed=seed,
            name=name,
        ),
    )
    if store is not None and (argument := settings.unnamed()):
        raise ValueError(f"{argument} is a callable without a name, so a store could not tell it from another: use def")
    return _run(settings, workers=workers, executor=executor, store=store, progress=progress)


def _run(
    settings: Settings,
    *,
    workers: int | None,
    executor: ExecutorLike,
    store: str | os.PathLike[str] | None,
    progress: bool,
) -> Study:
    rows: list[StudyRow] = []
    try:
        with ExitStack() as stack:
            check_targets(settings)
            pool = stack.enter_context(open_executor(executor, workers))
            check_memory(settings.cells, here=not isinstance(executor, Executor))
            cell = settings.cells[0]
            for argument, part in {"quantity": cell.quantity, "law": cell.laws, "score": cell.score}.items():
                check_sendable(pool, argument, part)
            shards = None if store is None else stack.enter_context(Store(store, settings.identity()))
            announce = partial(check_effort, workers=workers_of(pool), shown=progress)
            if settings.target_rse is not None:
                announce("target_rse", sum(first_pilot(cell) * cell.elements for cell in settings.cells))
            with one_blas_thread():
                work = [(cell, replicates_for(cell, settings)) for cell in settings.cells]
            asks = "replicates" if settings.target_rse is None else "target_rse"
            announce(asks, sum(count * cell.elements for cell, count in work))
            advance = stack.enter_context(progress_bar(settings.name, sum(count for _, count in work), shown=progress))
            samples = run_cells(
                work,
                draw=samplers.draw,
                seed=settings.seed,
                keep_values=settings.needs_order,
                executor=pool,
                store=shards,
                advance=advance,
            )
            stack.enter_context(closing(samples))  # on Ctrl-C it stores what has finished, before the store closes
            for (cell, _), sample in zip(work, samples, strict=True):
                rows.extend(row_of(cell, sample, statistic, settings) for statistic in settings.statistics)
    except KeyboardInterrupt:
        raise StudyInterrupted(
            _how_to_resume(store), Study(tuple(rows), name=settings.name, seed=settings.seed)
        ) from None
    return Study(tuple(rows), name=settings.name, seed=settings.seed)


def _how_to_resume(store: str | os.PathLike[str] | None) -> str:
    if store is None:
        return "stopped; nothing was stored: with a store, the next run would take up here"
    return f"stopped; what is done is kept in {os.fspath(store)}: run the same study with that store again to resume"
