"""What all probes share: the function, the sizes, random inputs, and the reading of weights through one-hot values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.audit.functions.adapter import Caller, CallFailed
from analysis.audit.functions.findings import Finding, finding
from analysis.audit.functions.layouts import Array

HIDDEN = 1e-20
REPEATS_UNDER_DROPOUT = 40
_ROUNDINGS = {"float64": 2**12, "float32": 2**8, "float16": 3, "bfloat16": 3}
COARSE = 1e-3
_LEAST = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126}


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
    mask_means : str or None
        What True in a boolean mask was declared to mean, "keep" or "drop"; None where nothing was declared.
    repeats : int
        Calls per reading: the largest of several where dropout is on, since a weight is either dropped or whole.
    axis : str
        "keys", "queries", "heads" or "batch": the axis over which softmax was found to normalise; "each" where every
        weight is a function of its own score alone, "kernel" where it is a product of features, "none" where unknown.
    link : str
        What turns a weight into its score: "log", "logit", "identity" or "root".
    spread : float
        Standard deviation of the components that `draw` returns.
    skipped : dict
        Probe -> why it could not run.
    """

    caller: Caller
    sizes: Sizes
    rng: np.random.Generator
    mask_means: str | None = None
    repeats: int = 1
    axis: str = "keys"
    link: str = "log"
    spread: float = 0.5
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
        """What counts as equal among weights: the rounding of the type, of sums of tens of terms, exp and divide."""
        noise: float = self.facts.get("noise", 0.0)
        return max(_ROUNDINGS[self.caller.dtype] * self.caller.precision, noise)

    def times(self, factor: float) -> float:
        """Return a factor of safety: in half precision no more than 2, where errors are what they are bounded by."""
        return factor if self.tolerance < COARSE else min(factor, 2.0)

    def slack(self, factor: float) -> float:
        """Return that many tolerances."""
        return self.times(factor) * self.tolerance

    @property
    def sum_error(self) -> float:
        """What a row's sum may be off by: in half precision two roundings at 1."""
        if self.tolerance < COARSE:
            return 4 * self.tolerance
        noise: float = self.facts.get("noise", 0.0)
        return 2 * max(self.caller.precision, noise / 8)

    def draw(
        self, *, sizes: Sizes | None = None, key_heads: int | None = None, spread: float | None = None
    ) -> tuple[Array, Array, Array]:
        """Return random query, key and value, rounded to the function's type; scores stay soft."""
        s, size = sizes or self.sizes, self.spread if spread is None else spread
        key_shape = (s.batch, key_heads or s.heads, s.n_keys, s.d_k)
        query = size * self.rng.standard_normal((s.batch, s.heads, s.n_queries, s.d_k))
        key, value = size * self.rng.standard_normal(key_shape), self.rng.standard_normal(key_shape)
        return self.caller.rounded(query), self.caller.rounded(key), self.caller.rounded(value)

    def aligned(self, sizes: Sizes, q_norm: float, k_norm: float) -> tuple[Array, Array]:
        """
        Return queries along the first channel and keys along the last, so that every q·k is 0, rotated or not.

        Rotary embeddings turn a channel within its pair, with its neighbour or with the one half the width away.
        """
        query = np.zeros((sizes.batch, sizes.heads, sizes.n_queries, sizes.d_k))
        key = np.zeros((sizes.batch, sizes.heads, sizes.n_keys, sizes.d_k))
        query[..., 0], key[..., -1] = q_norm, k_norm
        return query, key

    def read(self, query: Array, key: Array, **masks: Any) -> Array:
        """Return all weights, (batch, heads, n_queries, key heads, n_keys); see `read_weights`."""
        return read_weights(self.caller, query, key, repeats=self.repeats, **masks)

    def own(self, query: Array, key: Array, **masks: Any) -> Array:
        """Return the weights of each head on its own values, (batch, heads, n_queries, n_keys), of row sum 1."""
        weights = read_own(self.caller, query, key, repeats=self.repeats, **masks)
        total = np.asarray(self.facts.get("row_sum", 1.0))
        if total.ndim and len(total) != query.shape[1]:
            raise CallFailed(f"row sums are known of {len(total)} heads, not of {query.shape[1]}")
        return np.asarray(weights / total)

    @property
    def least(self) -> float:
        """The smallest weight that its type still holds to all its digits; 0 in double precision."""
        return _LEAST.get(self.facts.get("inner", self.caller.dtype), 0.0)

    def score(self, weights: Array) -> Array:
        """Return the scores that weights stand for, up to a constant per row where rows are normalised."""
        with np.errstate(all="ignore"):
            if self.link == "logit":
                return np.asarray(np.log(weights) - np.log1p(-weights))
            if self.link == "log":
                return np.asarray(np.log(np.where(weights > self.least, weights, np.nan)))
            return np.asarray(weights if self.link == "identity" else np.sqrt(weights))


def read_own(caller: Caller, query: Array, key: Array, *, repeats: int = 1, **masks: Any) -> Array:
    """
    Return the weight that each head gives to its own keys, exactly, from its outputs.

    With values one-hot over keys, alike in all heads, column j of the output is the weight of key j. Keys are read
    d_k at a time, so that values are as wide as keys. Heads must not mix (`probe_locality`).
    """
    (batch, heads, n_queries, d_k), n_keys = query.shape, key.shape[2]
    weights = np.empty((batch, heads, n_queries, n_keys))
    for start in range(0, n_keys, d_k):
        columns = np.arange(min(d_k, n_keys - start))
        value = np.zeros((*key.shape[:3], d_k))
        value[:, :, start + columns, columns] = 1.0
        outputs = [caller(query, key, value, **masks) for _ in range(repeats)]
        weights[..., start + columns] = np.max(outputs, axis=0)[..., columns]
    return weights


def read_weights(caller: Caller, query: Array, key: Array, *, repeats: int = 1, **masks: Any) -> Array:
    """Return the weights that each query head gives to the keys of each key head: `read_own`, head by head."""
    (batch, heads, n_queries, d_k), (_, key_heads, n_keys, _) = query.shape, key.shape
    weights = np.empty((batch, heads, n_queries, key_heads, n_keys))
    for head in range(key_heads):
        for start in range(0, n_keys, d_k):
            columns = np.arange(min(d_k, n_keys - start))
            value = np.zeros((batch, key_heads, n_keys, d_k))
            value[:, head, start + columns, columns] = 1.0
            outputs = [caller(query, key, value, **masks) for _ in range(repeats)]
            weights[:, :, :, head, start + columns] = np.max(outputs, axis=0)[..., columns]
    return weights


def distance(a: Array, b: Array) -> float:
    """Return the largest absolute difference, infinite where one is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(a - b).max(initial=0.0)
    return float(gap) if math.isfinite(gap) else float("inf")


def centred(scores: Array, seen: Array | None = None) -> Array:
    """Return scores less their mean over the visible keys of a row; NaN elsewhere."""
    shown = scores if seen is None else np.where(seen, scores, np.nan)
    counts = np.isfinite(shown).sum(axis=-1, keepdims=True)
    total = np.where(np.isfinite(shown), shown, 0.0).sum(axis=-1, keepdims=True)
    return np.asarray(np.where(np.isfinite(shown), shown, np.nan) - total / np.maximum(counts, 1))
