"""Audits on the terminal: tables of 100 columns, a legend and sentences."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from analysis.cli._app import console

if TYPE_CHECKING:
    from rich.table import Table

    from analysis.audit.tensors.result import TensorAudit
    from analysis.audit.weights.result import WeightsAudit

WIDTH = 100


def print_lines(lines: Iterable[str]) -> None:
    """Print sentences, each wrapped with its further lines indented."""
    for line in lines:
        print(textwrap.fill(line, WIDTH, subsequent_indent="    ", break_long_words=False))


def print_audit(result: TensorAudit) -> None:
    """Print an audit of tensors."""
    from analysis.audit.tensors.columns import HEAD_COLUMNS, LAYER_COLUMNS, LEGEND

    _print_head(result)
    of_heads = {column.name: column.short for column in HEAD_COLUMNS if column.short}
    of_layers = {column.name: column.short for column in LAYER_COLUMNS}
    print_table("Every head", of_heads, result.heads)
    print_table("Layers (means over heads)", of_layers, result.layers)
    print(LEGEND)
    print()
    print_lines(result.summary())


def print_weights(result: WeightsAudit) -> None:
    """Print an audit of weights."""
    from analysis.audit.weights.result import COLUMNS

    _print_head(result)
    print_table("Every head", {column.name: column.short for column in COLUMNS if column.short}, result.heads)
    print()
    print_lines(result.summary())


def _print_head(result: TensorAudit | WeightsAudit) -> None:
    from analysis.vocabulary.text import printable

    print(f"{printable(result.source)} (scale {result.scale})")
    print_lines(result.notes)


def print_table(title: str, columns: dict[str, str], rows: Sequence[Any]) -> None:
    """Print rows that have a layer, its name shortened, and the named columns."""
    out = console()
    out.width = max(out.width, WIDTH) if out.is_terminal else WIDTH
    out.print(_table(title, columns, rows, _short_names([row.layer for row in rows])))


def _table(title: str, columns: dict[str, str], rows: Sequence[Any], names: dict[str, str]) -> Table:
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

    layers = list(dict.fromkeys(layers))
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
    from analysis.audit.tensors.columns import shown

    if isinstance(value, float) and math.isfinite(value) and abs(value) < 10:
        return f"{value:z.3f}"
    return shown(value)
