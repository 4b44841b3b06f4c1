"""`attnsym audit`: tensors in files, the example, or an attention function."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.cli._app import EXIT_FAILED_VERDICT, JsonOption, app, console, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from analysis.audit.tensors.remedies import Remedy
    from analysis.audit.tensors.result import TensorAudit
    from analysis.audit.tensors.rows import HeadAudit, LayerAudit

_WIDTH = 100
_REMEDY_COLUMNS = {
    "layer": "layer",
    "head": "head",
    "current": "now",
    "scale": "scale",
    "softcap": "or soft-cap",
    "query_factor": "or q ×",
    "key_factor": "and k ×",
}


@app.command("audit")
def audit_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help=".npz, .npy, .safetensors, a folder or an index; they add up."),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Audit the tensors that come with the package.")] = False,
    function: Annotated[
        str | None, typer.Option("--callable", metavar="MODULE:FUNCTION", help="Audit a function; imports its module.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="Name of the queries; * stands for the layer.")] = None,
    key: Annotated[str | None, typer.Option(help="Name of the keys.")] = None,
    value: Annotated[str | None, typer.Option(help="Name of the values.")] = None,
    padding: Annotated[str | None, typer.Option(help="Name of the mask, (batch, n_keys), 1 = a real token.")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Query i sees keys 0 to i.")] = False,
    scale: Annotated[
        str | None, typer.Option(help="sqrt (1/√d_k), unscaled, a number or expression; of a function: the intended.")
    ] = None,
    softcap: Annotated[float | None, typer.Option(help="Scores become cap * tanh(score / cap).")] = None,
    window: Annotated[str | None, typer.Option(help="Sliding window: W, or LEFT,RIGHT (inclusive).")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="QUANTITY=NUMBER",
            help="What would meet it: entropy_fraction, within_row_variance, largest_score, largest_signed_score.",
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(help="bhsd (batch, heads, length, d), bshd, hsd or shd; of a function also sbhd, bsd, …"),
    ] = None,
    num_heads: Annotated[
        int | None,
        typer.Option(help="Query heads of (batch, length, heads * d_k) tensors; of a function, by default 3."),
    ] = None,
    d_k: Annotated[
        int | None, typer.Option("--d-k", help="Components to audit a function with, by default 16.")
    ] = None,
    mask_means: Annotated[
        str | None, typer.Option(help="What True means in a function's mask: keep (the default) or drop.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """
    Audit tensors, head by head, or an attention function.

    A function with errors ends in exit code 1; --callable imports and so runs the module that it names, found from the
    current directory.
    """
    if [example, bool(files), function is not None].count(True) != 1:
        raise ValueError("name one or more files to audit, or --example, or --callable module:function")
    of_function = {"--d-k": d_k, "--mask-means": mask_means}
    of_files = {
        "--query": query, "--key": key, "--value": value, "--padding": padding, "--causal": causal or None,
        "--softcap": softcap, "--window": window,
    }  # fmt: skip
    if function is not None:
        _refuse(of_files | {"--target": target}, "a function")
        _audit_function(function, layout, num_heads, d_k, scale, mask_means, json)
        return
    _refuse(of_function, "tensors")
    if example:
        _refuse(of_files | {"--scale": scale, "--layout": layout, "--num-heads": num_heads}, "the example")
    from analysis.audit.files.audit import audit_example, audit_files

    result = (
        audit_example()
        if example
        else audit_files(
            files or [], query=query, key=key, value=value, padding=padding, is_causal=causal, scale=_number(scale),
            softcap=softcap, window=_window(window), layout=layout or "bhsd", num_heads=num_heads,
        )
    )  # fmt: skip
    remedies = () if target is None else result.remedies(*_target(target))
    if json:
        print_json(result.to_dict() | ({} if target is None else {"remedies": [asdict(item) for item in remedies]}))
        return
    _print(result)
    if target is not None:
        console().print(
            _table(
                f"To reach {target}, each by itself",
                _REMEDY_COLUMNS,
                remedies,
                _short_names([layer.layer for layer in result.layers]),
            )
        )


def _refuse(options: Mapping[str, object], subject: str) -> None:
    """Refuse options that would be ignored."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ValueError(f"{given[0]} does not apply to an audit of {subject}")


def _audit_function(
    target: str, layout: str | None, num_heads: int | None, d_k: int | None, scale: str | None,
    mask_means: str | None, json: bool,
) -> None:  # fmt: skip
    from analysis.audit.functions.audit import audit_callable
    from analysis.audit.functions.loading import load_callable

    result = audit_callable(
        load_callable(target), layout=layout, num_heads=3 if num_heads is None else num_heads,
        d_k=16 if d_k is None else d_k, intended_scale=_number(scale),
        mask_means="keep" if mask_means is None else mask_means,
    )  # fmt: skip
    if json:
        print_json(result.to_dict())
    else:
        for line in result.lines():
            print(textwrap.fill(line, _WIDTH, subsequent_indent="    ", break_long_words=False))
    if any(item.severity == "error" for item in result.findings):
        raise typer.Exit(EXIT_FAILED_VERDICT)


def _print(result: TensorAudit) -> None:
    from analysis.audit.tensors.columns import HEAD_COLUMNS, LAYER_COLUMNS, LEGEND
    from analysis.vocabulary.text import printable

    out = console()
    out.width = max(out.width, _WIDTH) if out.is_terminal else _WIDTH
    print(f"{printable(result.source)} (scale {result.scale})")
    for note in result.notes:
        print(note)
    short = _short_names([layer.layer for layer in result.layers])
    of_heads = {column.name: column.short for column in HEAD_COLUMNS if column.short}
    of_layers = {column.name: column.short for column in LAYER_COLUMNS}
    out.print(_table("Every head", of_heads, result.heads, short))
    out.print(_table("Layers (means over heads)", of_layers, result.layers, short))
    print(LEGEND)
    print()
    for sentence in result.summary():
        print(textwrap.fill(sentence, _WIDTH, subsequent_indent="    ", break_long_words=False))


def _table(
    title: str, columns: dict[str, str], rows: Sequence[HeadAudit | LayerAudit | Remedy], names: dict[str, str]
) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name, head in columns.items():
        words = name in ("layer", "verdict")
        table.add_column(head, justify="left" if words else "right", overflow="fold", no_wrap=name != "layer")
    for row in rows:
        table.add_row(
            names.get(row.layer, row.layer), *(_cell(getattr(row, name)) for name in columns if name != "layer")
        )
    return table


def _short_names(layers: Sequence[str]) -> dict[str, str]:
    """Return layer names without what all of them share up to a separator: "model.layers.3.attn" is "3" in a table."""
    from analysis.vocabulary.text import printable

    parts = [re.split(r"([./:_])", name) for name in layers]
    most = min(len(part) for part in parts) - 1 if len(parts) > 1 else 0
    start = min(_common(parts), most) // 2 * 2
    end = min(_common([part[::-1] for part in parts]), most - start) // 2 * 2
    kept = ["".join(part[start : len(part) - end]) for part in parts]
    return {name: printable(short) for name, short in zip(layers, kept, strict=True)}


def _common(parts: Sequence[Sequence[str]]) -> int:
    """Return how many leading pieces all names share."""
    return sum(1 for _ in takewhile(lambda pieces: len(set(pieces)) == 1, zip(*parts, strict=False)))


def _cell(value: object) -> str:
    from analysis.audit.tensors.result import shown

    if isinstance(value, float) and math.isfinite(value) and abs(value) < 10:
        return f"{value:.3f}"
    return shown(value)


def _target(text: str) -> tuple[str, float]:
    quantity, _, number = text.partition("=")
    try:
        return quantity.strip(), float(number)
    except ValueError:
        raise ValueError(f"--target takes QUANTITY=NUMBER: got {text!r}") from None


def _number(text: str | None) -> float | str | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def _window(text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise ValueError(f"--window takes W or LEFT,RIGHT in whole numbers: got {text!r}")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])
