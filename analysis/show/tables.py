"""A study as a table, for a terminal and for a notebook."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from analysis.measure.result import Study, StudyRow
from analysis.vocabulary.text import printable
from attnsym._page import aligned

if TYPE_CHECKING:
    from rich.table import Table

UNCALIBRATED = "*"
FOOTNOTE = f"{UNCALIBRATED} too few replicates, or too skew, for the tail of this z-score to be trusted"
SHOWN_NUMBERS = 4
_TEXT_COLUMNS = ("statistic", "scale")


def table_of(study: Study) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of text; a statistic or a number of replicates common to all rows is for the caption."""
    records = [_texts(row) for row in study.rows]
    common = {key for key in ("statistic", "replicates") if len({record[key] for record in records}) == 1}
    headings = [key for key in (records[0] if records else {}) if key not in common]
    return headings, [[record[key] for key in headings] for record in records]


def _texts(row: StudyRow) -> dict[str, str]:
    mark = "" if row.calibrated else UNCALIBRATED
    return {
        "statistic": row.statistic,
        "scale": row.scale,
        "d_k": str(row.d_k),
        "n_keys": str(row.n_keys),
        "estimate": f"{row.estimate:z.6g}",
        "std error": f"{row.standard_error:.2g}",
        "predicted": "" if row.prediction is None else f"{row.prediction:z.6g}",
        "z": "" if row.z_score is None else f"{row.z_score:+z.2f}{mark}",
        "replicates": f"{row.replicates:,}",
    }


def caption(study: Study) -> str:
    """Say in one line what was measured, and how."""
    if not study.rows:
        return f"{study.name}: no rows"
    row = study.rows[0]
    statistics, counts = ({getattr(r, key) for r in study.rows} for key in ("statistic", "replicates"))
    what = row.quantity if len(statistics) > 1 else f"{row.statistic} of {row.quantity}"
    size = f", {row.replicates:,} replicates" if len(counts) == 1 else ""
    name = "" if study.name == row.quantity else f"{printable(study.name)}: "
    how = "".join(f", {text}" for text in settings_said(row))
    return (
        f"{name}{what}, law {row.law}{how}{size}, {row.sampler} sampler, {row.precision} precision, seed {study.seed}"
    )


def settings_said(row: StudyRow) -> list[str]:
    """Return the settings of a row that are not the plain ones, in words; those with columns of their own are not."""
    settings = {
        name: (getattr(row, name), plain)
        for name, plain in (
            ("alignment", 0.0), ("key_correlation", 0.0), ("score", "dot"), ("softcap", None), ("sink", None),
            ("bias", None), ("normalizer", "softmax"), ("normalizer_bias", None), ("qk_norm", None),
        )
    }  # fmt: skip
    words = [f"{name} {printable(setting_text(value))}" for name, (value, plain) in settings.items() if value != plain]
    return [*words, "causal mask"] if row.is_causal else words


def setting_text(value: str | float) -> str:
    """Return a setting as text, short: of many numbers the first, and how many they are."""
    text = value if isinstance(value, str) else f"{value:g}"
    parts = text.split(",")
    return text if len(parts) <= SHOWN_NUMBERS else f"{parts[0]}, ... ({len(parts)} numbers)"


def needs_footnote(study: Study) -> bool:
    """Tell whether a z-score is marked."""
    return any(row.z_score is not None and not row.calibrated for row in study.rows)


def plain_table(study: Study) -> str:
    """Return the table as lines of text, whatever the width of the terminal."""
    headings, rows = table_of(study)
    words = [at for at, name in enumerate(headings) if name in _TEXT_COLUMNS]
    lines = (line.rstrip() for line in aligned([headings, *rows], left=words))
    return "\n".join([caption(study), *lines, *([FOOTNOTE] if needs_footnote(study) else [])])


def text_table(study: Study) -> Table:
    """Return a table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    headings, rows = table_of(study)
    table = Table(
        box=box.SIMPLE_HEAD,
        title=Text(caption(study)),
        title_justify="left",
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading in _TEXT_COLUMNS else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def html_table(study: Study) -> str:
    """Return a table for a notebook; every name is escaped."""
    headings, rows = table_of(study)
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    note = f"<p>{html.escape(FOOTNOTE)}</p>" if needs_footnote(study) else ""
    return (
        f"<table><caption>{html.escape(caption(study))}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{note}"
    )
