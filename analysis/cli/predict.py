"""`attnsym predict` and `attnsym solve`: exact expectations, and the scale that gives one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli._app import JsonOption, app, console, float_list, int_list, print_json, text_list
from analysis.cli.mechanism import mechanism_of, takes_mechanism

if TYPE_CHECKING:
    from analysis.predict.meanings import Prediction


@app.command("predict")
@takes_mechanism
def predict_command(
    quantity: Annotated[
        str, typer.Argument(help="entropy, jacobian_trace, max_weight, ... (an unknown name lists all)")
    ],
    n_keys: Annotated[str | None, typer.Option("--n-keys", help="Numbers of keys, separated by commas.")] = None,
    d_k: Annotated[str | None, typer.Option("--d-k", help="Dimensions of Gaussian query and keys.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="sqrt (1/√d_k, the default), unscaled, numbers, expressions.")
    ] = None,
    sigma: Annotated[str | None, typer.Option(help="Instead of --d-k: standard deviations of the scores.")] = None,
    method: Annotated[str, typer.Option(help="quadrature, or direct: the second route.")] = "quadrature",
    mechanism: dict[str, Any] = {},  # noqa: B006  # its place in the list of options
    key: Annotated[int | None, typer.Option("--key", help="For key_weight: which key, from 0.")] = None,
    normalizer: Annotated[str | None, typer.Option("--normalizer", help="For row_sum: sigmoid or relu.")] = None,
    normalizer_bias: Annotated[float | None, typer.Option("--normalizer-bias", help="For row_sum.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what a softmax statistic of Gaussian scores must be on average, exactly."""
    from analysis.predict.meanings import predictions

    keys = None if n_keys is None else int_list(n_keys, "--n-keys")
    mechanism = mechanism_of(keys, mechanism)
    own = {"key": key, "normalizer": normalizer, "normalizer_bias": normalizer_bias}
    rows = predictions(
        quantity,
        n_keys=keys,
        mechanism=mechanism | {name: value for name, value in own.items() if value is not None},
        d_k=None if d_k is None else int_list(d_k, "--d-k"),
        scale=None if scale is None else text_list(scale),
        sigma=None if sigma is None else float_list(sigma, "--sigma"),
        method=method,
    )
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        _print_table(rows)


def _print_table(rows: list[Prediction]) -> None:
    from rich import box
    from rich.table import Table

    by_sigma = rows[0].sigma is not None
    table = Table(box=box.SIMPLE, title=f"{rows[0].quantity}: {rows[0].formula}", title_justify="left")
    for heading in ("sigma",) if by_sigma else ("d_k", "scale"):
        table.add_column(heading, no_wrap=True)
    table.add_column("n_keys", justify="right", no_wrap=True)
    table.add_column("exact value", no_wrap=True)
    table.add_column("meaning", overflow="fold")
    for row in rows:
        place = (f"{row.sigma:zg}",) if by_sigma else (str(row.d_k), str(row.scale))
        table.add_row(*place, "-" if row.n_keys is None else str(row.n_keys), f"{row.value:z.13g}", row.meaning)
    console().print(table)
    if rows[0].mechanism:
        console().print(
            "With " + ", ".join(f"{name} {_short(value)}" for name, value in rows[0].mechanism.items()) + "."
        )
    if rows[0].mechanism.get("score") == "cosine":
        console().print("Isotropic keys, scale their temperature; exact to the digits shown, no simulation.")
    else:
        console().print("Gaussian scores; exact to the digits shown, no simulation." if by_sigma else _ASSUMED)


def _short(value: object) -> str:
    if isinstance(value, list) and len(value) > 4:
        return f"{value[0]:g}, {value[1]:g}, ..., {value[-1]:g}"
    return ", ".join(f"{x:g}" for x in value) if isinstance(value, list) else str(value)


_ASSUMED = "Independent q, k ~ N(0, I), scores scale·kᵀq sharing the query; exact to the digits shown, no simulation."


@app.command("solve")
@takes_mechanism
def solve_command(
    quantity: Annotated[str, typer.Argument(help="entropy_fraction, entropy, max_weight, jacobian_trace, ...")],
    target: Annotated[float, typer.Argument(help="The value that the exact expectation must have.")],
    n_keys: Annotated[str, typer.Option("--n-keys", help="Numbers of keys, separated by commas.")],
    d_k: Annotated[str | None, typer.Option("--d-k", help="Dimensions; without it, the scores' deviation.")] = None,
    mechanism: dict[str, Any] = {},  # noqa: B006  # its place in the list of options
    as_json: JsonOption = False,
) -> None:
    """Print the scale (without --d-k, the standard deviation of the scores) that gives a wanted expectation."""
    from analysis.predict.inverse import scale_for

    solve: Callable[..., Any] = scale_for  # which looks up the name that comes as text here
    keys = int_list(n_keys, "--n-keys")
    mechanism = mechanism_of(keys, mechanism)
    cells = [(n, d) for d in ([None] if d_k is None else int_list(d_k, "--d-k")) for n in keys]
    found = [float(solve(quantity, target, n, d_k=d, **mechanism)) for n, d in cells]
    name = "sigma" if d_k is None else "scale"
    if as_json:
        answers = [
            {"quantity": quantity, "target": target, "n_keys": n, "d_k": d, name: value, "mechanism": mechanism}
            for (n, d), value in zip(cells, found, strict=True)
        ]
        print_json(answers)
        return
    for (n, d), value in zip(cells, found, strict=True):
        where = f"n_keys {n}" if d is None else f"n_keys {n}, d_k {d}"
        times = "" if d is None or mechanism.get("score") == "cosine" else f" = {value * d**0.5:z.6g}/√d_k"
        console().print(f"{name} {value:z.13g}{times}: {quantity} {target:zg} at {where}")
