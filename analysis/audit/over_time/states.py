"""What two audits of tensors, or two of weights, have in common: a head's size, entropy and factors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.audit.tensors.result import TensorAudit
from analysis.audit.weights.result import WeightsAudit
from analysis.vocabulary.numbers import shown
from analysis.vocabulary.text import printable

MAX_JSON = 1_000_000_000
# one name for the columns of both kinds, first of tensors, then of weights
VARIANCE = ("within_row_variance", "score_variance")
ENTROPY = ("entropy_ratio", "entropy_fraction")
LARGEST = ("largest_score", "score_bound")
FACTORS = {
    "factor_scale": "the scale",
    "factor_top_key": "one key",
    "factor_top_query": "one query",
    "factor_mean": "the queries' shared mean",
    "query_norm": "norms of the queries",
    "key_norm": "norms of the keys",
    "factor_channel": "unequal channels",
    "factor_alignment": "alignment of q and k",
}


@dataclass(frozen=True)
class HeadState:
    """
    One head in one audit; NaN where it was not measured.

    Attributes
    ----------
    variance, entropy, largest : of the scores within a row; entropy over its maximum; the largest |score| (of weights,
        the bound on it).
    factors : each factor of the variance by name; norms of queries and keys apart, squared and over d_k.
    channel, channel_share : the component without which least is left, and the part that goes with it.
    direction_share : of weights, the part of the largest singular value of W_q W_kᵀ.
    key_head : whose keys the head reads.
    self_score : of weights, the mean score of a token with itself above that with another.
    d_k : components of q and k.
    normalised : of weights, q or k pass a norm after the projection.
    """

    variance: float
    entropy: float
    largest: float
    factors: Mapping[str, float]
    channel: int
    channel_share: float
    direction_share: float
    key_head: int
    self_score: float
    d_k: int
    normalised: bool


Heads = dict[tuple[str, int], HeadState]
Audit = TensorAudit | WeightsAudit


def heads_of(audit: Audit | Mapping[str, Any]) -> Heads:
    """Return the heads of an audit, or of what its `to_dict` gave, by layer and number; ValueError otherwise."""
    records = audit.get("heads") if isinstance(audit, Mapping) else audit.to_records()
    try:
        assert records is not None
        return {(str(record["layer"]), int(record["head"])): _state(record) for record in records}
    except (AssertionError, KeyError, TypeError, ValueError, OverflowError, StopIteration, AttributeError):
        raise ValueError("this is no audit of tensors or of weights: it lacks heads with their variance") from None


def kind_of(audit: Audit | Mapping[str, Any]) -> str:
    """Return "weights" or "tensors"; ValueError for what is no audit."""
    if isinstance(audit, Mapping):
        return "weights" if "null" in audit else "tensors"
    if not isinstance(audit, TensorAudit | WeightsAudit):
        raise ValueError(f"this is no audit of tensors or of weights: got {shown(audit)}")
    return "weights" if isinstance(audit, WeightsAudit) else "tensors"


def read_audit(path: Path) -> dict[str, Any]:
    """Return an audit as `to_json` or ``attnsym audit --json`` wrote it; ValueError for another file."""
    if path.stat().st_size > MAX_JSON:
        raise ValueError(f"{printable(path.name)} is too large for the JSON of an audit")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict) or not isinstance(stored.get("heads"), list):
        raise ValueError(f"{printable(path.name)} is no audit: write one with attnsym audit … --json")
    return stored


def _state(record: Mapping[str, Any]) -> HeadState:
    d_k = int(record["d_k"])
    factors = {name: _number(record.get(name, 1.0)) for name in FACTORS if name.startswith("factor_")}
    # both about their means, of which the keys' is not seen and the queries' is a factor of its own
    query = _number(record["query_norm"]) ** 2 * (1 - _number(record["query_mean_share"])) / d_k
    factors |= {"query_norm": query, "key_norm": _ratio(_number(record["factor_norm"]), query)}
    return HeadState(
        variance=_first(record, VARIANCE),
        entropy=_first(record, ENTROPY),
        largest=_first(record, LARGEST),
        factors=factors,
        channel=int(record["largest_channel"]),
        channel_share=_number(record["largest_channel_share"]),
        direction_share=_number(record.get("top_direction_share")),
        key_head=int(record.get("key_head", record["head"])),
        self_score=_number(record.get("self_score")),
        d_k=d_k,
        normalised=bool(record.get("normalised", False)),
    )


def _first(record: Mapping[str, Any], names: Sequence[str]) -> float:
    return _number(next(record[name] for name in names if name in record))


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else math.nan
