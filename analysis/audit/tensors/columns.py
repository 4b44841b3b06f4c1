"""The columns of an audit: one table for the terminal, HTML and the report."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.vocabulary.text import printable


@dataclass(frozen=True)
class Column:
    """
    A column of the heads, of the layers, or of both.

    Attributes
    ----------
    name : str
        Of the field.
    short, title : str
        For 100 columns of a terminal, and where there is room.
    of : str
        "both" (a layer has the mean over its heads, of the largest score the maximum), "heads" or "layers".
    """

    name: str
    short: str
    title: str
    of: str = "both"


COLUMNS = (
    Column("layer", "layer", "layer"),
    Column("head", "head", "head", "heads"),
    Column("heads", "heads", "heads", "layers"),
    Column("score_variance_ratio", "var/d_k", "variance / d_k"),
    Column("within_row_variance", "in row", "within-row variance (population)"),
    Column("entropy_ratio", "H/log m", "entropy / log m"),
    Column("predicted_entropy_ratio", "Gauss", "Gaussian prediction"),
    Column("jacobian_trace", "tr J", "tr J"),
    Column("dead_row_fraction", "dead", "dead rows"),
    Column("largest_score", "max |s|", "largest |score|"),
    Column("first_key_share", "1st key", "first key"),
    Column("verdict", "verdict", "verdict", "heads"),
    Column("heads_above_four", "in row>4", "heads above 4 within row", "layers"),
    Column("heads_saturated", "saturated", "saturated heads", "layers"),
    Column("cause", "", "cause", "heads"),  # too long for a table of the terminal, where the summary has it
)
HEAD_COLUMNS = tuple(column for column in COLUMNS if column.of != "layers")
LAYER_COLUMNS = tuple(column for column in COLUMNS if column.of != "heads")
LAYER_MEANS = tuple(c.name for c in COLUMNS if c.of == "both" and c.name not in ("layer", "largest_score"))
LEGEND = """
var/d_k   variance of kᵀq over d_k: 1 for independent components of variance 1
in row    variance of the scores that one query sees, mean over queries: all that softmax sees of their size
          (both divide by the number of pairs or keys n, not n - 1: iid scores average 1 - 1/n of theirs)
H/log m   entropy of the weights over its maximum, m visible keys; Gauss: of Gaussian scores of that variance
tr J      1 - sum of squared weights, what softmax lets through of the gradient; dead: rows with tr J < 0.001
max |s|   largest score; 1st key: mean weight on the first token"""


def shown(value: Any) -> str:
    """Return a cell: three digits for a number, a dash for NaN or None, names made printable."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:z.3g}" if isinstance(value, float) else printable(str(value))


def html_table(columns: Sequence[Column], rows: Sequence[Any], lines: Sequence[str]) -> str:
    """Return sentences and a table as HTML, names escaped."""
    cells = "".join(f"<th>{column.title}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(shown(getattr(row, c.name)))}</td>" for c in columns) + "</tr>"
        for row in rows
    )
    words = "<br>".join(html.escape(line) for line in lines)
    return f"<p>{words}</p><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
