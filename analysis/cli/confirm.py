"""`attnsym confirm`: every claim against its derivation, its prediction and a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analysis.cli._app import EXIT_FAILED_VERDICT, JsonOption, app, console, print_json
from analysis.cli.published import adjudicated, verdict_lines


@app.command("confirm")
def confirm_command(
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Claims; all of them by default.")] = None,
    budget: Annotated[float, typer.Option(help="Times the usual number of replicates.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of all streams.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Threads; by default the CPUs available.")] = None,
    store: Annotated[Path | None, typer.Option(help="File that keeps finished draws, to resume from.")] = None,
    cells: Annotated[bool, typer.Option("--cells", help="Show every cell of every claim, with its text.")] = False,
    published: Annotated[bool, typer.Option("--published", help="Adjudicate the published sentences as well.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Derive, predict and measure each claim; exit 1 unless all are confirmed."""
    from analysis.confront.claims import CLAIMS
    from analysis.confront.confirmation import cell_table
    from analysis.confront.judge import confirm

    confirmation = confirm(keys or CLAIMS, budget=budget, seed=seed, workers=workers, store=store, progress=True)
    found = adjudicated() if published else []
    if as_json:
        print_json(confirmation.to_dict() | ({"published": [item.to_dict() for item in found]} if published else {}))
    else:
        out = console()
        for result in confirmation.claims if cells else ():
            out.print(cell_table(result), end="\n\n")
        out.print(str(confirmation))
        if found:
            out.print(f"\nPublished sentences, the most wrong first:\n{verdict_lines(found)}")
    if not confirmation.passed or any(item.kind == "undecided" for item in found):
        raise typer.Exit(EXIT_FAILED_VERDICT)
