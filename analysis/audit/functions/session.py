"""What all probes share: the function, the sizes, random inputs, and the reading of weights through one-hot values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.functions.adapter import Caller
from analysis.audit.functions.findings import Finding, finding

Array = NDArray[Any]

HIDDEN = 1e-20
REPEATS_UNDER_DROPOUT = 40


@dataclass(frozen=True)
class Sizes:
    """Batch, heads, queries, keys and components of a probe's inputs, all different where the function allows it."""

    batch: int = 2
    heads: int = 3
    n_queries: int = 5
    n_keys: int = 7
    d_k: int = 16


@dataclass
class Session:
    """
    One audit under way; the probes read `caller` and `sizes`, and add to `findings` and `facts`.

    Attributes
    ----------
    repeats : int
        Calls per reading: the largest of several where dropout is on, since a weight is either dropped or whole.
    axis : str
        "keys", "queries", "heads" or "batch": the axis over which softmax was found to normalise.
    skipped : dict
        Probe -> why it could not run.
    """

    caller: Caller
    sizes: Sizes
    rng: np.random.Generator
    mask_means: str = "keep"
    repeats: int = 1
    axis: str = "keys"
    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def report(self, code: str, evidence: str, title: str | None = None, *, severity: str | None = None) -> None:
        """Add a finding, by default with the catalogue's title and severity."""
        self.findings.append(finding(code, evidence, self.caller.function, title=title, severity=severity))

    def found(self, *codes: str) -> bool:
        """Tell whether one of these was reported."""
        return any(item.code in codes for item in self.findings)

    @property
    def tolerance(self) -> float:
        """What counts as equal in the function's precision: 2¹² rounding units (sums of tens of terms, exp, divide)."""
        noise: float = self.facts.get("noise", 0.0)
        return max(4096 * self.caller.precision, noise)

    def draw(self, *, sizes: Sizes | None = None, key_heads: int | None = None) -> tuple[Array, Array, Array]:
        """Return random query, key and value with components of standard deviation ½, so that softmax stays soft."""
        s = sizes or self.sizes
        key_shape = (s.batch, key_heads or s.heads, s.n_keys, s.d_k)
        query = 0.5 * self.rng.standard_normal((s.batch, s.heads, s.n_queries, s.d_k))
        return query, 0.5 * self.rng.standard_normal(key_shape), self.rng.standard_normal(key_shape)

    def read(self, query: Array, key: Array, *, mask: Array | None = None, causal: bool = False) -> Array:
        """Return all weights, (batch, heads, n_queries, key heads, n_keys); see `read_weights`."""
        return read_weights(self.caller, query, key, mask=mask, causal=causal, repeats=self.repeats)

    def own(self, query: Array, key: Array, *, mask: Array | None = None, causal: bool = False) -> Array:
        """Return the weights of each head on its own values, (batch, heads, n_queries, n_keys)."""
        every = self.read(query, key, mask=mask, causal=causal)
        own = np.stack([every[:, h, :, h, :] for h in range(query.shape[1])], axis=1)
        row_sum: float = self.facts.get("row_sum", 1.0)
        return np.asarray(own / row_sum)


def read_weights(
    caller: Caller, query: Array, key: Array, *, mask: Array | None = None, causal: bool = False, repeats: int = 1
) -> Array:
    """
    Return the weights of an attention function, exactly, from its outputs.

    With values one-hot over (head h', key j), the output of (head h, query i) in that column is the weight that it
    gives to (h', j). Keys are read d_k at a time, so that values are as wide as keys.
    """
    (batch, heads, n_queries, d_k), (_, key_heads, n_keys, _) = query.shape, key.shape
    weights = np.empty((batch, heads, n_queries, key_heads, n_keys))
    for head in range(key_heads):
        for start in range(0, n_keys, d_k):
            columns = np.arange(min(d_k, n_keys - start))
            value = np.zeros((batch, key_heads, n_keys, d_k))
            value[:, head, start + columns, columns] = 1.0
            outputs = [caller(query, key, value, mask=mask, causal=causal) for _ in range(repeats)]
            weights[:, :, :, head, start + columns] = np.max(outputs, axis=0)[..., columns]
    return weights


def reference(query: Array, key: Array, scale: float, visible: Array | None = None) -> Array:
    """Return softmax(scale·q kᵀ) over the visible keys, plainly; rows that see nothing are 0."""
    scores = scale * np.einsum("bhid,bhjd->bhij", query, key)
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(axis=-1, keepdims=True)
    result: Array = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return result


def distance(a: Array, b: Array) -> float:
    """Return the largest absolute difference, infinite where one is not finite."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(a - b).max(initial=0.0)
    return float(gap) if np.isfinite(gap) else float("inf")
