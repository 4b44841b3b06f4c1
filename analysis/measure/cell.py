"""One cell of a study: all that its draws depend on, in a form that travels to a worker and names its streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.measure.run.seeds import settings_digest
from analysis.vocabulary.laws import Law, resolve_law
from analysis.vocabulary.quantities import find_quantity
from analysis.vocabulary.quantity import Quantity

_CHUNK_ELEMENTS = {"direct": 1 << 18, "conditional": 1 << 17}  # working sets near the size of a core's cache
_SHARD_ELEMENTS = 1 << 22  # tens of milliseconds: little is lost to a kill, little spent on bookkeeping
_MAX_SHARD = 1 << 16


def reads_score(quantity: str | Callable[..., Any]) -> bool:
    """Tell the quantities of a single score, which has no row."""
    return isinstance(quantity, str) and find_quantity(quantity).reads == "score"


@dataclass(frozen=True)
class Cell:
    """
    The settings of one cell.

    Attributes
    ----------
    name : str
        Of the study's streams: the quantity's name unless the caller gave one.
    quantity, law, score : str or callable, ...
        As the caller gave them; `law` is a pair (query, key) or one callable.
    law_name, score_name, scale_name : str
        How rows and streams call them.
    scale : float
        Its value at this d_k and n_keys.
    sampler, precision : str
        ``"direct"`` or ``"conditional"``; ``"double"`` or ``"single"``.
    """

    name: str
    quantity: str | Callable[..., Any]
    law: Any
    law_name: str
    d_k: int
    n_keys: int
    scale: float
    scale_name: str
    alignment: float
    key_correlation: float
    score: str | Callable[..., Any]
    score_name: str
    softcap: float | None
    is_causal: bool
    sampler: str
    precision: str

    @property
    def settings(self) -> dict[str, Any]:
        """What the streams depend on, as plain numbers and strings."""
        return {
            "quantity": self.quantity if isinstance(self.quantity, str) else "callable",
            "law": self.law_name,
            "d_k": self.d_k,
            "n_keys": self.n_keys,
            "scale": self.scale_name,
            "alignment": self.alignment,
            "key_correlation": self.key_correlation,
            "score": self.score_name,
            "softcap": self.softcap,
            "is_causal": self.is_causal,
            "sampler": self.sampler,
            "precision": self.precision,
        }

    @cached_property
    def digest(self) -> str:
        """The name of the cell's streams and of its rows in a store."""
        return settings_digest(self.name, self.settings)

    @property
    def record(self) -> Quantity:
        """The quantity's record, unless the quantity is a callable."""
        return find_quantity(self.quantity)

    @property
    def component_laws(self) -> tuple[Law, Law]:
        """The laws of the components of query and key, unless the law is a callable."""
        return resolve_law(self.law[0]), resolve_law(self.law[1])

    @property
    def dtype(self) -> type[Any]:
        """The type in which vectors and scores are drawn."""
        return np.float64 if self.precision == "double" else np.float32

    @property
    def keys_drawn(self) -> int:
        """How many keys one replicate draws: a score needs only one."""
        return 1 if reads_score(self.quantity) else self.n_keys

    @property
    def queries_drawn(self) -> int:
        """How many queries one replicate draws: one, or under a causal mask as many as keys."""
        return self.n_keys if self.is_causal else 1

    @property
    def elements(self) -> int:
        """Random numbers per replicate, to the nearest factor or two: what chunk and shard sizes are made from."""
        keys = self.keys_drawn
        if self.sampler == "conditional":
            return keys * (1 if self.law[0] == "normal" else 2) + (0 if self.law[0] == "normal" else self.d_k)
        return (keys + self.queries_drawn) * self.d_k + keys * self.queries_drawn

    @property
    def chunk(self) -> int:
        """Replicates drawn at once; always a whole chunk, so that a longer run begins with the shorter one."""
        if callable(self.law):
            return 16
        return max(1, min(_CHUNK_ELEMENTS[self.sampler] // self.elements, 1 << 13))

    @property
    def shard(self) -> int:
        """Replicates of one shard: a property of the cell, never of the number of workers or replicates."""
        chunks = min(_SHARD_ELEMENTS // self.elements, _MAX_SHARD) // self.chunk
        return self.chunk * max(1, chunks)

    @property
    def is_event(self) -> bool:
        """Whether a replicate is 0 or 1, so that the mean is a proportion; a mean over causal rows is neither."""
        return isinstance(self.quantity, str) and self.record.is_event and not self.is_causal

    @property
    def where(self) -> str:
        """The cell in words, for messages."""
        return f"d_k={self.d_k}, n_keys={self.n_keys}, scale={self.scale_name}"

    def draw(self, sequence: np.random.SeedSequence, replicates: int) -> NDArray[np.float64]:
        """Return that many independent values of the quantity."""
        from analysis.measure.draw.samplers import draw  # which needs this module

        return draw(self, sequence, replicates)
