"""Thresholds on a watched model: which head crossed which, and why its scores are large."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.audit.live.history import WatchRow
from analysis.vocabulary.text import printable

# the column of each quantity, and whether a head is in trouble below the threshold instead of above it
QUANTITIES = {
    "largest_score": ("largest_score", False),
    "largest_signed_score": ("largest_signed_score", False),
    "within_row_variance": ("within_row_variance", False),
    "dead_row_fraction": ("dead_row_fraction", False),
    "entropy_fraction": ("entropy_ratio", True),
    "first_key_share": ("first_key_share", False),
    "sink_share": ("sink_share", False),
    "score_bound": ("score_bound", False),
}
NEED_EVERY_SCORE = ("largest_score", "largest_signed_score", "dead_row_fraction")
CHANNEL = 0.4
MAJORITY = 0.5
GROWN = 1.25  # a largest score that grew by less is explained by what it is, not by what changed


class AttentionWarning(UserWarning):
    """A head of a watched model crossed a threshold."""


class AttentionAlert(RuntimeError):
    """A head of a watched model crossed a threshold, and the caller asked to stop there."""


@dataclass(frozen=True)
class Alert:
    """A head that crossed a threshold: the row, the quantity, its value and the threshold, and why, in words."""

    row: WatchRow
    quantity: str
    value: float
    threshold: float
    cause: str

    def __str__(self) -> str:
        """Return one sentence."""
        row, side = self.row, "below" if QUANTITIES[self.quantity][1] else "above"
        place = f"{printable(row.module)}, head {row.head}, step {row.step}"
        return f"{place}: {self.quantity} {self.value:.4g} is {side} {self.threshold:g}; {self.cause}."


class Alarm:
    """Tells once per head and quantity that a threshold is crossed."""

    def __init__(self, alert: Mapping[str, Any], *, every_score: bool = True) -> None:
        """Read thresholds by quantity, and under "action" what to do; ValueError for other names or values."""
        rest = dict(alert)
        self.action: str | Callable[[Alert], object] = rest.pop("action", "warn")
        if not callable(self.action) and self.action not in ("warn", "raise"):
            raise ValueError(f'the action of an alert must be "warn", "raise" or a function: got {self.action!r}')
        unknown = [name for name in rest if name not in QUANTITIES]
        if unknown or not rest:
            named = repr(unknown[0]) if unknown else "none"
            raise ValueError(f"an alert takes thresholds of {', '.join(QUANTITIES)}: got {named}")
        for name, value in rest.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"the threshold of {name} must be a finite number: got {value!r}")
            if name in NEED_EVERY_SCORE and not every_score:
                raise ValueError(f"an alert on {name} needs every score: got every_score=False (score_bound does not)")
        self.thresholds: dict[str, float] = rest
        self._told: set[tuple[str, int, int, str]] = set()
        self._first: dict[tuple[str, int, int], WatchRow] = {}

    def see(self, rows: Iterable[WatchRow]) -> None:
        """Tell which rows are beyond a threshold for the first time."""
        for row in rows:
            first = self._first.setdefault((row.module, row.call, row.head), row)
            for quantity, threshold in self.thresholds.items():
                column, below = QUANTITIES[quantity]
                value = getattr(row, column)
                place = (row.module, row.call, row.head, quantity)
                if (value < threshold if below else value > threshold) and place not in self._told:
                    self._told.add(place)
                    self._tell(Alert(row, quantity, value, threshold, cause(row, first)))

    def _tell(self, alert: Alert) -> None:
        if callable(self.action):
            self.action(alert)
        elif self.action == "raise":
            raise AttentionAlert(str(alert))
        else:
            warnings.warn(str(alert), AttentionWarning, stacklevel=2)


def cause(row: WatchRow, first: WatchRow | None = None) -> str:
    """
    Return why a head's largest score is large: the factor that grew most since an earlier row, or the largest one.

    |s| = scale·√d_k × ‖q‖/√d_k × ‖k‖/√d_k × √d_k·|cos|, each norm taken apart into the rms over tokens and what this
    token has beyond it, and the cosine into what the largest of so many random directions has and the rest. Where one
    column takes more than half of the weight, that is told too.
    """
    held = "".join(
        f"; {name} takes {share:.0%} of the weight"
        for name, share in (("the first key", row.first_key_share), ("the sink", row.sink_share))
        if share > MAJORITY
    )
    if not row.d_k or math.isnan(row.query_norm):
        return "its queries and keys were not seen" + held
    factors, since = _factors(row), ""
    if first is not None and row.largest_score > GROWN * first.largest_score:
        factors = {name: _ratio(factor, _factors(first)[name]) for name, factor in factors.items()}
        since = f" since step {first.step}"
    factors = {name: factor for name, factor in factors.items() if math.isfinite(factor)}
    if not factors:
        return "no factor of its scores is finite" + held
    name = max(factors, key=lambda word: factors[word])
    words = name.format(query=row.query_at_largest, key=row.key_at_largest)
    channel = ""
    if row.largest_channel_share > CHANNEL:
        channel = f" (channel {row.largest_channel} carries {row.largest_channel_share:.0%} of the largest score)"
    return f"{words} × {factors[name]:.3g}{since}{channel}{held}"


def _factors(row: WatchRow) -> dict[str, float]:
    root = math.sqrt(row.d_k)
    return {
        "the scale": abs(row.scale) * root,
        "norms of the queries": row.query_norm / root,
        "norms of the keys": row.key_norm / root,
        "the norm of one query ({query})": _ratio(row.query_norm_at_largest, row.query_norm),
        "the norm of one key ({key})": _ratio(row.key_norm_at_largest, row.key_norm),
        "alignment of q and k": _ratio(abs(row.cosine_at_largest), _largest_cosine(row.d_k, row.rows * row.n_keys)),
    }


def _largest_cosine(d_k: int, pairs: int) -> float:
    """Return the |cosine| that one of so many random pairs exceeds: cos² of a random pair is Beta(½, (d_k − 1)/2)."""
    if d_k < 2 or pairs < 2:
        return 1.0
    from scipy.special import betainccinv

    return math.sqrt(float(betainccinv(0.5, (d_k - 1) / 2, 1 / pairs)))


def _ratio(value: float, by: float) -> float:
    return value / by if by > 0 else math.nan
