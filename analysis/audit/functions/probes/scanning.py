"""How much one key's score exceeds the others', for every query and place of the key: the readings behind the scale."""

from __future__ import annotations

import numpy as np

from analysis.audit.functions.layouts import Array
from analysis.audit.functions.probes.visibility import seen_by_default
from analysis.audit.functions.session import Session, Sizes

PLACES = 14


def scan(
    s: Session, q_norm: float, k_norm: float, sizes: Sizes, *, channel: int = 0, places: list[int] | None = None
) -> Array:
    """
    Return, for each head, row and key, the score that the key has with q·k = q_norm·k_norm over q·k = 0.

    Every query is q_norm times the first unit vector, every key k_norm times the last, and each key in turn k_norm
    times that of `channel` instead. A bias by position and the normaliser drop out. Under rotary embedding the reading
    is scale·q·k at angle 0 and less elsewhere.

    Returns
    -------
    ndarray, (heads, n_queries, n_keys)
        NaN where a key is hidden, or the only one of its row; at most `PLACES` keys are read.
    """
    q, k = s.aligned(sizes, q_norm, k_norm)
    if s.axis in ("queries", "heads", "batch"):
        return _across(s, q, k, q_norm, k_norm)
    seen = seen_by_default(s, sizes.n_queries, sizes.n_keys)
    base = s.score(s.own(q, k)[0])
    result = np.full(base.shape, np.nan)
    spread = np.linspace(0, sizes.n_keys - 1, min(PLACES, sizes.n_keys)).round().astype(int).tolist()
    for place in spread if places is None else places:
        raised = k.copy()
        raised[:, :, place] = 0.0
        raised[:, :, place, channel] = k_norm
        change = s.score(s.own(q, raised)[0]) - base
        result[..., place] = change[..., place]
        if s.axis == "keys":
            others = seen.copy()
            others[:, place] = False
            result[..., place] -= _mean(change, others)  # all others move alike, by what the normaliser did
    return np.where(seen, result, np.nan)


def _mean(change: Array, pairs: Array) -> Array:
    shown = np.where(pairs & np.isfinite(change), change, 0.0)
    counts = (pairs & np.isfinite(change)).sum(axis=-1)
    return np.asarray(shown.sum(axis=-1) / np.where(counts > 0, counts, np.nan))


def _across(s: Session, q: Array, k: Array, q_norm: float, k_norm: float) -> Array:
    """Read the same where softmax runs over another axis: one query of two is raised along that axis."""
    k[...] = 0.0
    k[..., 0] = k_norm
    q[...] = 0.0
    q[..., -1] = q_norm
    raised = q.copy()
    place = {"queries": (slice(None), slice(None), 0), "heads": (slice(None), 0), "batch": (0,)}[s.axis]
    raised[place] = 0.0
    raised[(*place, ..., 0)] = q_norm
    change = s.score(s.own(raised, k)) - s.score(s.own(q, k))
    other = {"queries": (0, 0, 1, 0), "heads": (0, 1, 0, 0), "batch": (1, 0, 0, 0)}[s.axis]
    return np.full((q.shape[1], q.shape[2], k.shape[2]), change[0, 0, 0, 0] - change[other])
