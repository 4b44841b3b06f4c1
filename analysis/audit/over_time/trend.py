"""A run: how each head's scores grow over its checkpoints, since when, why, and what clip brings it back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy.special import stdtrit

from analysis.audit.over_time.change import NOTABLE, change
from analysis.audit.over_time.fit import crossing, line, onset
from analysis.audit.over_time.head_trend import HeadTrend
from analysis.audit.over_time.states import Audit, HeadState, heads_of, kind_of
from analysis.audit.over_time.words import headline, sentence, to_itself_sentence
from analysis.vocabulary.frames import dataframe
from analysis.vocabulary.strict_json import finite_or_none
from analysis.vocabulary.text import printable

MOST_NAMED = 12
FALSE_ALARM = 0.01
DOUBLED = 2.0
TARGETS = {"variance": 4.0, "entropy": 0.1, "largest": 100.0}


@dataclass(frozen=True)
class Trends:
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

    def __repr__(self) -> str:
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


def audit_trends(
    audits: Mapping[int, Audit | Mapping[str, Any]], *, targets: Mapping[str, float] | None = None
) -> Trends:
    """
    Follow every head over the checkpoints of a run.

    Parameters
    ----------
    audits : mapping of int to TensorAudit or WeightsAudit, or what their `to_dict` gave
        By step, at least two.
    targets : mapping, optional
        Beyond which a head is told, of "variance" (4), "entropy" (fraction of its maximum, 0.1, from below) and
        "largest" (100; of weights, whose bound no score need reach, none).

    Returns
    -------
    Trends

    Raises
    ------
    ValueError
        For fewer than two steps, audits of different kinds, or no head that all have.
    """
    steps = sorted(audits)
    if len(steps) < 2:
        raise ValueError(f"a trend needs at least two steps: got {len(steps)}")
    if len({kind_of(audit) for audit in audits.values()}) > 1:
        raise ValueError("audits of tensors and of weights have no numbers in common")
    chosen = TARGETS | dict(targets or {})
    if kind_of(audits[steps[0]]) == "weights" and "largest" not in (targets or {}):
        chosen["largest"] = math.inf  # a bound on every score is large without any score being so
    if set(chosen) != set(TARGETS):
        raise ValueError(f"targets are of {', '.join(TARGETS)}: got {', '.join(map(str, targets or {}))}")
    states = [heads_of(audits[step]) for step in steps]
    places = [place for place in states[0] if all(place in state for state in states)]
    if not places:
        raise ValueError("no head is in the audit of every step: their layers have other names")
    for step, state in zip(steps, states, strict=True):
        layer, head = next((p for p in places if state[p].d_k != states[0][p].d_k), (None, 0))
        if layer is not None:
            raise ValueError(
                f"{printable(layer)}, head {head} has d_k = {states[0][layer, head].d_k} at step {steps[0]} and "
                f"{state[layer, head].d_k} at step {step}: these are not steps of one model"
            )
    last = states[-1]
    readers = [(layer, last[layer, head].key_head) for layer, head in last]
    trends = (
        _trend(
            place, steps, [state[place] for state in states], chosen, readers.count((place[0], last[place].key_head))
        )
        for place in places
    )
    missing = len({place for state in states for place in state}) - len(places)
    notes = (f"{missing} heads that some steps lack are left out.",) if missing else ()
    return Trends(tuple(steps), chosen, tuple(trends), notes, kind_of(audits[steps[0]]))


def strangers(audits: Mapping[int, Audit | Mapping[str, Any]]) -> list[int]:
    """Return the steps that share no head with the step that shares heads with most."""
    places = {step: heads_of(audit).keys() for step, audit in audits.items()}
    shared = {step: [other for other in places if places[step] & places[other]] for step in places}
    most = max(shared.values(), key=len, default=[])
    return [step for step in places if step not in most] if len(most) > 1 else []


def _trend(
    place: tuple[str, int],
    steps: Sequence[int],
    states: Sequence[HeadState],
    targets: Mapping[str, float],
    readers: int,
) -> HeadTrend:
    columns = {name: tuple(getattr(state, name) for state in states) for name in TARGETS}
    drawn = {name: column if name == "entropy" else _logarithms(column) for name, column in columns.items()}
    lines = {name: line(steps, values) for name, values in drawn.items()}
    since = onset(steps, drawn["variance"])
    start = steps.index(since)
    crossed = {
        name: next((step for step, value in zip(steps, column, strict=True) if _beyond(name, value, targets)), None)
        for name, column in columns.items()
    }
    found = change(*place, states[start], states[-1])
    clip = _clip(states[-1], targets)
    on_query, on_key = (None, None) if clip is None or states[-1].normalised else _shared(clip, readers)
    return HeadTrend(
        layer=place[0],
        head=place[1],
        key_head=states[-1].key_head,
        variance=columns["variance"],
        entropy=columns["entropy"],
        largest=columns["largest"],
        self_score=tuple(state.self_score for state in states),
        rate=lines["variance"].slope,
        rate_standard_error=lines["variance"].slope_standard_error,
        entropy_rate=lines["entropy"].slope,
        entropy_rate_standard_error=lines["entropy"].slope_standard_error,
        largest_rate=lines["largest"].slope,
        largest_rate_standard_error=lines["largest"].slope_standard_error,
        degrees_of_freedom=lines["variance"].degrees,
        onset=since,
        crossed=crossed,
        crossing={
            name: None
            if crossed[name] is not None
            else crossing(line(steps[start:], drawn[name][start:]), _drawn(name, targets[name]), steps)
            for name in TARGETS
        },
        factor=found.factor,
        factor_ratio=found.factor_ratio,
        clip_factor=clip,
        query_factor=on_query,
        key_factor=on_key,
    )


def _clip(state: HeadState, targets: Mapping[str, float]) -> float | None:
    """Return the largest factor on kᵀq with which variance and largest score are within their targets, None at 1."""
    factors = [math.sqrt(targets["variance"] / state.variance)] if state.variance > targets["variance"] else []
    factors += [targets["largest"] / state.largest] if state.largest > targets["largest"] else []
    return min(factors, default=None)


def _shared(clip: float, readers: int) -> tuple[float, float]:
    return (clip, 1.0) if readers > 1 else (math.sqrt(clip), math.sqrt(clip))


def _beyond(name: str, value: float, targets: Mapping[str, float]) -> bool:
    return value < targets[name] if name == "entropy" else value > targets[name]


def _drawn(name: str, target: float) -> float:
    return target if name == "entropy" or not target > 0 else math.log(target)


def _logarithms(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(math.log(value) if math.isfinite(value) and value > 0 else math.nan for value in values)
