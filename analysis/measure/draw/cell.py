"""One cell of a study: all that its draws depend on, in a form that travels to a worker and names its streams."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from analysis.measure.draw.chunks import chunk_size
from analysis.measure.run.seeds import settings_digest
from analysis.vocabulary.setting import Setting

_CHUNK_ELEMENTS = {"direct": 1 << 18, "conditional": 1 << 17}  # working sets near the size of a core's cache
_CALLED_CHUNK = 16  # of a callable law, which draws one replicate at a time
_SHARD_ELEMENTS = 1 << 22  # tens of milliseconds: little is lost to a kill, little spent on bookkeeping
_MAX_SHARD = 1 << 16


@dataclass(frozen=True, kw_only=True)
class StudyCell(Setting):
    """
    The setting of one cell, how it is drawn, and what rows and streams call its parts.

    Attributes
    ----------
    name : str
        Of the study's streams: the quantity's name unless the caller gave one.
    law_name, score_name, scale_name : str
        How rows and streams call them.
    sampler, precision : str
        ``"direct"`` or ``"conditional"``; ``"double"`` or ``"single"``.
    """

    name: str
    law_name: str
    score_name: str
    scale_name: str
    sampler: str
    precision: str

    @property
    def settings(self) -> dict[str, Any]:
        """What the streams depend on, as plain numbers and strings; columns of a study's rows bear these names."""
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
            **self.mechanism.settings,
        }

    @cached_property
    def digest(self) -> str:
        """The name of the cell's streams and of its rows in a store."""
        return settings_digest(self.name, self.settings)

    @property
    def where(self) -> str:
        """The cell in words, for messages."""
        return f"d_k={self.d_k}, n_keys={self.n_keys}, scale={self.scale_name}"

    @property
    def dtype(self) -> type[Any]:
        """The type in which vectors and scores are drawn."""
        return np.float64 if self.precision == "double" else np.float32

    @property
    def keys_drawn(self) -> int:
        """How many keys one replicate draws: a score needs only one."""
        return 1 if self.reads == "score" else self.n_keys

    @property
    def queries_drawn(self) -> int:
        """How many queries one replicate draws: one, or under a causal mask as many as keys."""
        return self.n_keys if self.is_causal else 1

    @property
    def elements(self) -> int:
        """Random numbers per replicate, to the nearest factor or two: what chunk and shard sizes are made from."""
        keys = self.keys_drawn
        if self.sampler == "conditional":
            assert not callable(self.laws)
            return keys if self.laws[0].name == "normal" else 2 * keys + self.d_k
        return (keys + self.queries_drawn) * self.d_k + keys * self.queries_drawn

    @property
    def chunk(self) -> int:
        """Replicates drawn at once; always a whole chunk, so that a longer run begins with the shorter one."""
        return _CALLED_CHUNK if callable(self.laws) else chunk_size(self.elements, _CHUNK_ELEMENTS[self.sampler])

    @property
    def shard(self) -> int:
        """Replicates of one shard: a property of the cell, never of the number of workers or replicates."""
        return self.chunk * max(1, min(_SHARD_ELEMENTS // self.elements, _MAX_SHARD) // self.chunk)
