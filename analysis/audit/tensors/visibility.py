"""What a block of query rows may see: padding is cut away before, so positions are those in the padded sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors.arrays import as_attention_mask
from analysis.audit.tensors.score_rows import HIDDEN_BIAS

Array = NDArray[Any]
Window = int | tuple[int, int] | None


@dataclass(frozen=True)
class Rules:
    """The masks that hold for every head: causal (top-left), window, soft-cap, and an explicit mask."""

    is_causal: bool = False
    window: Window = None
    softcap: float | None = None
    attn_mask: Any = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense, in the words of the caller's arguments."""
        if self.softcap is not None and not (np.isfinite(self.softcap) and self.softcap > 0):
            raise ValueError(f"softcap must be a positive number: got {self.softcap!r}")
        sides = self.window if isinstance(self.window, tuple) else (self.window,)
        least = 0 if isinstance(self.window, tuple) else 1
        if self.window is not None and not (
            len(sides) == 1 + (least == 0)
            and all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= least for n in sides)
        ):
            raise ValueError(f"window must be a whole number >= 1 or a pair (left, right) >= 0: got {self.window!r}")

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

    def visible(self, span: slice) -> Array | None:
        """Return the boolean (rows, n_keys) of what these rows see, or None where they see everything."""
        i, j = self.rows[span, None], self.columns[None, :]
        seen: Array | None = None
        if self.rules.is_causal:
            seen = j <= i
        if self.rules.window is not None:
            window = self.rules.window
            left, right = window if isinstance(window, tuple) else (window - 1, window - 1)
            near = (j >= i - left) & (j <= i + right)
            seen = near if seen is None else seen & near
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
