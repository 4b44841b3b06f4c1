"""`attnsym study`: measure a quantity over a grid, with error bars and predictions beside."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli._app import EXIT_INTERRUPTED, JsonOption, app, console, float_list, int_list, print_json, text_list
from analysis.cli.mechanism import BiasOption, SinkOption

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from analysis.measure.result import Study


@app.command("study")
def study(
    quantity: Annotated[str, typer.Argument(help="score, entropy, effective_keys, jacobian_trace, jacobian_norm, ...")],
    d_k: Annotated[str, typer.Option(help="Widths, separated by commas.")],
    n_keys: Annotated[str | None, typer.Option(help="Numbers of keys; may be left out for score.")] = None,
    scale: Annotated[str, typer.Option(help="sqrt, unscaled, numbers, or expressions in d_k and n_keys.")] = (
        "sqrt,unscaled"
    ),
    law: Annotated[str, typer.Option(help="Law of the components, or two for query and key.")] = "normal",
    alignment: Annotated[float, typer.Option(help="Correlation of the query with each key.")] = 0.0,
    key_correlation: Annotated[float, typer.Option(help="Correlation of the keys with one another.")] = 0.0,
    score: Annotated[str, typer.Option(help="dot or cosine.")] = "dot",
    softcap: Annotated[float | None, typer.Option(help="c in c*tanh(score / c).")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Mean over the rows of a causal mask.")] = False,
    sink: SinkOption = None,
    bias: BiasOption = None,
    normalizer: Annotated[str, typer.Option(help="softmax, sigmoid or relu.")] = "softmax",
    normalizer_bias: Annotated[float | None, typer.Option(help="Added to the scores of sigmoid or relu.")] = None,
    qk_norm: Annotated[str | None, typer.Option("--qk-norm", help="Norm of query and keys: l2 or rms.")] = None,
    statistic: Annotated[str, typer.Option(help="mean, variance, rms, median, or quantiles such as 0.9.")] = "mean",
    replicates: Annotated[int, typer.Option(help="Independent draws per cell.")] = 100_000,
    target_rse: Annotated[float | None, typer.Option(help="Relative standard error to reach.")] = None,
    max_replicates: Annotated[int | None, typer.Option(help="Cap on what --target-rse asks for.")] = None,
    confidence_level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    sampler: Annotated[str, typer.Option(help="auto, direct or conditional.")] = "auto",
    precision: Annotated[str, typer.Option(help="double, or single for speed.")] = "double",
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.")] = 0,
    name: Annotated[str | None, typer.Option(help="Names the random streams.")] = None,
    workers: Annotated[int | None, typer.Option(help="Threads or processes; default all CPUs.")] = None,
    processes: Annotated[bool, typer.Option("--processes", help="Use processes, not threads.")] = False,
    dask: Annotated[str | None, typer.Option(help="Address of a dask scheduler, tcp://...")] = None,
    store: Annotated[str | None, typer.Option(help="SQLite file of finished shards; resumes from it.")] = None,
    output: Annotated[str | None, typer.Option(help="Write the study to this JSON file.")] = None,
    json_output: JsonOption = False,
) -> int:
    """Measure a quantity of random attention over d_k, n_keys and scale."""
    from analysis.measure.study import StudyInterrupted, run_study
    from analysis.vocabulary.output_file import check_writable

    if output is not None:
        check_writable("--output", output)
    measure: Callable[..., Study] = run_study  # which looks up the names that come as text here
    with _executor(dask, processes) as executor:
        try:
            result = measure(
                quantity,
                d_k=int_list(d_k, "--d-k"),
                n_keys=None if n_keys is None else int_list(n_keys, "--n-keys"),
                scale=[_number_or_text(part) for part in text_list(scale)],
                law=_law(law),
                alignment=alignment,
                key_correlation=key_correlation,
                score=score,
                softcap=softcap,
                is_causal=causal,
                sink=sink,
                bias=bias,
                normalizer=normalizer,
                normalizer_bias=normalizer_bias,
                qk_norm=qk_norm,
                statistic=[_number_or_text(part) for part in text_list(statistic)],
                replicates=replicates,
                target_rse=target_rse,
                max_replicates=max_replicates,
                confidence_level=confidence_level,
                sampler=sampler,
                precision=precision,
                seed=seed,
                name=name,
                workers=workers,
                executor=executor,
                store=store,
                progress=True,
            )
        except StudyInterrupted as stop:
            _print(stop.study, json_output=json_output)
            print(f"attnsym: {stop}", file=sys.stderr)
            return EXIT_INTERRUPTED
    try:
        if output is not None:
            result.to_json(output)
    finally:  # a full disk must not lose what was computed
        _print(result, json_output=json_output)
    return 0


@contextmanager
def _executor(dask: str | None, processes: bool) -> Iterator[Executor | str | None]:
    if dask is None:
        yield "processes" if processes else None
        return
    if processes:
        raise ValueError("--dask brings its own workers: leave out --processes")
    try:
        from distributed import Client
    except ImportError:
        raise ImportError(
            '--dask needs the extra "distributed": python -m pip install "attnsym[distributed]"'
        ) from None
    try:
        client = Client(dask, timeout=10)
    except (OSError, ValueError) as error:
        raise OSError(f"--dask: no scheduler answers at {dask} ({error})") from None
    with client:
        yield client.get_executor()


def _number_or_text(part: str) -> Any:
    try:
        return float_list(part, "")[0]
    except ValueError:
        return part


def _law(text: str) -> Any:
    parts = text_list(text)
    return parts[0] if len(parts) == 1 else tuple(parts)


def _print(result: Study, *, json_output: bool) -> None:
    from analysis.measure.file import study_document
    from analysis.show.tables import FOOTNOTE, needs_footnote, text_table

    if json_output:
        print_json(study_document(result))
        return
    screen = console()
    if not screen.is_terminal:
        screen.width = 200  # in a pipe nothing is cut short
    screen.print(text_table(result))
    if needs_footnote(result):
        screen.print(FOOTNOTE)
