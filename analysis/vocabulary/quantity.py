"""A quantity of a row of attention is one record: every wing reads its name, its formulas and its words from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from analysis.vocabulary.row_formulas import Array, Columns

Reads = Literal["score", "scores", "weights", "score_gradient", "query_gradient"]

READS: tuple[Reads, ...] = ("score", "scores", "weights", "score_gradient", "query_gradient")


@dataclass(frozen=True)
class Exact:
    """
    The statistic of a quantity whose exact value over Gaussian scores is known.

    Attributes
    ----------
    formula : str
        Of the exact value.
    expectation : str
        The function of `analysis.predict` that gives it, or that `of` makes it from.
    meaning : callable (value, n_keys) -> str
        Puts the value between its limits, in words.
    statistic : {"mean", "rms", "variance"}
        Which statistic of a study has this value.
    arguments : tuple
        What the function takes before the number of keys.
    of : callable (expectation, n_keys) -> value, optional
        Linear in the expectation where `statistic` is the mean.
    is_monotone : bool
        Whether the value is strictly monotone in the scale, so that `scale_for` can invert it.
    """

    formula: str
    expectation: str
    meaning: Callable[[float, int], str]
    statistic: str = "mean"
    arguments: tuple[Any, ...] = ()
    of: Callable[[Any, Any], Any] | None = None
    is_monotone: bool = True


@dataclass(frozen=True)
class Quantity:
    """
    One quantity of a row of attention, p = softmax(scores), J = diag(p) − p pᵀ.

    Attributes
    ----------
    name : str
        What every command, study, stream and figure calls it.
    formula, unit, words, label : str
        Its definition; its unit ("1" if none); one phrase for lists; what figures write at it.
    reads : str
        What one value is computed from: one ``"score"``, a row of ``"scores"`` or ``"weights"``, or the Euclidean norm
        of ``"score_gradient"`` (J g) or ``"query_gradient"`` (scale·Kᵀ J g), g ~ N(0, I) on the weights.
    value : callable
        From that, rows along the last axis: scores (...), rows (..., n_keys) or norms (...) to values (...).
    from_columns : callable (Columns) -> values, optional
        The same from columns of scores, for speed and digits; without it `value` is used there too.
    beside_sink : callable, optional
        `value` for weights of the keys that sum to less than 1, the rest being a sink's; by default `value` itself.
    at_equal : callable (n_keys) -> float
        Its value for equal scores (of a gradient: the root mean square of its norm, or the mean square).
    at_one_hot : float
        Its limit as the scores' deviation goes to infinity.
    exact : Exact, optional
        None where no exact value is known.
    aliases : mapping of str to str or None
        Other names; one with a statistic is the name of that statistic of the quantity.
    degree : int
        In the scores or keys, for those that read them: which moments a standard error needs.
    is_event : bool
        Whether values are 0 and 1, so that the mean is a proportion.
    only_entropy : bool
        Whether `from_columns` asks for nothing but the entropy, which small scores give faster.
    least_keys : int
        The fewest keys for which it is defined.

    Raises
    ------
    ValueError
        For a record that lacks a word or way that every quantity needs.
    """

    name: str
    formula: str
    unit: str
    words: str
    label: str
    value: Callable[[Array], Any]
    at_equal: Callable[[int], float]
    at_one_hot: float
    reads: Reads = "weights"
    from_columns: Callable[[Columns], Array] | None = None
    beside_sink: Callable[[Array], Any] | None = None
    exact: Exact | None = None
    aliases: Mapping[str, str | None] = field(default_factory=dict)
    degree: int = 1
    is_event: bool = False
    only_entropy: bool = False
    least_keys: int = 1

    def __post_init__(self) -> None:
        for part in ("name", "formula", "unit", "words", "label"):
            if not isinstance(getattr(self, part), str) or not getattr(self, part).strip():
                raise ValueError(f"quantity {self.name!r}: {part} must be a text: got {getattr(self, part)!r}")
        if self.reads not in READS:
            raise ValueError(f"quantity {self.name!r}: reads must be one of {', '.join(READS)}: got {self.reads!r}")
        for part in ("value", "at_equal"):
            if not callable(getattr(self, part)):
                raise ValueError(f"quantity {self.name!r}: {part} must be callable: got {getattr(self, part)!r}")

    @property
    def is_constant_for_one_key(self) -> bool:
        """Whether a single key, whose weight is 1 whatever its score, leaves nothing random."""
        return self.reads not in ("score", "scores")

    def at_statistic(self, statistic: str | float, n_keys: int) -> float:
        """Return a statistic of the quantity where it is the constant `at_equal`."""
        return 0.0 if statistic == "variance" else self.at_equal(n_keys)

    def check_keys(self, n_keys: int) -> None:
        """Refuse a number of keys for which the quantity is not defined."""
        if n_keys < self.least_keys:
            raise ValueError(f"{self.name} needs n_keys of at least {self.least_keys}: got {n_keys}")
