"""Draw the replicates of a cell by the exact conditional law: given q, the scores of Gaussian keys are independent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.measure.draw.cell import StudyCell
from analysis.measure.draw.normals import NormalBlock
from analysis.measure.draw.score_columns import TAME, ScoreColumns, TameColumns

Array = NDArray[Any]
Generator = np.random.Generator

_REACH = {np.float64: 9.0, np.float32: 6.8}  # no normal is larger: by chance 1e-19 per draw, by construction


class ConditionalSampler:
    """
    Chunks of replicates, drawn without vectors.

    For keys of independent standard normal components the scores given q are independent N(0, (scale·‖q‖)²). With
    key correlation ρ, what the keys share shifts all scores of a row alike, which softmax does not see: scale·√(1 − ρ)
    acts. The gradient of g·p with respect to q is scale·Kᵀ J g: along q its keys' components are the normals that
    made the scores, across it d_k − 1 fresh ones, independent of the scores, of total size χ(d_k − 1)·‖J g‖.
    """

    def __init__(self, cell: StudyCell) -> None:
        self.cell = cell
        self.dtype, self.rows = cell.dtype, cell.chunk
        self.spread = cell.scale * math.sqrt(1.0 - cell.key_correlation)
        assert cell.record is not None
        assert not callable(cell.laws)
        self.query_law = cell.laws[0]
        self.normals = NormalBlock(cell.keys_drawn, self.rows, self.dtype)
        self.exp = np.empty((cell.keys_drawn, self.rows), dtype=self.dtype)
        self.record = cell.record
        has_upstream = self.record.reads in ("score_gradient", "query_gradient")
        self.upstream = NormalBlock(cell.keys_drawn, self.rows, self.dtype) if has_upstream else None

    def __call__(self, rng: Generator) -> Array:
        """Return the values of one chunk."""
        length = self._query_lengths(rng)
        if self.record.reads == "score":
            return np.asarray(self.record.value(self._scores(length, self.normals.fill(rng)[0].astype(np.float64))))
        factor = self.spread * length
        if self.upstream is not None:
            return np.asarray(self.record.value(self._gradient_norms(rng, factor.astype(self.dtype), self.upstream)))
        scores = self.normals.fill(rng, factor.astype(self.dtype))
        if self.cell.softcap is not None:
            self._cap(scores)
        is_tame = self.cell.softcap is None and np.abs(factor).max() * _REACH[self.dtype] < TAME
        return self._of_row(scores, is_tame=is_tame)

    def _of_row(self, scores: Array, *, is_tame: bool) -> Array:
        record = self.record
        if record.from_columns is not None:
            kind: Any = TameColumns if record.only_entropy and is_tame else ScoreColumns
            return np.asarray(record.from_columns(kind(scores, self.exp)))
        return np.asarray(
            record.value(scores.T if record.reads == "scores" else ScoreColumns(scores, self.exp).weights())
        )

    def _query_lengths(self, rng: Generator) -> Array:
        rows = self.rows
        if self.query_law.name == "normal":
            return np.sqrt(rng.chisquare(self.cell.d_k, rows))
        query = self.query_law.sample(rng, (rows, self.cell.d_k), self.dtype)
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", query, query, dtype=np.float64)))

    def _scores(self, length: Array, along: Array) -> Array:
        a, scale, cap = self.cell.alignment, self.cell.scale, self.cell.softcap
        scores = scale * (a * length**2 + math.sqrt(1.0 - a * a) * length * along)
        return np.asarray(scores if cap is None else cap * np.tanh(scores / cap))

    def _cap(self, scores: Array) -> None:
        assert self.cell.softcap is not None
        scores /= self.cell.softcap
        np.tanh(scores, out=scores)
        scores *= self.cell.softcap

    def _gradient_norms(self, rng: Generator, factor: Array, upstream: NormalBlock) -> Array:
        along = self.normals.fill(rng)
        scores = along * factor
        if self.cell.softcap is not None:
            self._cap(scores)
            slope = 1.0 - (scores / self.cell.softcap) ** 2
        gradient = ScoreColumns(scores, self.exp).times_jacobian(upstream.fill(rng))
        if self.record.reads == "score_gradient":
            return np.sqrt(_squares(gradient, gradient))
        if self.cell.softcap is not None:
            gradient *= slope
        rows, d_k = self.rows, self.cell.d_k
        across = rng.chisquare(d_k - 1, rows) if d_k > 1 else np.zeros(rows)
        total = _squares(along, gradient) ** 2 + across * _squares(gradient, gradient)
        return np.asarray(abs(self.spread) * np.sqrt(total))


def _squares(x: Array, y: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->j", x, y, dtype=np.float64))
