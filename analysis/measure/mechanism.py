"""The mechanism that a study is asked for, and what it goes with."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from analysis.vocabulary.mechanism import RowMechanism, read_bias
from analysis.vocabulary.numbers import number, shown
from analysis.vocabulary.setting import Setting

NORMALIZERS = ("softmax", "sigmoid", "relu")
# Quantities of a row whose weights each key has for itself, and that need no sum of 1.
WITHOUT_SUM = ("row_sum", "key_weight", "max_weight", "power_sum_2", "power_sum_3")


def read_mechanism(sink: Any, bias: Any, normalizer: Any, normalizer_bias: Any, qk_norm: Any) -> RowMechanism:
    """Check the arguments one by one; ValueError with one sentence naming the argument."""
    if not (isinstance(normalizer, str) and normalizer in NORMALIZERS):
        raise ValueError(f"normalizer must be 'softmax', 'sigmoid' or 'relu': got {shown(normalizer)}")
    if not (qk_norm is None or (isinstance(qk_norm, str) and qk_norm in ("l2", "rms"))):
        raise ValueError(f"qk_norm must be 'l2' or 'rms': got {shown(qk_norm)}")
    is_none = sink is None or (isinstance(sink, numbers.Real) and sink == -math.inf)
    if normalizer == "softmax" and normalizer_bias is not None:
        raise ValueError("normalizer_bias needs normalizer 'sigmoid' or 'relu': softmax does not see a constant")
    if normalizer != "softmax" and not is_none:
        raise ValueError(f"sink needs normalizer 'softmax', whose denominator it enters: got {normalizer!r}")
    return RowMechanism(
        sink=None if is_none else number("sink", sink) + 0.0,
        bias=read_bias(bias),
        normalizer=normalizer,
        normalizer_bias=None if normalizer_bias is None else number("normalizer_bias", normalizer_bias) + 0.0,
        qk_norm=qk_norm,
    )


def check_mechanism(cell: Setting, lengths: Sequence[int]) -> None:
    """Refuse a mechanism that does not reach the quantity, or without which it means nothing."""
    what, record = cell.mechanism, cell.record
    given = ", ".join(what.settings)
    if given and record is None:
        raise ValueError(f"{given} does not reach a callable quantity, which receives query, key and scale only")
    if what.qk_norm is not None and cell.score != "dot":
        raise ValueError("qk_norm goes with score 'dot': another score has a norm of its own, or none")
    if record is None:
        return
    after = [name for name in what.settings if name != "qk_norm"]
    if after and record.reads == "score":
        raise ValueError(f"{after[0]} acts on a row of scores: it does not apply to the quantity 'score'")
    if record.name == "sink_weight" and what.sink is None:
        raise ValueError("sink_weight needs a sink: got none")
    if record.name == "row_sum" and what.normalizer == "softmax":
        raise ValueError("row_sum needs normalizer 'sigmoid' or 'relu': a row of softmax has the sum 1")
    if what.normalizer != "softmax" and record.name not in WITHOUT_SUM and record.reads != "query_gradient":
        raise ValueError(
            f"normalizer {what.normalizer!r} gives weights of no fixed sum, which {record.name} needs: "
            f"ask for one of {', '.join(WITHOUT_SUM)} or a gradient by the query"
        )
    for n in lengths:
        what.bias_of(n)
