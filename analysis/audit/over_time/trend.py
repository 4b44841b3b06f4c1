"""A run: how each head's scores grow over its checkpoints, since when, and by which factor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.audit.over_time.change import change
from analysis.audit.over_time.states import Audit, HeadState, heads_of, kind_of
from analysis.vocabulary.strict_json import finite_or_none
from analysis.vocabulary.text import printable

MOST_NAMED = 12
GROWS = 3.0
DOUBLED = 2.0
TARGETS = {"variance": 4.0, "entropy": 0.1, "largest": 100.0}


@dataclass(frozen=True)
class HeadTrend:
    """
    One head over the steps of a run.

    Attributes
    ----------
    layer, head : the head.
    variance, entropy, largest : tuple of float
        At every step: of the scores within a row, over its maximum, the largest |score| (of weights, its bound).
    rate, rate_standard_error : growth of log variance per step, by least squares, and its standard error from the
        scatter about the line (NaN for fewer than three steps).
    crossed : dict of str to int or None
        The first step at which the variance or the largest score is above its target, or the entropy below.
    factor, factor_ratio : the factor of the variance that changed most from the first step to the last.
    """

    layer: str
    head: int
    variance: tuple[float, ...]
    entropy: tuple[float, ...]
    largest: tuple[float, ...]
    rate: float
    rate_standard_error: float
    crossed: Mapping[str, int | None]
    factor: str
    factor_ratio: float


@dataclass(frozen=True)
class Trends:
    """What `audit_trends` found: the steps, the targets, and one `HeadTrend` per head that every step has."""

    steps: tuple[int, ...]
    targets: Mapping[str, float]
    heads: tuple[HeadTrend, ...]

    @property
    def fastest(self) -> tuple[HeadTrend, ...]:
        """Heads whose variance grows by more than three standard errors or has doubled, the fastest first."""
        growing = [
            head
            for head in self.heads
            if head.rate > 0
            and (head.rate > GROWS * head.rate_standard_error or head.variance[-1] > DOUBLED * head.variance[0])
        ]
        return tuple(sorted(growing, key=lambda head: -head.rate))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready dictionaries (strict JSON: NaN and infinities become None)."""
        rows = [finite_or_none(asdict(head)) for head in self.heads]
        return {
            "steps": list(self.steps),
            "targets": finite_or_none(dict(self.targets)),
            "summary": list(self.summary()),
            "heads": rows,
        }

    def summary(self) -> tuple[str, ...]:
        """Return sentences: which heads grow, how fast, by which factor, and since when they are beyond a target."""
        growing = self.fastest
        sentences = [f"{len(growing)} of {len(self.heads)} heads grow over steps {self.steps[0]} to {self.steps[-1]}."]
        sentences += [self._sentence(head) for head in growing[:MOST_NAMED]]
        if len(growing) > MOST_NAMED:
            sentences.append(f"{len(growing) - MOST_NAMED} more grow.")
        return tuple(sentences)

    def __repr__(self) -> str:
        """Return the summary."""
        return "\n".join([f"Trends over {len(self.steps)} steps", *self.summary()])

    def _sentence(self, head: HeadTrend) -> str:
        beyond = [
            f"{name} beyond {self.targets[name]:g} since step {step}"
            for name, step in head.crossed.items()
            if step is not None
        ]
        error = "" if math.isnan(head.rate_standard_error) else f" ± {1000 * head.rate_standard_error:.2g}"
        return (
            f"{printable(head.layer)}, head {head.head}: variance {head.variance[0]:.3g} to {head.variance[-1]:.3g}, "
            f"log variance {1000 * head.rate:+.3g}{error} per 1,000 steps; {head.factor} × {head.factor_ratio:.3g}"
            + (f"; {', '.join(beyond)}." if beyond else ".")
        )


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
    trends = (_trend(place, steps, [state[place] for state in states], chosen) for place in places)
    return Trends(tuple(steps), chosen, tuple(trends))


def _trend(
    place: tuple[str, int], steps: Sequence[int], states: Sequence[HeadState], targets: Mapping[str, float]
) -> HeadTrend:
    columns = {name: tuple(getattr(state, name) for state in states) for name in TARGETS}
    rate, error = _slope(steps, columns["variance"])
    last = change(*place, states[0], states[-1])
    return HeadTrend(
        layer=place[0],
        head=place[1],
        **columns,
        rate=rate,
        rate_standard_error=error,
        crossed={
            name: next((step for step, value in zip(steps, column, strict=True) if _beyond(name, value, targets)), None)
            for name, column in columns.items()
        },
        factor=last.factor,
        factor_ratio=last.factor_ratio,
    )


def _beyond(name: str, value: float, targets: Mapping[str, float]) -> bool:
    return value < targets[name] if name == "entropy" else value > targets[name]


def _slope(steps: Sequence[int], variances: Sequence[float]) -> tuple[float, float]:
    """Return slope and standard error of log variance over the steps at which it is known."""
    pairs = [(s, math.log(v)) for s, v in zip(steps, variances, strict=True) if math.isfinite(v) and v > 0]
    if len(pairs) < 2:
        return math.nan, math.nan
    x, y = np.array(pairs, np.float64).T
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    if len(pairs) < 3:
        return slope, math.nan
    rest = y - y.mean() - slope * x
    return slope, float(np.sqrt(rest @ rest / (len(pairs) - 2) / (x @ x)))
