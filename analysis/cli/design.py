"""`attnsym design`: what the scores of a head look like at initialisation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from analysis.cli._app import JsonOption, app, console, print_json
from analysis.cli.mechanism import SinkOption, SoftcapOption


@app.command("design")
def design_command(
    d_model: Annotated[int, typer.Option("--d-model", help="Width of the tokens.")],
    d_k: Annotated[int, typer.Option("--d-k", help="Width of a head.")],
    n_keys: Annotated[int, typer.Option("--n-keys", help="Keys that a query sees.")],
    init: Annotated[
        str, typer.Option(help="normal:STD, uniform:BOUND, xavier, xavier-head, linear, t5 or mup.")
    ] = "normal:0.02",
    norm: Annotated[str, typer.Option(help="Before the projections: none, layer or rms.")] = "layer",
    norm_gain: Annotated[float, typer.Option("--norm-gain", help="Root mean square of the norm's gains.")] = 1.0,
    token_correlation: Annotated[float, typer.Option(help="Mean cosine between tokens.")] = 0.0,
    scale: Annotated[str | None, typer.Option(help="sqrt, unscaled, a number or an expression.")] = None,
    softcap: SoftcapOption = None,
    qk_norm: Annotated[str | None, typer.Option("--qk-norm", help="l2 or rms.")] = None,
    qk_gain: Annotated[
        float, typer.Option("--qk-gain", help="Product of the gains of the norms of query and key.")
    ] = 1.0,
    sink: SinkOption = None,
    rotary: Annotated[bool, typer.Option("--rotary", help="Whether query and key are rotated by position.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what the scores of a head look like before training, what is off, and which scale would mend it."""
    from analysis.predict.design import design

    settings: dict[str, Any] = {"norm": norm, "qk_norm": qk_norm}
    result = design(
        d_model=d_model, d_k=d_k, n_keys=n_keys, init=init, token_correlation=token_correlation, scale=scale,
        softcap=softcap, sink=sink, norm_gain=norm_gain, qk_gain=qk_gain, rotary=rotary, **settings,
    )  # fmt: skip
    if as_json:
        print_json(asdict(result))
        return
    for name, value in asdict(result).items():
        if name != "advice":
            console().print(f"{name:19} {value:z.6g}")
    for line in result.advice:
        console().print(line)
