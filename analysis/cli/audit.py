"""`attnsym audit`: tensors or weights in files, the example, or an attention function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli._app import EXIT_FAILED_VERDICT, JsonOption, app, print_json, scale_option
from analysis.cli._audit_tables import print_audit, print_lines, print_table, print_weights
from analysis.cli.compare import audited
from analysis.vocabulary.text import printable

if TYPE_CHECKING:
    from analysis.audit.over_time.run_files import Run

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
    weights: Annotated[
        bool, typer.Option("--weights", help="The files are a checkpoint: audit its query and key projections.")
    ] = False,
    query: Annotated[str | None, typer.Option(help="Name of the queries; * stands for the layer.")] = None,
    key: Annotated[str | None, typer.Option(help="Name of the keys.")] = None,
    value: Annotated[str | None, typer.Option(help="Name of the values.")] = None,
    padding: Annotated[str | None, typer.Option(help="Name of the mask, (batch, n_keys), 1 = a real token.")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Query i sees keys 0 to i.")] = False,
    scale: Annotated[
        str | None, typer.Option(help="sqrt (1/√d_k), unscaled, a number or expression; of a function: the intended.")
    ] = None,
    softcap: Annotated[
        float | None, typer.Option(help="Scores become cap * tanh(score / cap); of a function: the intended cap.")
    ] = None,
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
    num_key_value_heads: Annotated[int | None, typer.Option(help="Key heads of a checkpoint, where fewer.")] = None,
    rotary: Annotated[
        str | None, typer.Option(help="Of a checkpoint: half, interleaved or none; by default as its config.json says.")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(help="Beside a checkpoint: queries and keys, or hidden states, to tell how far its null is off."),
    ] = None,
    d_k: Annotated[
        int | None, typer.Option("--d-k", help="Components to audit a function with, by default 16.")
    ] = None,
    mask_means: Annotated[
        str | None, typer.Option(help="What True means in a function's mask: keep (the default) or drop.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Inputs of a function: float64, float32, float16 or bfloat16.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device of a torch function's inputs, such as cuda.")] = None,
    lengths: Annotated[
        str | None, typer.Option(metavar="QUERIES,KEYS", help="Lengths to audit a function with, by default 5,7.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="A second function: what it does otherwise.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """
    Audit tensors or the weights of a checkpoint, head by head, or an attention function.

    A function with errors ends in exit code 1; --callable imports and so runs the module that it names, found from the
    current directory.
    """
    if [example, bool(files), function is not None].count(True) != 1:
        raise ValueError("name one or more files to audit, or --example, or --callable module:function")
    of_function = {
        "--d-k": d_k, "--mask-means": mask_means, "--dtype": dtype, "--device": device, "--lengths": lengths,
        "--against": against,
    }  # fmt: skip
    of_files = {
        "--query": query, "--key": key, "--value": value, "--padding": padding, "--causal": causal or None,
        "--softcap": softcap, "--window": window,
    }  # fmt: skip
    of_weights = {"--num-key-value-heads": num_key_value_heads, "--rotary": rotary, "--tokens": tokens}
    if function is not None:
        without = {name: value for name, value in of_files.items() if name != "--softcap"}
        _refuse(without | of_weights | {"--target": target, "--weights": weights or None}, "a function")
        n_queries, n_keys = (None, None) if lengths is None else _lengths(lengths)
        _audit_function(
            function, against, json, layout=layout, num_heads=3 if num_heads is None else num_heads,
            d_k=16 if d_k is None else d_k, n_queries=n_queries, n_keys=n_keys, dtype=dtype, device=device,
            intended_scale=scale_option(scale), intended_softcap=softcap, mask_means=mask_means,
        )  # fmt: skip
        return
    from analysis.audit.over_time.run_files import run_of

    run = None if example else run_of(files or [])
    if run is not None:
        rest = {name: value for name, value in of_files.items() if name != "--causal"}
        _refuse(
            rest | of_function | {"--target": target, "--layout": layout, "--tokens": tokens},
            "the steps of a run",
        )
        _audit_run(
            run, json, weights=weights, num_heads=num_heads, key_heads=num_key_value_heads, scale=scale, causal=causal,
            rotary=rotary,
        )  # fmt: skip
        return
    if weights and not example:
        rest = of_files if tokens is None else {name: value for name, value in of_files.items() if name != "--causal"}
        _refuse(rest | of_function | {"--target": target, "--layout": layout}, "weights")
        _audit_weights(files or [], num_heads, num_key_value_heads, scale, rotary, tokens, causal, json)
        return
    _refuse(of_function | of_weights | {"--weights": weights or None}, "tensors")
    if example:
        _refuse(of_files | {"--scale": scale, "--layout": layout, "--num-heads": num_heads}, "the example")
    from analysis.audit.files.audit import audit_example, audit_files

    result = (
        audit_example()
        if example
        else audit_files(
            files or [], query=query, key=key, value=value, padding=padding, is_causal=causal,
            scale=scale_option(scale), softcap=softcap, window=_window(window), layout=layout or "bhsd",
            num_heads=num_heads,
        )
    )  # fmt: skip
    remedies = () if target is None else result.remedies(*_target(target))
    if json:
        print_json(result.to_dict() | ({} if target is None else {"remedies": [asdict(item) for item in remedies]}))
        return
    print_audit(result)
    if remedies:
        print_table(f"To reach {target}, each by itself", _REMEDY_COLUMNS, remedies)
    elif target is not None:
        print(f"Every head is within {target}.")


def _audit_run(run: Run, json: bool, **options: Any) -> None:
    """Audit the steps that can be read; the others are told at the end, as an error, so that nothing found is lost."""
    from analysis.audit.over_time.trend import audit_trends, strangers

    audits: dict[int, Any] = {}
    unread: list[tuple[Path, Exception]] = []
    for step, path in sorted(run.steps.items()):
        try:
            audits[step] = audited(path, **options)
        except (OSError, ValueError) as error:
            unread.append((path, error))
    for step in strangers(audits):
        del audits[step]
        unread.append((run.steps[step], ValueError("its layers have other names than those of the other steps")))
    if len(audits) < 2 and unread:
        raise unread[0][1]
    result = audit_trends(audits)
    assumed = getattr(audits[max(audits)], "notes", ())
    result = replace(result, notes=(*result.notes, *assumed, *run.notes))
    if json:
        print_json(result.to_dict())
    else:
        print_lines(result.summary())
    if unread:
        path, reason = unread[0]
        more = f", and so were {len(unread) - 1} more" if len(unread) > 1 else ""
        raise ValueError(f"{printable(path.name)} was left out{more}: {reason}")


def _audit_weights(
    files: list[Path], num_heads: int | None, key_heads: int | None, scale: str | None, rotary: str | None,
    tokens: Path | None, causal: bool, json: bool,
) -> None:  # fmt: skip
    from analysis.audit.over_time.change import compare_audits
    from analysis.audit.weights.checkpoint import audit_checkpoint
    from analysis.audit.weights.measured import measured

    result = audit_checkpoint(
        files, num_heads=num_heads, num_key_value_heads=key_heads, scale=scale_option(scale), rotary=rotary
    )
    null = None if tokens is None else compare_audits(result, measured(result, [tokens], is_causal=causal))
    if json:
        print_json(result.to_dict() | ({} if null is None else {"measured": null.to_dict()}))
        return
    print_weights(result)
    if null is not None:
        print_lines(null.summary())


def _refuse(options: Mapping[str, object], subject: str) -> None:
    """Refuse options that would be ignored."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ValueError(f"{given[0]} does not apply to an audit of {subject}")


def _audit_function(target: str, against: str | None, json: bool, **keywords: Any) -> None:
    from analysis.audit.functions.audit import audit_callable
    from analysis.audit.functions.loading import load_callable

    other = None if against is None else load_callable(against)
    result = audit_callable(load_callable(target), against=other, **keywords)
    if json:
        print_json(result.to_dict())
    else:
        print_lines(result.lines())
    if any(item.severity == "error" for item in result.findings):
        raise typer.Exit(EXIT_FAILED_VERDICT)


def _lengths(text: str) -> tuple[int, int]:
    try:
        n_queries, n_keys = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--lengths takes QUERIES,KEYS in whole numbers: got {text!r}") from None
    return n_queries, n_keys


def _target(text: str) -> tuple[str, float]:
    quantity, _, number = text.partition("=")
    try:
        return quantity.strip(), float(number)
    except ValueError:
        raise ValueError(f"--target takes QUANTITY=NUMBER: got {text!r}") from None


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
