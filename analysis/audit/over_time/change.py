"""Two audits: what changed from the first to the second, head by head, and by which factor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from analysis.audit.over_time.states import FACTORS, Audit, Heads, HeadState, heads_of, kind_of
from analysis.vocabulary.frames import dataframe
from analysis.vocabulary.strict_json import finite_or_none
from analysis.vocabulary.text import printable
from attnsym._page import Page

CONCENTRATED = 0.4
NOTABLE = 1.1
MOST_NAMED = 12


@dataclass(frozen=True)
class HeadChange:
    """
    One head before and after.

    Attributes
    ----------
    layer, head : the head.
    variance_before, variance_after, variance_ratio : of the scores within a row, and by what it was multiplied.
    entropy_before, entropy_after : over its maximum.
    largest_before, largest_after : the largest |score| (of weights, the bound on it).
    factor, factor_ratio : the factor of the variance that changed most, in words, and by what it was multiplied.
    """

    layer: str
    head: int
    variance_before: float
    variance_after: float
    variance_ratio: float
    entropy_before: float
    entropy_after: float
    largest_before: float
    largest_after: float
    factor: str
    factor_ratio: float


@dataclass(frozen=True, repr=False)
class Comparison(Page):
    """
    What `compare_audits` found.

    Attributes
    ----------
    heads : tuple of HeadChange
        The heads that both audits have, in the order of the first.
    missing : tuple of str
        Heads that only one of them has.
    null : bool
        The first is of weights and the second of queries and keys: what isotropic tokens would give, and what these
        give. `largest_before` is then a bound.
    """

    heads: tuple[HeadChange, ...]
    missing: tuple[str, ...]
    null: bool = False

    def to_records(self) -> list[dict[str, Any]]:
        """Return the heads as dictionaries of plain numbers and words, NaN as None."""
        return [finite_or_none(asdict(head)) for head in self.heads]

    def to_dataframe(self) -> Any:
        """Return the heads as a pandas DataFrame; ImportError with the line to install if pandas is missing."""
        return dataframe(self.to_records(), list(HeadChange.__dataclass_fields__))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready dictionaries (strict JSON: NaN and infinities become None)."""
        return {"summary": list(self.summary()), "heads": self.to_records(), "missing": list(self.missing)}

    def summary(self) -> tuple[str, ...]:
        """Return sentences: how many heads changed, and the largest changes with the factor behind each."""
        changed = [head for head in self.heads if _size(head) > math.log(NOTABLE)]
        count = f"{len(changed)} of {len(self.heads)} heads"
        sentences = [self._null(count) if self.null else f"{count} changed their score variance by more than a tenth."]
        sentences += [sentence(head) for head in sorted(changed, key=_size, reverse=True)[:MOST_NAMED]]
        if len(changed) > MOST_NAMED:
            sentences.append(f"{len(changed) - MOST_NAMED} more changed.")
        if self.missing:
            some = ", ".join(self.missing[:6]) + (", …" if len(self.missing) > 6 else "")
            sentences.append(f"Only in one of the two: {some}.")
        return tuple(sentences)

    def _null(self, count: str) -> str:
        ratios = sorted(head.variance_ratio for head in self.heads if math.isfinite(head.variance_ratio))
        if not ratios:
            return "How far the null is off: no head has a finite variance in both."
        return (
            f"How far the null is off: these tokens make × {ratios[len(ratios) // 2]:.3g} the variance of isotropic "
            f"ones (median of the heads; {ratios[0]:.3g} to {ratios[-1]:.3g}); {count} are off by more than a tenth."
        )

    def __str__(self) -> str:
        """Return the summary."""
        return "\n".join(["Comparison of two audits", *self.summary()])

    def _line(self) -> str:
        return self.summary()[0]


def compare_audits(before: Audit | Mapping[str, Any], after: Audit | Mapping[str, Any]) -> Comparison:
    """
    Compare two audits of tensors, or two of weights: checkpoints of one run, two backends, before and after a clip.

    Of weights and of the queries and keys of the same layers (in this order), it tells how far the null of the former,
    tokens without a preferred direction, is off, and by which factor.

    Parameters
    ----------
    before, after : TensorAudit, WeightsAudit, or what their `to_dict` gave

    Returns
    -------
    Comparison
        Heads are matched by layer and number; weights and tensors without a layer name in common by the order of
        their layers, where they are as many.

    Raises
    ------
    ValueError
        For something that is no audit, tensors before weights, or two audits without a head in common.

    Notes
    -----
    The variance is a product of factors (see `HeadAudit`), so that its logarithm changes by the sum of their changes;
    the largest of those is named. Norms of queries and keys count apart. Where one component carries more than two
    fifths of the variance afterwards, and of what was added if it grew, it is named beside the factor; of weights, else
    one direction of the tokens likewise.
    """
    kinds = kind_of(before), kind_of(after)
    if kinds == ("tensors", "weights"):
        raise ValueError("an audit of weights says what isotropic tokens give: it stands before that of tensors")
    first, second = heads_of(before), heads_of(after)
    null = kinds == ("weights", "tensors")
    if null and not first.keys() & second.keys():
        second = _in_order(first, second)
    both = [place for place in first if place in second]
    if not both:
        raise ValueError("the two audits have no head in common: their layers have other names")
    missing = [f"{printable(layer)} {head}" for layer, head in (*first, *second) if (layer, head) not in both]
    return Comparison(tuple(change(*place, first[place], second[place]) for place in both), tuple(missing), null)


def _in_order(first: Heads, second: Heads) -> Heads:
    """Return the second's heads under the layer names of the first, where the layers are as many."""
    names, others = (list(dict.fromkeys(layer for layer, _ in heads)) for heads in (first, second))
    if len(names) != len(others):
        return second
    name_of = dict(zip(others, names, strict=True))
    return {(name_of[layer], head): state for (layer, head), state in second.items()}


def change(layer: str, head: int, before: HeadState, after: HeadState) -> HeadChange:
    """Return what changed in one head."""
    ratios = {name: _ratio(after.factors[name], before.factors[name]) for name in FACTORS}
    known = {name: ratio for name, ratio in ratios.items() if math.isfinite(ratio) and ratio > 0}
    largest = max(known, key=lambda name: abs(math.log(known[name])), default=None)
    words = "" if largest is None else FACTORS[largest]
    if words:
        words += _where(before, after)
    return HeadChange(
        layer=layer,
        head=head,
        variance_before=before.variance,
        variance_after=after.variance,
        variance_ratio=_ratio(after.variance, before.variance),
        entropy_before=before.entropy,
        entropy_after=after.entropy,
        largest_before=before.largest,
        largest_after=after.largest,
        factor=words,
        factor_ratio=math.nan if largest is None else known[largest],
    )


def _where(before: HeadState, after: HeadState) -> str:
    """Return the one channel, or of weights the one direction, that holds the variance and what was added to it."""
    added = after.variance - before.variance

    def holds(first: float, last: float) -> bool:
        return last > CONCENTRATED and not (
            added > 0 and last * after.variance - first * before.variance < CONCENTRATED * added
        )

    if holds(before.channel_share, after.channel_share):
        return f" (channel {after.channel} carries {after.channel_share:.0%})"
    if holds(before.direction_share, after.direction_share):
        return f" (one direction of the tokens carries {after.direction_share:.0%})"
    return ""


def sentence(head: HeadChange) -> str:
    """Return a change in words."""
    return (
        f"{printable(head.layer)}, head {head.head}: variance {head.variance_before:.3g} to {head.variance_after:.3g} "
        f"(× {head.variance_ratio:.3g}), entropy fraction {head.entropy_before:.3g} to {head.entropy_after:.3g}; "
        f"{head.factor} × {head.factor_ratio:.3g}."
    )


def _size(head: HeadChange) -> float:
    """Return |log| of the variance's ratio; infinite where it is not finite on one side alone."""
    if math.isnan(head.variance_ratio):
        return math.inf if math.isfinite(head.variance_before) != math.isfinite(head.variance_after) else 0.0
    return abs(math.log(head.variance_ratio)) if head.variance_ratio > 0 else math.inf


def _ratio(after: float, before: float) -> float:
    return after / before if before > 0 else math.nan
