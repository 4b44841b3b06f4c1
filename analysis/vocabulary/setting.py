"""The setting of a random row of attention: what is drawn, and what of it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from analysis.vocabulary.laws import Law, law_pair
from analysis.vocabulary.mechanism import PLAIN, RowMechanism
from analysis.vocabulary.quantities import find_quantity
from analysis.vocabulary.quantity import Quantity


@dataclass(frozen=True, kw_only=True)
class Setting:
    """
    One quantity at one point of all that its law depends on.

    Attributes
    ----------
    quantity : str or callable
        The name of a record, or a caller's own function.
    d_k, n_keys : int
        At least 1; `n_keys` is not used for a single score.
    scale : float
        The factor itself, finite.
    laws : (Law, Law) or callable
        Of the components of query and key, or what draws both.
    alignment, key_correlation : float
        Componentwise correlations of q with each k and of the keys with one another, q and keys jointly linear.
    score, softcap, is_causal
        As in the attention core; under a causal mask a value is the mean over the rows of `n_keys` queries.
    mechanism : RowMechanism
        What lies between the scores and the weights; plain softmax by default.
    """

    quantity: str | Callable[..., Any]
    d_k: int
    n_keys: int
    scale: float
    laws: tuple[Law, Law] | Callable[..., Any] = field(default_factory=lambda: law_pair("normal"))
    alignment: float = 0.0
    key_correlation: float = 0.0
    score: str | Callable[..., Any] = "dot"
    softcap: float | None = None
    is_causal: bool = False
    mechanism: RowMechanism = PLAIN

    @property
    def record(self) -> Quantity | None:
        """The quantity's record; None for a callable."""
        return find_quantity(self.quantity) if isinstance(self.quantity, str) else None

    @property
    def reads(self) -> str:
        """What the quantity is computed from, as its record says, or ``"vectors"`` for a callable."""
        return "vectors" if self.record is None else self.record.reads

    @property
    def is_event(self) -> bool:
        """Whether a replicate is 0 or 1, so that the mean is a proportion; a mean over causal rows is neither."""
        return self.record is not None and self.record.is_event and not self.is_causal
