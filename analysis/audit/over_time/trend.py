"""A run: how each head's scores grow over its checkpoints, since when, why, and what clip brings it back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.audit.over_time.change import change
from analysis.audit.over_time.fit import crossing, line, onset
from analysis.audit.over_time.head_trend import HeadTrend
from analysis.audit.over_time.states import Audit, HeadState, heads_of, kind_of
from analysis.audit.over_time.trends import TARGETS, Trends
from analysis.vocabulary.numbers import shown
from analysis.vocabulary.text import printable


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
        For fewer than two steps, audits of different kinds, no head that all have, or one whose d_k changes.
    """
    if not isinstance(audits, Mapping):
        raise ValueError(f"audits must be a mapping of steps to audits: got {shown(audits)}")
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
