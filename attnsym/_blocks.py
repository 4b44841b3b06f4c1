"""A batch of attention problems as a list of heads, and how to cut a block of queries out of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from attnsym._scores import Inputs
from attnsym._settings import Settings
from attnsym._validate import Array
from attnsym.masks import key_range
from attnsym.norms import unit_vectors


@dataclass(frozen=True)
class Heads:
    """
    An array (..., rows, width) as one matrix for each head of the scores.

    Attributes
    ----------
    matrices : ndarray, (own, rows, width)
    index : ndarray of int, (n_heads,)
        Which matrix serves which head: broadcasting and shared key heads in one list.
    """

    matrices: Array
    index: npt.NDArray[np.int64]

    @cached_property
    def _in_order(self) -> bool:
        return bool(np.array_equal(self.index, np.arange(len(self.matrices))))

    def __getitem__(self, heads: slice) -> Array:
        """Return the matrices of some heads: a view, unless sharing makes them irregular."""
        if self._in_order:
            return self.matrices[heads]
        chosen = self.index[heads]
        first, last = int(chosen[0]), int(chosen[-1])
        if last - first + 1 == chosen.size and (chosen.size == 1 or bool((np.diff(chosen) == 1).all())):
            return self.matrices[first : last + 1]
        return self.matrices[chosen]


@dataclass(frozen=True)
class Problem:
    """
    Attention as a list of heads.

    Attributes
    ----------
    lead : tuple of int
        The leading axes of the output; their product is the number of heads.
    query, key, value : Heads
    scale : float or Heads
        Its matrices have one column, and one row or as many as there are queries.
    offset : Heads or None
        The sink's logit or the normalizer's bias, one number for each head.
    mask : Heads or None
        The caller's mask; its matrices may have one row or one column that stands for all.
    first, end : ndarray of int, (n_queries,)
        The keys that causality and window leave to each query: first ≤ j < end.
    settings : Settings
    output_dtype : dtype
    """

    lead: tuple[int, ...]
    query: Heads
    key: Heads
    value: Heads
    scale: float | Heads
    offset: Heads | None
    mask: Heads | None
    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    settings: Settings
    output_dtype: np.dtype[Any]

    @property
    def n_heads(self) -> int:
        """Number of score matrices."""
        return math.prod(self.lead)

    @property
    def n_queries(self) -> int:
        """Rows of each score matrix."""
        return int(self.query.matrices.shape[-2])

    @property
    def n_keys(self) -> int:
        """Columns of each score matrix."""
        return int(self.key.matrices.shape[-2])

    @property
    def n_scores(self) -> int:
        """Size of all score matrices together."""
        return self.n_heads * self.n_queries * self.n_keys


def as_problem(x: Inputs, settings: Settings) -> Problem:
    """Return attention over batch axes, broadcasting and shared key heads as a plain list of heads."""
    if x.grouped:
        batch = np.broadcast_shapes(x.query.shape[:-3], x.key.shape[:-3], x.value.shape[:-3])
        lead = (*batch, x.query.shape[-3])
    else:
        lead = np.broadcast_shapes(x.query.shape[:-2], x.key.shape[:-2], x.value.shape[:-2])
    query, key = x.query, x.key
    if settings.score == "cosine":  # a dot product of unit vectors
        query, key, settings = unit_vectors(query), unit_vectors(key), replace(settings, score="dot")
    first, end = key_range(
        x.query.shape[-2], x.key.shape[-2], settings.is_causal, settings.window, settings.causal_alignment
    )
    return Problem(
        lead=lead,
        query=_heads(query, lead),
        key=_heads(key, lead, x.grouped),
        value=_heads(x.value, lead, x.grouped),
        scale=x.scale if isinstance(x.scale, float) else _matrices(x.scale, lead),
        offset=None if x.offset is None else _matrices(x.offset, lead),
        mask=None if x.mask is None else _matrices(x.mask, lead),
        first=first,
        end=end,
        settings=replace(settings, is_causal=False, window=None),
        output_dtype=x.output_dtype,
    )


def block(problem: Problem, heads: slice, queries: slice) -> tuple[Inputs, Settings]:
    """Cut out some heads and queries, with all keys: a small problem (heads, n_queries, n_keys) of its own."""
    first, end = problem.first[queries, None], problem.end[queries, None]
    keys = np.arange(problem.n_keys)
    inputs = Inputs(
        query=problem.query[heads][:, queries],
        key=problem.key[heads],
        value=problem.value[heads],
        scale=problem.scale if isinstance(problem.scale, float) else row_part(problem.scale[heads], queries),
        offset=None if problem.offset is None else problem.offset[heads],
        mask=None if problem.mask is None else mask_part(problem.mask[heads], queries, slice(None)),
        columns=False,
        grouped=False,
        output_dtype=problem.output_dtype,
        visible=None if (first == 0).all() and (end == keys.size).all() else (keys >= first) & (keys < end),
    )
    return inputs, problem.settings


def mask_part(mask: Array, queries: slice, keys: slice) -> Array:
    """Cut a mask (heads, rows or 1, columns or 1), keeping the axes of length 1 that stand for all."""
    return row_part(mask, queries)[..., slice(None) if mask.shape[-1] == 1 else keys]


def row_part(x: Array, rows: slice) -> Array:
    """Cut a matrix (heads, rows or 1, columns) to some rows, keeping an axis of length 1 that stands for all."""
    return x if x.shape[-2] == 1 else x[:, rows]


def _matrices(x: Array, lead: tuple[int, ...]) -> Heads:
    return _heads(x.reshape((1,) * (2 - x.ndim) + x.shape), lead)


def _heads(x: Array, lead: tuple[int, ...], grouped: bool = False) -> Heads:
    own = x.shape[:-2]
    index = np.arange(math.prod(own), dtype=np.int64).reshape(own)
    if grouped:
        index = np.repeat(index, lead[-1] // own[-1], axis=-1)
    return Heads(x.reshape(math.prod(own), *x.shape[-2:]), np.broadcast_to(index, lead).ravel())
