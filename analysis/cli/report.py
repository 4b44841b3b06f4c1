"""`attnsym report`: derive, measure, audit the example, write one page."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.cli._app import JsonOption, app, print_json
from analysis.vocabulary.names import QuantityName, StatisticName
from analysis.vocabulary.text import printable

if TYPE_CHECKING:
    from analysis.measure.result import Study

_D_K = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_N_KEYS = 10


@app.command("report")
def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    seed: Annotated[int, typer.Option(help="Seed of the measurements.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Threads; by default one per available core.")] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm/--no-confirm", help="Confirm every claim too: most of the time that this takes.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Write a self-contained page: derivations, predictions, measurements and an audit of real tensors."""
    from analysis.show.report import write_report
    from analysis.vocabulary.output_file import check_writable

    check_writable("--output", output)
    with _stage("measure: scores, entropy, gradients against d_k"):
        studies = _studies(seed, workers)
    confirmation, published = None, []
    if confirm:
        from analysis import PUBLISHED
        from analysis import confirm as confirm_claims

        with _stage("confirm: every claim against its rival"):
            confirmation = confirm_claims(seed=seed, workers=workers)
        with _stage("adjudicate: published sentences"):
            published = [sentence.adjudicate() for sentence in PUBLISHED]
    with _stage("audit: the example, a trained sentence encoder"):
        from analysis.audit.files.audit import audit_example

        audits = [audit_example()]
    with _stage("derive, illustrate and write"):
        path = write_report(
            output,
            confirmation=confirmation,
            studies=studies,
            audits=audits,
            published=published,
            command=_command(seed, confirm),
        )
    if as_json:
        print_json({"path": str(path), "bytes": path.stat().st_size, "seed": seed})
        return
    if path.is_file():
        print(f"wrote {printable(str(path))} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")


def _command(seed: int, confirm: bool) -> str:
    """Return the line that makes the page again, for its last section."""
    return f"attnsym report --seed {seed}{'' if confirm else ' --no-confirm'}"


def _studies(seed: int, workers: int | None) -> list[Study]:
    """Return the report's studies; each figure shows mean, spread and what a mean alone would hide."""
    from analysis.measure.study import run_study

    def study(quantity: QuantityName, *statistics: StatisticName, replicates: int) -> Study:
        return run_study(
            quantity,
            d_k=_D_K,
            n_keys=_N_KEYS,
            statistic=statistics,
            replicates=replicates,
            sampler="direct",
            seed=seed,
            workers=workers,
        )

    return [
        study("score", "variance", replicates=20_000),
        study("entropy", "mean", replicates=4_000),
        study("jacobian_norm", "mean", "rms", "median", replicates=4_000),
        study("query_gradient_norm", "mean", "rms", "median", replicates=4_000),
    ]


@contextmanager
def _stage(name: str) -> Iterator[None]:
    start = time.perf_counter()
    print(f"{name} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        print(file=sys.stderr)
        raise
    print(f" {time.perf_counter() - start:.1f} s", file=sys.stderr)
