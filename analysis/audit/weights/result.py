"""The result of an audit of weights: rows, words, JSON."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from analysis.audit.tensors.arrays import LayerArrays
from analysis.audit.tensors.audit import audit_layers
from analysis.audit.tensors.columns import Column, html_table
from analysis.audit.tensors.layers import Layer
from analysis.audit.tensors.result import TensorAudit
from analysis.audit.tensors.visibility import Rules
from analysis.audit.weights.heads import HeadWeights
from analysis.audit.weights.hidden import of_hidden
from analysis.audit.weights.projections import Projections
from analysis.vocabulary.frames import dataframe
from analysis.vocabulary.output_file import write_whole
from analysis.vocabulary.scale import Scale
from analysis.vocabulary.strict_json import finite_or_none
from analysis.vocabulary.text import printable
from attnsym._page import Page

COLUMNS = (
    Column("layer", "layer", "layer"),
    Column("head", "head", "head"),
    Column("score_variance", "var", "score variance"),
    Column("entropy_fraction", "H/log n", "entropy / log n_keys"),
    Column("score_bound", "max |s| ≤", "bound on |score|"),
    Column("largest_singular_value", "σ_max", "largest singular value of W_q W_kᵀ"),
    Column("stable_rank", "rank", "stable rank"),
    Column("symmetric_share", "sym", "symmetric part"),
    Column("verdict", "verdict", "verdict"),
    Column("cause", "", "cause"),  # too long for a table of the terminal, where the summary has it
)
MOST_NAMED = 12


@dataclass(frozen=True, repr=False)
class WeightsAudit(Page):
    """
    What `audit_weights` found.

    Attributes
    ----------
    source : str
        "arrays" or the names of the files.
    scale : str
        The scale's label.
    n_keys : int
        At which entropies are told.
    notes : tuple of str
        What the reader of the files assumed.
    heads : tuple of HeadWeights
        One per layer and head.
    """

    source: str
    scale: str
    n_keys: int
    notes: tuple[str, ...]
    heads: tuple[HeadWeights, ...]
    _layers: tuple[Callable[[], Projections], ...] = field(default=(), repr=False, compare=False)
    _scale: Scale | None = field(default=None, repr=False, compare=False)

    @property
    def null(self) -> str:
        """What every number assumes."""
        return (
            "Tokens after the norm have length √d_model and no preferred direction (E x xᵀ = I), and queries and keys "
            "come from different tokens; trained models differ: audit their queries and keys too."
        )

    def of_hidden(self, hidden: Any, *, is_causal: bool = False) -> TensorAudit:
        """
        Audit the queries and keys that these weights make of a sample of hidden states.

        Parameters
        ----------
        hidden : array_like, sequence of array_like, or mapping of layer name to array_like
            (batch, n_tokens, d_model) of every layer audited, in order: what enters the norm before the projections,
            or the projections themselves where no gain of such a norm is known (or it belongs to the block before).
            Rotary embedding turns token i of a sample to position i.
        is_causal : bool

        Returns
        -------
        TensorAudit
            ``compare_audits(weights, audit)`` tells how far the null is off.

        Raises
        ------
        ValueError
            For another number of layers, or states that do not fit.
        """
        names = list(dict.fromkeys(head.layer for head in self.heads))
        if isinstance(hidden, Mapping):
            missing = [name for name in names if name not in hidden]
            if missing:
                raise ValueError(f"hidden must have the layers of the weights: {printable(missing[0])} is missing")
            samples = [hidden[name] for name in names]
        else:
            samples = list(hidden) if isinstance(hidden, list | tuple) else [hidden]
        if len(samples) != len(self._layers):
            raise ValueError(f"hidden must have one array per layer, {len(self._layers)}: got {len(samples)}")
        assert self._scale is not None
        layers = [
            Layer(name, partial(_fetch, load, states))
            for name, load, states in zip(names, self._layers, samples, strict=True)
        ]
        return audit_layers(layers, rules=Rules(is_causal=is_causal), scale=self._scale, source="hidden states")

    def to_records(self) -> list[dict[str, Any]]:
        """Return the heads as dictionaries of plain numbers and words, NaN as None."""
        return [
            {name: finite_or_none(value) for name, value in dataclasses.asdict(head).items()} for head in self.heads
        ]

    def to_dataframe(self) -> Any:
        """Return the heads as a pandas DataFrame; ImportError with the line to install if pandas is missing."""
        return dataframe(self.to_records(), [f.name for f in dataclasses.fields(HeadWeights)])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready dictionaries (strict JSON: NaN and infinities become None)."""
        return {
            "source": self.source,
            "scale": self.scale,
            "n_keys": self.n_keys,
            "null": self.null,
            "notes": list(self.notes),
            "summary": list(self.summary()),
            "heads": self.to_records(),
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` to a file."""
        write_whole(path, json.dumps(self.to_dict(), indent=2, allow_nan=False))

    def summary(self) -> tuple[str, ...]:
        """Return sentences: how many heads stand how, and which have the largest scores, with the cause."""
        counts = Counter(head.verdict for head in self.heads)
        sentences = [f"{len(self.heads)} heads: {', '.join(f'{n} {word}' for word, n in counts.most_common())}."]
        large = sorted((h for h in self.heads if h.score_variance > 1), key=lambda h: -h.score_variance)
        sentences += [_sentence(head) for head in large[:MOST_NAMED]]
        if len(large) > MOST_NAMED:
            sentences.append(f"{len(large) - MOST_NAMED} more have a variance above 1.")
        flat = [head for head in self.heads if head.verdict == "near uniform"]
        if flat:
            sentences.append(
                f"{len(flat)} near uniform (variance {min(h.score_variance for h in flat):.3g} to "
                f"{max(h.score_variance for h in flat):.3g}; {flat[0].cause})."
            )
        return (*sentences, self.null)

    def __str__(self) -> str:
        """Return the summary."""
        return "\n".join([f"WeightsAudit of {printable(self.source)}, scale {self.scale}", *self.summary()])

    def _repr_html_(self) -> str:
        return html_table(COLUMNS, self.heads, self.summary())

    def _line(self) -> str:
        return f"{printable(self.source)}: {self.summary()[0]}"

    def plot(self) -> Any:
        """Return a matplotlib Figure: a map of the heads, layers down and heads across."""
        return importlib.import_module("analysis.show.plots").audit_map(self)


def _fetch(load: Callable[[], Projections], states: Any) -> LayerArrays:
    return of_hidden(load(), states)


def _sentence(head: HeadWeights) -> str:
    return (
        f"{printable(head.layer)}, head {head.head}: {head.verdict} (variance {head.score_variance:.3g}, entropy / "
        f"log n {head.entropy_fraction:.3g}, no |score| above {head.score_bound:.3g}); {head.cause}."
    )
