"""Random vectors: are the weights those of the scores that were recovered?"""

from __future__ import annotations

import numpy as np

from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.kernels import is_kernel, is_sparsemax
from analysis.audit.functions.probes.position import position_bias
from analysis.audit.functions.probes.scores import relative_error
from analysis.audit.functions.probes.visibility import seen_by_default
from analysis.audit.functions.session import Session, centred

SINGLE = 2e-5
HALF = 0.03


def probe_exactness(s: Session) -> None:
    """Compare the scores behind the weights of random vectors with scale·q·k, capped and biased as was found."""
    by_row = s.facts.get("by_row")
    if by_row is None or s.axis not in ("keys", "each") or s.found("softmax-axis", "large-scores", "unexplained"):
        return
    if s.facts.get("normalised") or "rotary" in s.facts:
        return
    q, k, _ = s.draw()
    gap, size = _gap(s, q, k, by_row)
    if gap is None:
        return
    worst = float(np.abs(gap[np.isfinite(gap)]).max(initial=0.0))
    if worst <= s.tolerance * (1 + size):
        s.facts["exact"] = worst
        return
    if worst < SINGLE * (1 + size) or (worst < HALF * (1 + size) and _is_rounding(s, q, k, by_row, gap)):
        s.facts["noise"] = max(s.facts.get("noise", 0.0), 8 * worst)
        s.facts["exact"] = worst
        if not s.found("low-precision"):
            s.report("low-precision", f"Scores are {np.nanmean(by_row):.4g}·q·k within {worst:.2g}.")
    elif _by_distance(s, q, k, by_row, gap, size):
        s.report("distance", f"Beside q·k the scores hold {s.facts['by_key']:.6g}·|k|².")
    elif s.axis == "keys" and (is_sparsemax(s, q, k) or is_kernel(s)):
        s.facts.pop("by_row")
    else:
        s.report(
            "unexplained", f"Scores are up to {worst:.3g} from {np.nanmean(by_row):.6g}·q·k, of a size of {size:.3g}."
        )


def _gap(s: Session, q: Array, k: Array, by_row: Array) -> tuple[Array | None, float]:
    """Return, pair by pair, the score less scale·q·k (NaN where hidden), and the largest score of the latter."""
    seen = seen_by_default(s, q.shape[2], k.shape[2])
    x = np.einsum("bhid,bhjd->bhij", q, k) * by_row[None, :, :, None]
    if "softcap" in s.facts:
        x = s.facts["softcap"] * np.tanh(x / s.facts["softcap"])
    score = s.score(s.own(q, k))
    if s.facts.get("biased"):
        score = score - position_bias(s, *s.aligned(s.sizes, s.spread, s.spread))
    elif s.axis == "each":
        score = score - s.facts.get("normalizer_bias", 0.0)
    if s.axis == "each":
        if s.link != "log":  # ReLU: pairs below 0 show nothing
            seen = seen & (x > 0) if s.link in ("identity", "root") and s.found("relu") else seen
        gap = np.where(seen, score - x, np.nan)
    else:
        gap = centred(score, seen) - centred(x, seen & np.isfinite(score))
    if not np.isfinite(gap).any():
        return None, 0.0
    return gap, float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def _is_rounding(s: Session, q: Array, k: Array, by_row: Array, gap: Array) -> bool:
    """Rounding falls otherwise on other inputs; what is systematic stays: compare after a step of 3 percent."""
    again, _ = _gap(s, s.caller.rounded(1.03 * q), k, by_row)
    if again is None:
        return False
    both = np.isfinite(gap) & np.isfinite(again)
    return bool(np.corrcoef(gap[both], again[both])[0, 1] < 0.9)


def _by_distance(s: Session, q: Array, k: Array, by_row: Array, gap: Array, size: float) -> bool:
    """Tell whether the rest is in proportion to the keys' squared lengths, as in scores by distance."""
    if s.axis != "keys":
        return False
    shown = np.isfinite(gap)
    norms = centred(np.broadcast_to((k**2).sum(-1)[:, :, None, :], gap.shape), shown)
    x, y = np.where(shown, norms, 0.0), np.where(shown, gap, 0.0)
    slope = float((x * y).sum() / max((x * x).sum(), 1e-300))
    s.facts["by_key"] = slope
    return float(np.abs(y - slope * x).max()) < s.slack(8) * (1 + size) + s.times(8) * relative_error(s)
