"""Largest scores over the passes of several micro-batches and of several processes: what a clip acts upon."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

Place = tuple[str, int]


@dataclass(frozen=True)
class HeadMaximum:
    """
    The largest scores of one head since maxima were last taken, over watched passes and processes.

    Attributes
    ----------
    module, call, head : as in `WatchRow`.
    largest_score : largest |score|; NaN where no row counted.
    largest_signed_score : largest score with its sign.
    passes : watched calls in which the head was seen, of all processes together.
    """

    module: str
    call: int
    head: int
    largest_score: float
    largest_signed_score: float
    passes: int


class Maxima:
    """Running maxima per module and call; they stay on the device until they are taken."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._seen: dict[Place, tuple[Any, Any, int]] = {}

    def add(self, place: Place, statistics: dict[str, Any]) -> None:
        """Take in one call's (heads,) tensors; a NaN leaves what was there."""
        absolute, signed = statistics["largest_score"], statistics["largest_signed_score"]
        before = self._seen.get(place)
        if before is not None and before[0].shape == absolute.shape:
            absolute = absolute.fmax(before[0].to(absolute))
            signed = signed.fmax(before[1].to(signed))
        self._seen[place] = absolute, signed, 1 + (0 if before is None else before[2])

    def take(self, group: Any) -> tuple[HeadMaximum, ...]:
        """Return the maxima over the processes of a group, and start anew."""
        seen, self._seen = self._seen, {}
        mine = {place: (a.tolist(), s.tolist(), passes) for place, (a, s, passes) in seen.items()}
        found: dict[tuple[str, int, int], list[tuple[float, float, int]]] = {}
        for part in _of_every_process(mine, group):
            for (module, call), (absolute, signed, passes) in part.items():
                for head, pair in enumerate(zip(absolute, signed, strict=True)):
                    found.setdefault((module, call, head), []).append((*pair, passes))
        return tuple(HeadMaximum(*place, *_together(values)) for place, values in found.items())


def _together(values: list[tuple[float, float, int]]) -> tuple[float, float, int]:
    """Return the maxima of what is known, and the sum of the passes."""
    absolute, signed = (max((v[i] for v in values if not math.isnan(v[i])), default=math.nan) for i in (0, 1))
    return absolute, signed, sum(passes for *_, passes in values)


def _of_every_process(mine: Any, group: Any) -> list[Any]:
    """Return everybody's; processes may hold different modules, as in a pipeline, so that names travel too."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return [mine]
    parts: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(parts, mine, group=group)
    return parts
