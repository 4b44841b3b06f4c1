"""Which settings go together: correlations that can exist, moments that a standard error needs, samplers that apply."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.measure.draw.vectors import common_part
from analysis.vocabulary.numbers import shown
from analysis.vocabulary.setting import Setting

_MOMENT_NEEDED = {"mean": 2, "variance": 4, "rms": 4}
_SIDES = {"score": (0, 1), "scores": (0, 1), "query_gradient": (1,)}  # whose moments a quantity inherits: query, key


def check_correlations(cell: Setting, lengths: Sequence[int]) -> None:
    """Refuse correlations that no vectors have, or that mean nothing for this quantity or law."""
    one_score, a, rho = cell.reads == "score", cell.alignment, cell.key_correlation
    if cell.is_causal and (one_score or cell.record is None):
        raise ValueError(
            "is_causal applies to quantities of softmax rows: a score has no mask, a callable masks itself"
        )
    if not a and not rho:
        return
    if callable(cell.laws):
        raise ValueError("alignment and key_correlation do not apply to a callable law, which draws its own vectors")
    if not all(math.isfinite(law.variance) and law.variance > 0 for law in cell.laws):
        raise ValueError("alignment and key_correlation need laws with a finite, positive variance")
    if a and cell.is_causal:
        raise ValueError("alignment is between one query and its keys: it does not apply with is_causal")
    if rho and one_score:
        raise ValueError("key_correlation does not apply to the quantity 'score', which draws one key per replicate")
    for n in [1] if one_score else lengths:
        if n > 1 and math.isnan(common_part(a, rho, n)):
            raise ValueError(
                f"alignment: no {n} keys have correlation {a:g} with the query and {rho:g} with one another: "
                f"key_correlation must be at least {(n * a**2 - 1) / (n - 1):.6g} ({a**2:.6g} makes keys independent "
                "given q)"
            )


def check_moments(cell: Setting, statistics: Sequence[str | float]) -> None:
    """Refuse a standard error that would need a moment which the law does not have."""
    bounded = cell.softcap is not None or cell.mechanism.qk_norm is not None
    if cell.record is None or callable(cell.laws) or cell.score != "dot" or bounded:
        return
    for statistic in statistics:
        order = cell.record.degree * _MOMENT_NEEDED.get(statistic, 0) if isinstance(statistic, str) else 0
        for law in (cell.laws[side] for side in _SIDES.get(cell.reads, ())):
            if order and not math.isfinite(law.raw_moment(order)):
                raise ValueError(
                    f"the standard error of the {statistic} of {cell.record.name!r} needs a finite moment of order "
                    f"{order}, which the law {law.name} does not have: ask for the median or a quantile"
                )


def choose_sampler(sampler: object, cell: Setting) -> str:
    """Return ``"direct"`` or ``"conditional"``; the latter wherever it applies if `sampler` is ``"auto"``."""
    if not (isinstance(sampler, str) and sampler in ("auto", "direct", "conditional")):
        raise ValueError(f"sampler must be 'auto', 'direct' or 'conditional': got {shown(sampler)}")
    if callable(cell.score) and cell.reads == "query_gradient":
        raise ValueError(f"{cell.quantity} needs the derivative of the score, which a callable score does not give")
    if cell.record is None and (cell.score != "dot" or cell.softcap is not None):
        raise ValueError("score and softcap do not reach a callable quantity, which receives query, key and scale only")
    if sampler == "direct":
        return "direct"
    obstacle = _obstacle(cell)
    if obstacle and sampler == "conditional":
        raise ValueError(f"sampler 'conditional' does not apply to {obstacle}: use 'direct' or 'auto'")
    return "direct" if obstacle else "conditional"


def _obstacle(cell: Setting) -> str | None:
    if cell.record is None:
        return "a callable quantity"
    if callable(cell.laws) or cell.laws[1].name != "normal":
        return "keys that are not standard normal"
    if cell.score != "dot":
        return "a score other than the dot product"
    if cell.is_causal:
        return "a causal mask, whose rows share their keys"
    if cell.mechanism.settings:
        return f"a row with {', '.join(cell.mechanism.settings)}"
    if cell.reads == "score":
        as_given = not cell.laws[0].is_named
        return "aligned queries of a law that is not standardised" if cell.alignment and as_given else None
    if not cell.alignment and not cell.key_correlation:
        return None
    # What correlated keys share shifts a row, which softmax does not see but these do.
    if cell.reads == "scores":
        return f"the {cell.record.name} of correlated vectors"
    return "a soft-cap of correlated vectors" if cell.softcap is not None else None
