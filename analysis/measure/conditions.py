"""Which settings go together: correlations that can exist, moments that a standard error needs, samplers that apply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from analysis.measure.draw.vectors import common_part
from analysis.vocabulary.laws import resolve_law
from analysis.vocabulary.quantity import Quantity

_MOMENT_NEEDED = {"mean": 2, "variance": 4, "rms": 4}
_SIDES = {"score": (0, 1), "scores": (0, 1), "query_gradient": (1,)}  # whose moments a quantity inherits: query, key


def check_correlations(
    record: Quantity | None,
    laws: Any,
    alignment: float,
    key_correlation: float,
    *,
    is_causal: bool,
    lengths: Sequence[int],
) -> None:
    """Refuse correlations that no vectors have, or that mean nothing for this quantity (None: a callable) or law."""
    one_score = record is not None and record.reads == "score"
    if is_causal and (one_score or record is None):
        raise ValueError(
            "is_causal applies to quantities of softmax rows: a score has no mask, a callable masks itself"
        )
    if not alignment and not key_correlation:
        return
    if callable(laws):
        raise ValueError("alignment and key_correlation do not apply to a callable law, which draws its own vectors")
    if not all(math.isfinite(resolve_law(law).variance) and resolve_law(law).variance > 0 for law in laws):
        raise ValueError("alignment and key_correlation need laws with a finite, positive variance")
    if alignment and is_causal:
        raise ValueError("alignment is between one query and its keys: it does not apply with is_causal")
    if key_correlation and one_score:
        raise ValueError("key_correlation does not apply to the quantity 'score', which draws one key per replicate")
    for n in [1] if one_score else lengths:
        if n > 1 and math.isnan(common_part(alignment, key_correlation, n)):
            least = (n * alignment**2 - 1) / (n - 1)
            raise ValueError(
                f"no {n} keys have correlation {alignment:g} with the query and {key_correlation:g} with one another: "
                f"key_correlation must be at least {least:.6g} ({alignment**2:.6g} makes keys independent given q)"
            )


def check_moments(
    record: Quantity | None, laws: Any, statistics: Sequence[str | float], *, score: Any, softcap: float | None
) -> None:
    """Refuse a standard error that would need a moment which the law does not have."""
    if record is None or callable(laws) or score != "dot" or softcap is not None:
        return
    for statistic in statistics:
        order = record.degree * _MOMENT_NEEDED.get(statistic, 0) if isinstance(statistic, str) else 0
        for law in (resolve_law(laws[side]) for side in _SIDES.get(record.reads, ())):
            if order and not math.isfinite(law.raw_moment(order)):
                raise ValueError(
                    f"the standard error of the {statistic} of {record.name!r} needs a finite moment of order {order}, "
                    f"which the law {law.name} does not have: ask for the median or a quantile"
                )


def choose_sampler(
    sampler: Any,
    record: Quantity | None,
    laws: Any,
    alignment: float,
    key_correlation: float,
    *,
    score: Any,
    softcap: float | None,
    is_causal: bool,
) -> str:
    """Return ``"direct"`` or ``"conditional"``; the latter wherever it applies if `sampler` is ``"auto"``."""
    if sampler not in ("auto", "direct", "conditional"):
        raise ValueError(f"sampler must be 'auto', 'direct' or 'conditional': got {sampler!r}")
    if callable(score) and record is not None and record.reads == "query_gradient":
        raise ValueError(f"{record.name} needs the derivative of the score, which a callable score does not give")
    if record is None and (score != "dot" or softcap is not None):
        raise ValueError("score and softcap do not reach a callable quantity, which receives query, key and scale only")
    if sampler == "direct":
        return "direct"
    obstacle = _obstacle(record, laws, alignment, key_correlation, score, softcap, is_causal)
    if obstacle and sampler == "conditional":
        raise ValueError(f"sampler 'conditional' does not apply to {obstacle}: use 'direct' or 'auto'")
    return "direct" if obstacle else "conditional"


def _obstacle(
    record: Quantity | None,
    laws: Any,
    alignment: float,
    key_correlation: float,
    score: Any,
    softcap: float | None,
    causal: bool,
) -> str | None:
    if record is None:
        return "a callable quantity"
    if callable(laws) or not (isinstance(laws[1], str) and laws[1] == "normal"):
        return "keys that are not standard normal"
    if score != "dot":
        return "a score other than the dot product"
    if causal:
        return "a causal mask, whose rows share their keys"
    if record.reads == "score":
        return "aligned queries of a law that is not standardised" if alignment and _as_given(laws[0]) else None
    if not alignment and not key_correlation:
        return None
    # What correlated keys share shifts a row, which softmax does not see but these do.
    if record.reads == "scores":
        return f"the {record.name} of correlated vectors"
    return "a soft-cap of correlated vectors" if softcap is not None else None


def _as_given(law: Any) -> bool:
    return not isinstance(law, str)
