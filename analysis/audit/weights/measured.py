"""A file of queries and keys, or of hidden states, beside an audit of weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.audit.files.audit import audit_files
from analysis.audit.files.naming import natural_order
from analysis.audit.files.readers import read_tensors
from analysis.audit.tensors.result import TensorAudit
from analysis.audit.weights.result import WeightsAudit

HIDDEN = "hidden"


def measured(weights: WeightsAudit, paths: Sequence[str | Path], *, is_causal: bool = False) -> TensorAudit:
    """
    Audit the queries and keys in files, or those that the weights make of the hidden states in them.

    Parameters
    ----------
    weights : WeightsAudit
    paths : sequence of path
        Queries and keys as `audit_files` takes them, or tensors with "hidden" in their names, (batch, n_tokens,
        d_model), one per layer in natural order; one more, the last layer's output, is left out.
    is_causal : bool

    Raises
    ------
    OSError, ValueError
        As `audit_files` and `WeightsAudit.of_hidden`.
    """
    tensors = read_tensors(paths)
    names = sorted((name for name in tensors if HIDDEN in name.lower()), key=natural_order)
    if not names:
        return audit_files(list(paths), is_causal=is_causal, scale=weights.heads[0].scale)
    layers = len({head.layer for head in weights.heads})
    names = names[:layers] if len(names) == layers + 1 else names
    return weights.of_hidden([tensors[name].array() for name in names], is_causal=is_causal)
