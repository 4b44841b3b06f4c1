"""`attnsym length`: which scale keeps a needle and the entropy as the context grows."""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from analysis.cli._app import JsonOption, app, console, int_list, print_json


@app.command("length")
def length_command(
    n_keys: Annotated[str, typer.Option("--n-keys", help="Lengths, rising, separated by commas.")] = (
        "1024,16384,131072,1048576"
    ),
    sigma: Annotated[float, typer.Option(help="Deviation of the scores at the first length.")] = 1.0,
    needle: Annotated[float, typer.Option(help="The needle's mean score above the others' there.")] = 8.0,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it too, into a .svg, .png or .pdf file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what is left of a needle and of the entropy at longer contexts, by formula of the scale."""
    from rich import box
    from rich.table import Table

    from analysis.predict.length import over_lengths
    from analysis.vocabulary.output_file import check_writable, write_whole

    if plot is not None:
        if plot.suffix.lower() not in (".svg", ".png", ".pdf"):
            raise ValueError(f"--plot must name a .svg, .png or .pdf file: got {str(plot)!r}")
        check_writable("--plot", plot)
    rows = over_lengths(int_list(n_keys, "--n-keys"), sigma=sigma, needle=needle)
    if plot is not None:
        from analysis.show.length_plot import length_figure

        drawn = io.BytesIO()
        length_figure(rows).savefig(drawn, format=plot.suffix[1:].lower())
        write_whole(plot, drawn.getvalue())
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    table = Table(box=box.SIMPLE)
    for heading in ("scale", "n_keys", "factor", "needle", "H / log n", "eff. keys"):
        table.add_column(heading, justify="left" if heading == "scale" else "right", no_wrap=True)
    for row in rows:
        numbers = (f"{row.factor:.4g}", f"{row.needle_weight:.4f}", f"{row.entropy_fraction:.4f}")
        table.add_row(row.formula, str(row.n_keys), *numbers, f"{row.effective_keys:.4g}")
    console().print(table)
    console().print("Gaussian scores, the needle among them; the entropy H is that of rows without one. Exact.")
    console().print("'keeps ...': the factor with which a row has what the first length has, where there is one.")
