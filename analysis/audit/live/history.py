"""Rows of a watched model, and their files: CSV or JSON lines, one row per step, module and head."""

from __future__ import annotations

import csv
import dataclasses
import glob
import json
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from analysis.vocabulary.strict_json import finite_or_none


@dataclass(frozen=True)
class WatchRow:
    """
    One head of one attention call in one forward pass.

    Attributes
    ----------
    step : forward passes of the watched model before this one.
    module, call, head : the module's name, the how manieth attention call in it during this pass, and the head.
    d_k, n_queries, n_keys, scale, dtype : sizes, the factor on kᵀq that was passed, and the type of the queries.
    rows, rows_left_out : query rows counted, and those left out: padded, fewer than two visible keys, not finite.
    largest_score : largest absolute scaled score over all visible pairs of the batch.
    within_row_variance, entropy_ratio, dead_row_fraction : means over rows, as in `HeadAudit` (population variance).
    query_norm, key_norm : rms ‖q‖ and ‖k‖ over tokens, padding left out where it is known.
    cosine_at_largest : cosine of the q and k of the largest score: near 1 means alignment, not norms alone.
    largest_channel, largest_channel_share : the component with the largest |q_c·k_c| there, and its part of the sum.
    rounding_step : distance of neighbouring numbers of that size in the queries' type (bfloat16: 1 from 128 on).
    query_gradient_norm, key_gradient_norm : rms over tokens of ‖∂loss/∂q‖, ‖∂loss/∂k‖; NaN without a backward pass.
    largest_signed_score : the largest score with its sign, which is what softmax and its overflow see.
    first_key_share : mean weight on the first key.
    sink_share : mean weight on extra columns of the softmax that have no value (a learned sink); NaN without them.
    logsumexp : mean over rows of log Σ exp(score), the sink left out.
    score_bound : |scale|·max ‖q‖·max ‖k‖, which no score exceeds (a bias left out).
    source : "fused" (a call of scaled_dot_product_attention) or "eager" (the argument of a softmax; its scale is not
        known, and d_k, norms and the bound only where its product was seen: 0 and NaN otherwise).
    rank : of the process, 0 unless torch.distributed runs.
    predicted_entropy_ratio : E[entropy]/log m of Gaussian scores with the mean variance within rows (the unbiased one),
        averaged over the rows' own m, to 0.001. Far below it, a few keys stand out of the crowd.
    query_at_largest, key_at_largest : places of the pair of the largest score in their sequences; −1 where not seen.
    query_norm_at_largest, key_norm_at_largest : ‖q‖ and ‖k‖ of that pair.
    """

    step: int
    module: str
    call: int
    head: int
    d_k: int
    n_queries: int
    n_keys: int
    scale: float
    dtype: str
    rows: int
    rows_left_out: int
    largest_score: float
    within_row_variance: float
    entropy_ratio: float
    dead_row_fraction: float
    query_norm: float
    key_norm: float
    cosine_at_largest: float
    largest_channel: int
    largest_channel_share: float
    rounding_step: float
    query_gradient_norm: float
    key_gradient_norm: float
    largest_signed_score: float = math.nan
    first_key_share: float = math.nan
    sink_share: float = math.nan
    logsumexp: float = math.nan
    score_bound: float = math.nan
    source: str = "fused"
    rank: int = 0
    predicted_entropy_ratio: float = math.nan
    query_at_largest: int = -1
    key_at_largest: int = -1
    query_norm_at_largest: float = math.nan
    key_norm_at_largest: float = math.nan


_FIELDS = {field.name: field.type for field in dataclasses.fields(WatchRow)}
_LATER = {f.name: f.default for f in dataclasses.fields(WatchRow) if f.default is not dataclasses.MISSING}
_KINDS = {"int": int, "float": float, "str": str}


def rank_and_size() -> tuple[int, int]:
    """Return this process's rank and the number of processes: of torch.distributed, or as its launcher sets them."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1


class HistoryFile:
    """
    Writes rows as they come; what is written stays when the program dies.

    Of several processes each writes its own file: ``h.csv`` becomes ``h.rank0.csv``, ``h.rank1.csv``, ….
    """

    def __init__(self, path: str | Path) -> None:
        """Create or replace the file; ValueError unless it ends in .csv, .jsonl or .json."""
        self.path = Path(path)
        if self.path.suffix.lower() not in (".csv", ".jsonl", ".json"):
            raise ValueError(f"history must be a .csv or .jsonl file: got {str(path)!r}")
        rank, size = rank_and_size()
        if size > 1:
            self.path = self.path.with_name(f"{self.path.stem}.rank{rank}{self.path.suffix}")
        self._stream: IO[str] = self.path.open("w", encoding="utf-8", newline="")
        self._csv = csv.writer(self._stream) if self.path.suffix.lower() == ".csv" else None
        if self._csv is not None:
            self._csv.writerow(_FIELDS)

    def write(self, rows: Iterable[WatchRow]) -> None:
        """Append rows and flush them."""
        for row in rows:
            values = dataclasses.asdict(row)
            if self._csv is not None:
                self._csv.writerow(values.values())
            else:
                self._stream.write(json.dumps({name: finite_or_none(value) for name, value in values.items()}) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def read_history(path: str | Path) -> tuple[WatchRow, ...]:
    """
    Return the rows of a history file, or of the files that several processes wrote under its name, by step and rank.

    Raises
    ------
    OSError
        When the file cannot be opened.
    ValueError
        For a file that `watch` has not written; a last line cut short by a crash is left out.
    """
    whole = Path(path)
    parts = whole.parent.glob(f"{glob.escape(whole.stem)}.rank*{whole.suffix}")
    numbered = {p.stem.rpartition(".rank")[2]: p for p in parts}
    ranks = [numbered[number] for number in sorted(filter(str.isdecimal, numbered), key=int)]
    if whole.exists() or not ranks:
        return _read(whole)
    return tuple(sorted((row for part in ranks for row in _read(part)), key=lambda row: (row.step, row.rank)))


def _read(path: Path) -> tuple[WatchRow, ...]:
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")[:-1]  # after the last newline stands nothing, or half a row
    try:
        if path.suffix.lower() == ".csv":
            return tuple(_row(record) for record in csv.DictReader(lines))
        return tuple(_row(json.loads(line)) for line in lines)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name} is no history of watch: {error}") from None


def _row(record: dict[str, Any]) -> WatchRow:
    values: dict[str, Any] = {}
    for name, kind in _FIELDS.items():
        value = record.get(name, _LATER[name]) if name in _LATER else record[name]
        values[name] = math.nan if value is None else _KINDS[str(kind)](value)
    return WatchRow(**values)
