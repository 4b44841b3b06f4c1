"""`attnsym compare`: two audits side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli._app import JsonOption, app, print_json, scale_option
from analysis.cli._audit_tables import print_lines, print_table

if TYPE_CHECKING:
    from analysis.audit.over_time.states import Audit

_COLUMNS = {
    "layer": "layer",
    "head": "head",
    "variance_before": "in row",
    "variance_after": "after",
    "variance_ratio": "×",
    "entropy_before": "H/log m",
    "entropy_after": "after",
    "largest_before": "max |s|",
    "largest_after": "after",
}


@app.command("compare")
def compare_command(
    before: Annotated[Path, typer.Argument(help="Tensors, a checkpoint (--weights), or an audit's JSON.")],
    after: Annotated[Path, typer.Argument(help="The same of another step, backend or setting.")],
    weights: Annotated[
        bool, typer.Option("--weights", help="They are checkpoints: compare their projections.")
    ] = False,
    num_heads: Annotated[int | None, typer.Option(help="Query heads, where the files do not say.")] = None,
    num_key_value_heads: Annotated[int | None, typer.Option(help="Key heads of checkpoints, where fewer.")] = None,
    scale: Annotated[str | None, typer.Option(help="sqrt (1/√d_k), unscaled, a number or expression.")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Query i sees keys 0 to i.")] = False,
    json: JsonOption = False,
) -> None:
    """Compare two audits head by head: what changed, and which factor of the variance did it."""
    from analysis.audit.over_time.change import compare_audits
    from analysis.audit.over_time.states import kind_of

    first, second = (
        audited(path, weights=weights, num_heads=num_heads, key_heads=num_key_value_heads, scale=scale, causal=causal)
        for path in (before, after)
    )
    result = compare_audits(first, second)
    if json:
        print_json(result.to_dict())
    else:
        bounded = kind_of(first) == "weights"  # of weights the largest score is a bound
        print_table(
            "Every head, before and after", _COLUMNS | ({"largest_before": "|s| ≤"} if bounded else {}), result.heads
        )
        print_lines(result.summary())


def audited(
    path: Path,
    *,
    weights: bool,
    num_heads: int | None,
    key_heads: int | None,
    scale: str | None,
    causal: bool,
    rotary: str | None = None,
) -> Audit | dict[str, Any]:
    """Return the audit of a file, or the one that it holds."""
    from analysis.audit.files.audit import audit_files
    from analysis.audit.over_time.states import read_audit
    from analysis.audit.weights.checkpoint import audit_checkpoint

    if path.suffix == ".json" and not path.name.endswith(".index.json"):
        return read_audit(path)
    if weights:
        return audit_checkpoint(
            [path], num_heads=num_heads, num_key_value_heads=key_heads, scale=scale_option(scale), rotary=rotary
        )
    return audit_files([path], num_heads=num_heads, scale=scale_option(scale), is_causal=causal)
