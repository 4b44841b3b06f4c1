"""The heads of a run together: which grow, which are urgent, and the sentences that say so."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from scipy.special import stdtrit

from analysis.audit.over_time.change import NOTABLE
from analysis.audit.over_time.head_trend import HeadTrend
from analysis.audit.over_time.words import headline, sentence, to_itself_sentence
from analysis.vocabulary.frames import dataframe
from analysis.vocabulary.strict_json import finite_or_none
from analysis.vocabulary.text import printable
from attnsym._page import Page

MOST_NAMED = 12
FALSE_ALARM = 0.01
DOUBLED = 2.0
TARGETS = {"variance": 4.0, "entropy": 0.1, "largest": 100.0}


@dataclass(frozen=True, repr=False)
class Trends(Page):
    """
    What `audit_trends` found.

    Attributes
    ----------
    steps, targets : as given.
    heads : tuple of HeadTrend
        One per head that every step has.
    notes : tuple of str
        What was left out.
    kind : {"tensors", "weights"}
    """

    steps: tuple[int, ...]
    targets: Mapping[str, float]
    heads: tuple[HeadTrend, ...]
    notes: tuple[str, ...] = ()
    kind: str = "tensors"

    @property
    def fastest(self) -> tuple[HeadTrend, ...]:
        """
        Heads that grow, the fastest first.

        The variance has grown by more than a tenth, and has doubled or grows at a rate that noise about a line would
        show in any head of a run that does not grow once in a hundred runs (Student's t, all heads together).
        """
        growing = [head for head in self.heads if self._grows(head)]
        return tuple(sorted(growing, key=lambda head: -head.rate))

    @property
    def urgent(self) -> tuple[HeadTrend, ...]:
        """Growing heads beyond a target first, by what a clip must take away, then the others, the fastest first."""
        return tuple(sorted(self.fastest, key=lambda head: math.inf if head.clip_factor is None else head.clip_factor))

    def to_records(self) -> list[dict[str, Any]]:
        """Return one dictionary per head and step, for a table or a plot; NaN as None."""
        return [
            finite_or_none(
                {"layer": head.layer, "head": head.head, "step": step, "variance": variance}
                | {"entropy": entropy, "largest": largest}
            )
            for head in self.heads
            for step, variance, entropy, largest in zip(
                self.steps, head.variance, head.entropy, head.largest, strict=True
            )
        ]

    def to_dataframe(self) -> Any:
        """Return `to_records` as a pandas DataFrame; ImportError with the line to install if pandas is missing."""
        return dataframe(self.to_records(), ["layer", "head", "step", *TARGETS])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready dictionaries (strict JSON: NaN and infinities become None)."""
        rows = [finite_or_none(asdict(head)) for head in self.heads]
        return {
            "steps": list(self.steps),
            "targets": finite_or_none(dict(self.targets)),
            "notes": list(self.notes),
            "summary": list(self.summary()),
            "heads": rows,
        }

    def summary(self) -> tuple[str, ...]:
        """Return the headline, then sentences: which heads grow, how fast, and when they cross a target."""
        urgent = self.urgent
        count = f"{len(urgent)} of {len(self.heads)} heads grow over steps {self.steps[0]:,} to {self.steps[-1]:,}."
        sentences = [*self._broken()]
        sentences += [headline(urgent[0], self.targets, urgent), count] if urgent else [count, *self._largest()]
        sentences += [sentence(head, self.targets) for head in urgent[:MOST_NAMED]]
        if len(urgent) > MOST_NAMED:
            sentences.append(f"{len(urgent) - MOST_NAMED} more grow.")
        to_itself = [head for head in self.heads if head.attends_to_itself]
        sentences += [to_itself_sentence(head) for head in to_itself[:MOST_NAMED]]
        if len(to_itself) > MOST_NAMED:
            sentences.append(f"{len(to_itself) - MOST_NAMED} more heads come to prefer, or avoid, a token's own key.")
        still = [h for h in self.heads if h.clip_factor is not None and h not in urgent]
        if still:
            named = ", ".join(f"{printable(h.layer)} {h.head}" for h in still[:MOST_NAMED])
            more = f" and {len(still) - MOST_NAMED} more" if len(still) > MOST_NAMED else ""
            sentences.append(f"{len(still)} beyond a target without growing: {named}{more}.")
        return (*sentences, *self.notes)

    def __str__(self) -> str:
        """Return the summary."""
        return "\n".join([f"Trends over {len(self.steps)} steps", *self.summary()])

    def _broken(self) -> tuple[str, ...]:
        """Tell heads that are not finite at the last step, layer by layer, and since when."""
        found: dict[tuple[str, int], list[int]] = {}
        for head in self.heads:
            if not math.isfinite(head.variance[-1]):
                finite = [step for step, value in zip(self.steps, head.variance, strict=True) if math.isfinite(value)]
                since = next(step for step in self.steps if not finite or step > finite[-1])
                found.setdefault((head.layer, since), []).append(head.head)
        return tuple(
            f"{printable(layer)}, {'head' if len(heads) == 1 else 'heads'} {', '.join(map(str, heads[:MOST_NAMED]))}"
            f"{', …' if len(heads) > MOST_NAMED else ''}: not finite since step {since:,}."
            for (layer, since), heads in list(found.items())[:MOST_NAMED]
        )

    def _largest(self) -> tuple[str, ...]:
        known = [head for head in self.heads if math.isfinite(head.variance[-1])]
        if not known:
            return ("No head is finite at the last step.",)
        most = max(known, key=lambda head: head.variance[-1])
        place = f"{printable(most.layer)}, head {most.head}"
        return (f"The largest variance at step {self.steps[-1]:,} is {most.variance[-1]:.3g} ({place}).",)

    def _grows(self, head: HeadTrend) -> bool:
        ratio = head.variance[-1] / head.variance[0] if head.variance[0] > 0 else math.inf
        if not (head.rate > 0 and ratio > NOTABLE):
            return False
        if ratio > DOUBLED or head.degrees_of_freedom < 1:
            return ratio > DOUBLED
        quantile = -float(stdtrit(head.degrees_of_freedom, FALSE_ALARM / len(self.heads)))
        return head.rate > quantile * head.rate_standard_error

    def _line(self) -> str:
        return self.summary()[0]

    def plot(self) -> Any:
        """Return a matplotlib Figure: the trends of the heads that grow most."""
        return importlib.import_module("analysis.show.plots").trends_figure(self)
