"""What a caller asks of attention beside the arrays: read, checked and worded here for every function that takes it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._validate import (
    ALIGNMENTS,
    CONVENTIONS,
    Array,
    ScoreFunction,
    choice,
    finite_array,
    flag,
    optional_scale,
    optional_sink,
    optional_softcap,
)
from attnsym.masks import Window, window_sides

NORMALIZERS = ("softmax", "sigmoid", "relu")

# From this many scores on, attention works in tiles; with fewer queries the keys outweigh the scores anyway.
_LEAN_SCORES = 1 << 17
_LEAN_QUERIES = 8


@dataclass(frozen=True)
class Settings:
    """
    The options of attention, checked.

    Attributes
    ----------
    scale : float, ndarray (..., n_queries), or None
        The factor on the scores; None is the default of the score, which `scale_at` resolves.
    score, softcap, enable_gqa, is_causal, causal_alignment, convention
        As the caller gave them; a callable score runs under the error state in which it was given.
    window : (left, right) or None
        Both sides inclusive, None where one is open.
    sink, normalizer_bias : ndarray (..., num_heads) or None
        At most one of them; `offset_at` resolves the default of the bias.
    normalizer : {"softmax", "sigmoid", "relu"}
    """

    scale: float | Array | None = None
    score: str | ScoreFunction = "dot"
    softcap: float | None = None
    enable_gqa: bool = False
    is_causal: bool = False
    window: tuple[int | None, int | None] | None = None
    causal_alignment: str = "top_left"
    convention: str = "rows"
    sink: Array | None = None
    normalizer: str = "softmax"
    normalizer_bias: Array | None = None

    @property
    def columns(self) -> bool:
        """Whether the caller's vectors are columns."""
        return self.convention == "columns"

    def scale_at(self, d_k: int) -> float | Array:
        """Return the factor on the scores: as given (0 is 0), else 1/√d_k for dot products and 1 for other scores."""
        if self.scale is not None:
            return self.scale
        return _default_scale(d_k) if self.score == "dot" else 1.0

    def offset_at(self, n_keys: int) -> Array | None:
        """Return the sink's logit, or what sigmoid or ReLU adds to scores: as given, else −log n_keys for sigmoid."""
        if self.normalizer == "sigmoid" and self.normalizer_bias is None:
            return np.asarray(-math.log(max(n_keys, 1)))
        return self.sink if self.normalizer == "softmax" else self.normalizer_bias


def read_settings(
    *,
    scale: Any = None,
    score: str | ScoreFunction = "dot",
    softcap: Any = None,
    enable_gqa: bool = False,
    is_causal: bool = False,
    window: Window = None,
    causal_alignment: str = "top_left",
    convention: str = "rows",
    sink: Any = None,
    normalizer: str = "softmax",
    normalizer_bias: Any = None,
) -> Settings:
    """Check the caller's options and return them; each may be left out where a function does not take it."""
    choice(convention, "convention", CONVENTIONS)
    choice(causal_alignment, "causal_alignment", ALIGNMENTS)
    if not callable(score) and not (isinstance(score, str) and score in ("dot", "cosine")):
        raise ValueError(f"score must be 'dot', 'cosine' or a callable (query, key) -> scores: got {score!r}")
    choice(normalizer, "normalizer", NORMALIZERS)
    if normalizer == "softmax" and normalizer_bias is not None:
        raise ValueError("normalizer_bias needs normalizer 'sigmoid' or 'relu': softmax does not see a constant")
    if normalizer != "softmax" and sink is not None:
        raise ValueError(f"sink needs normalizer 'softmax', whose denominator it enters: got {normalizer!r}")
    state = np.geterr()
    with np.errstate(all="ignore"):
        return Settings(
            scale=optional_scale(scale),
            score=partial(_in_state, state, score) if callable(score) else score,
            softcap=optional_softcap(softcap),
            enable_gqa=flag(enable_gqa, "enable_gqa"),
            is_causal=flag(is_causal, "is_causal"),
            window=None if window is None else window_sides(window),
            causal_alignment=causal_alignment,
            convention=convention,
            sink=optional_sink(sink),
            normalizer=normalizer,
            normalizer_bias=None if normalizer_bias is None else finite_array(normalizer_bias, "normalizer_bias"),
        )


def is_large(scores_shape: tuple[int, ...], dtype: np.dtype[Any], settings: Settings) -> bool:
    """Return whether to work in tiles: on a large score matrix, unless few queries have keys of their own."""
    return (
        math.prod(scores_shape) >= _LEAN_SCORES
        and scores_shape[-2] >= _LEAN_QUERIES
        and dtype.itemsize <= 8
        and not callable(settings.score)
    )


def _in_state(state: Any, score: ScoreFunction, query: Array, key: Array) -> npt.ArrayLike:
    with np.errstate(**state):
        return score(query, key)


def _default_scale(d_k: int) -> float:
    return 1.0 / math.sqrt(d_k) if d_k else 1.0  # vectors without components: every score is an empty sum
