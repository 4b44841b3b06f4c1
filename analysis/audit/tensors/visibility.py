"""What a block of query rows may see: padding is cut away before, so positions are those in the padded sequence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors.arrays import as_attention_mask
from analysis.vocabulary.row_formulas import HIDDEN_BIAS
from attnsym._settings import read_settings
from attnsym.masks import Window, key_range

Array = NDArray[Any]


@dataclass(frozen=True)
class Rules:
    """The masks that hold for every head: causal (top-left), window, soft-cap, and an explicit mask."""

    is_causal: bool = False
    window: Window = None
    softcap: float | None = None
    attn_mask: Any = None

    def __post_init__(self) -> None:
        """Refuse what the core refuses, in its words."""
        read_settings(is_causal=self.is_causal, window=self.window, softcap=self.softcap)

    @property
    def hides(self) -> bool:
        """Whether some pair may be hidden."""
        return self.is_causal or self.window is not None or self.attn_mask is not None

    @property
    def adds(self) -> bool:
        """Whether a floating mask is added."""
        return self.attn_mask is not None and as_attention_mask(self.attn_mask).dtype.kind == "f"


@dataclass(frozen=True)
class RowView:
    """Visibility and bias of one head in one batch item, block by block."""

    rules: Rules
    rows: Array
    columns: Array
    mask: Array | None

    @cached_property
    def _reach(self) -> tuple[Array, Array]:
        """For every position up to the last row: the first key it may see, and the first one behind those."""
        n_queries, n_keys = (int(positions.max(initial=-1)) + 1 for positions in (self.rows, self.columns))
        return key_range(n_queries, n_keys, self.rules.is_causal, self.rules.window, "top_left")

    def visible(self, span: slice) -> Array | None:
        """Return the boolean (rows, n_keys) of what these rows see, or None where they see everything."""
        seen: Array | None = None
        if self.rules.is_causal or self.rules.window is not None:
            first, end = (bound[self.rows[span], None] for bound in self._reach)
            seen = (self.columns >= first) & (self.columns < end)
        if self.mask is not None:
            block = self.mask[np.ix_(self.rows[span], self.columns)]
            allowed = block if block.dtype == bool else ~(block <= HIDDEN_BIAS)
            seen = allowed if seen is None else seen & allowed
        return seen

    def bias(self, span: slice) -> Array | None:
        """Return the floating mask of these rows, or None."""
        if self.mask is None or self.mask.dtype == bool:
            return None
        block: Array = self.mask[np.ix_(self.rows[span], self.columns)].astype(np.float64)
        return block
