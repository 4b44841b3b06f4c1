"""The result of an audit of tensors: rows, words, JSON and HTML."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.audit.tensors.columns import HEAD_COLUMNS, html_table
from analysis.audit.tensors.layers import Layer
from analysis.audit.tensors.remedies import Remedy, remedies
from analysis.audit.tensors.rows import HeadAudit, LayerAudit, summarise
from analysis.audit.tensors.verdicts import TROUBLE
from analysis.audit.tensors.visibility import Rules
from analysis.vocabulary.frames import dataframe
from analysis.vocabulary.output_file import write_whole
from analysis.vocabulary.strict_json import finite_or_none
from analysis.vocabulary.text import printable
from attnsym._page import Page

WIDE = 4.0
COARSE = 128.0  # from here on bfloat16 holds whole numbers only
MOST_NAMED = 12


@dataclass(frozen=True, repr=False)
class TensorAudit(Page):
    """
    What `audit_tensors` found.

    Attributes
    ----------
    source : str
        "arrays" or the names of the files.
    scale : str
        The scale's label.
    rules : Rules
        Causal, window, soft-cap and mask that held.
    notes : tuple of str
        What the reader of the file assumed.
    heads : tuple of HeadAudit
        One per layer and head.
    """

    source: str
    scale: str
    rules: Rules
    notes: tuple[str, ...]
    heads: tuple[HeadAudit, ...]
    _layers: tuple[Layer, ...] = field(default=(), repr=False, compare=False)

    @property
    def layers(self) -> tuple[LayerAudit, ...]:
        """One row per layer, in order."""
        names = dict.fromkeys(head.layer for head in self.heads)
        return tuple(summarise(name, tuple(h for h in self.heads if h.layer == name)) for name in names)

    @property
    def troubled(self) -> tuple[HeadAudit, ...]:
        """The heads that are saturated, near uniform or not finite."""
        return tuple(head for head in self.heads if head.verdict in TROUBLE)

    def to_records(self) -> list[dict[str, Any]]:
        """Return the heads as dictionaries of plain numbers and words, NaN as None, without `components`."""
        return [_record(head) for head in self.heads]

    def to_dataframe(self) -> Any:
        """Return the heads as a pandas DataFrame; ImportError with the line to install if pandas is missing."""
        return dataframe(self.to_records(), [f.name for f in dataclasses.fields(HeadAudit) if f.repr])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready dictionaries (strict JSON: NaN and infinities become None)."""
        return {
            "source": self.source,
            "scale": self.scale,
            "is_causal": self.rules.is_causal,
            "window": self.rules.window,
            "softcap": self.rules.softcap,
            "notes": list(self.notes),
            "summary": list(self.summary()),
            "layers": [_record(layer) for layer in self.layers],
            "heads": self.to_records(),
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` to a file."""
        write_whole(path, json.dumps(self.to_dict(), indent=2, allow_nan=False))

    def summary(self) -> tuple[str, ...]:
        """Return sentences: how many heads stand how, and which are in trouble, with the cause."""
        counts = Counter(head.verdict for head in self.heads)
        words = ", ".join(f"{n} {word}" for word, n in counts.most_common())
        rows = sum(h.rows for h in self.heads)
        padded, short = sum(h.rows_padded for h in self.heads), sum(h.rows_short for h in self.heads)
        broken = sum(h.rows_nonfinite for h in self.heads)
        left_out = f"left out: {padded:,} padded, {short:,} that see fewer than two keys, {broken:,} not finite"
        sentences = [f"{len(self.heads)} heads: {words}.", f"{rows:,} query rows counted; {left_out}."]
        stuck = [head for head in self.troubled if head.verdict != "near uniform"]
        sentences += [_sentence(head) for head in stuck[:MOST_NAMED]]
        if len(stuck) > MOST_NAMED:
            sentences.append(f"{len(stuck) - MOST_NAMED} more in trouble: {_places(stuck[MOST_NAMED:])}.")
        flat = [head for head in self.troubled if head.verdict == "near uniform"]
        if flat:
            sentences.append(f"{len(flat)} near uniform ({_span(flat)}; {flat[0].cause}): {_places(flat)}.")
        largest = max((head for head in self.heads if head.rows), key=lambda head: head.largest_score, default=None)
        if largest is not None and largest.largest_score >= COARSE:
            step = 2.0 ** (math.floor(math.log2(largest.largest_score)) - 7)
            place = f"{printable(largest.layer)}, head {largest.head}"
            sentences.append(
                f"The largest score is {largest.largest_score:.3g} ({place}): in bfloat16, numbers of that size are "
                f"{step:g} apart."
            )
        wide = [h for h in self.heads if h.within_row_variance > WIDE and h not in self.troubled]
        if wide:
            named = "; ".join(f"{printable(head.layer)} {head.head} ({head.cause})" for head in wide[:MOST_NAMED])
            more = f"; and {len(wide) - MOST_NAMED} more" if len(wide) > MOST_NAMED else ""
            sentences.append(f"{len(wide)} more with a variance above {WIDE:g}, by itself no fault: {named}{more}.")
        return tuple(sentences)

    def remedies(
        self, quantity: str, target: float, *, heads: Sequence[tuple[str, int]] | None = None
    ) -> tuple[Remedy, ...]:
        """Return the scale, soft-cap and clip factor that bring heads to a target; see `remedies`."""
        return remedies(self.heads, self._layers, self.rules, quantity, target, chosen=heads)

    def __str__(self) -> str:
        """Return the summary."""
        return "\n".join([f"TensorAudit of {printable(self.source)}, scale {self.scale}", *self.summary()])

    def _repr_html_(self) -> str:
        return html_table(HEAD_COLUMNS, self.heads, self.summary())

    def _line(self) -> str:
        return f"{printable(self.source)}: {self.summary()[0]}"

    def plot(self) -> Any:
        """Return a matplotlib Figure: a map of the heads, layers down and heads across."""
        return importlib.import_module("analysis.show.plots").audit_map(self)


def _sentence(head: HeadAudit) -> str:
    place = f"{printable(head.layer)}, head {head.head}: {head.verdict}"
    if not head.rows:
        return f"{place}, no row counts ({head.rows_nonfinite} rows hold NaN or infinite scores)."
    numbers = (
        f"entropy / log m {head.entropy_ratio:.3g} where {head.predicted_entropy_ratio:.3g} is expected, tr J "
        f"{head.jacobian_trace:.2g}, variance {head.within_row_variance:.3g}"
    )
    broken = f"; {head.rows_nonfinite} rows hold NaN or infinite scores" if head.rows_nonfinite else ""
    return f"{place} ({numbers}){broken}" + (f"; {head.cause}." if head.cause else ".")


def _span(heads: Sequence[HeadAudit]) -> str:
    """Return the range of entropy and variance over some heads."""
    ratios = [head.entropy_ratio for head in heads]
    sizes = [head.within_row_variance for head in heads]
    return f"entropy / log m {min(ratios):.3f} to {max(ratios):.3f}, variance {min(sizes):.3g} to {max(sizes):.3g}"


def _places(heads: Sequence[HeadAudit]) -> str:
    """Return "layer0 0-11; layer1 3, 5"."""
    parts = []
    for layer in dict.fromkeys(head.layer for head in heads):
        runs: list[list[int]] = []
        for number in sorted(head.head for head in heads if head.layer == layer):
            if runs and number == runs[-1][-1] + 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        words = (f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
        parts.append(f"{printable(layer)} {', '.join(words)}")
    return "; ".join(parts)


def _record(row: Any) -> dict[str, Any]:
    fields: Sequence[dataclasses.Field[Any]] = dataclasses.fields(row)
    return {f.name: finite_or_none(getattr(row, f.name)) for f in fields if f.repr}
