"""Claims about the instrument itself: the conditional sampler, the variance's denominator, the streams of shards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims.draws import GAUSSIAN, FloatArray
from analysis.confront.relation import Exactly
from analysis.confront.relation_draws import Identity
from analysis.measure.draw import samplers
from analysis.measure.draw.cell import StudyCell
from analysis.measure.estimate import estimators
from analysis.measure.estimate.accumulators import Moments, Sample
from analysis.measure.run import shards
from analysis.measure.run.executors import open_executor
from analysis.measure.run.seeds import settings_digest
from analysis.measure.settings import Asked, read_settings
from analysis.predict.exact import (
    expected_entropy,
    expected_jacobian_trace,
    expected_max_weight,
    expected_query_gradient_squared,
)
from analysis.vocabulary.scale import resolve_scale

_EXACT = {"entropy": expected_entropy, "jacobian_trace": expected_jacobian_trace, "max_weight": expected_max_weight}


@cache
def study_cell(cell: Cell, sampler: str) -> StudyCell:
    """Return the cell of a study with these settings and this sampler."""
    asked = Asked(cell.d_k, cell.n_keys, cell.scale, sampler=sampler, replicates=2)
    return read_settings(cell.quantity, asked).cells[0]


def exact_value(cell: Cell) -> float:
    """Return the exact expectation of the quantity: where the share below is counted."""
    if cell.quantity == "query_gradient_norm":
        return math.sqrt(float(expected_query_gradient_squared(cell.n_keys, d_k=cell.d_k, scale=cell.scale)))
    return float(_EXACT[cell.quantity](cell.n_keys, d_k=cell.d_k, scale=cell.scale))


def direct_minus_conditional(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return value minus value, or [value below a point] minus the same, of one draw of each sampler."""
    streams = rng.bit_generator.seed_seq.spawn(2)  # type: ignore[attr-defined]  # a property of every BitGenerator
    direct, conditional = (
        samplers.draw(study_cell(cell, sampler), stream, replicates)
        for sampler, stream in zip(("direct", "conditional"), streams, strict=True)
    )
    if cell.of == "share below":
        return np.asarray((direct <= exact_value(cell)) * 1.0 - (conditional <= exact_value(cell)))
    return np.asarray(direct - conditional)


def error_of_fixed_length(cell: Cell) -> float:
    """Return the difference of means if the conditional sampler forgot that the query's length varies."""
    if cell.of == "share below" or cell.quantity not in _EXACT:
        return 0.0
    sigma = resolve_scale(cell.scale)(cell.d_k, cell.n_keys) * math.sqrt(cell.d_k)
    return exact_value(cell) - float(_EXACT[cell.quantity](cell.n_keys, sigma=sigma))


CONDITIONAL_SAMPLER = Claim(
    key="conditional-sampler",
    statement="The conditional sampler, ‖q‖ ~ χ(d_k) and scores N(0, (scale·‖q‖)²) given it, has the law of the direct "
    "one",
    meaning="Studies may draw n numbers a row instead of n·d_k: for Gaussian keys nothing is lost. Claims themselves "
    "never use it, so that the short cut is measured against the long way and not against itself.",
    assumptions=GAUSSIAN,
    source="derived here",
    derivation=None,
    predict=None,
    sample=direct_minus_conditional,
    estimator="mean",
    relation=Exactly(),
    grid={
        "of": ("value", "share below"),
        "quantity": ("entropy", "jacobian_trace", "max_weight", "query_gradient_norm"),
        "scale": ("sqrt", "unscaled"),
        "d_k": (3,),
        "n_keys": (5,),
    },
    rival=error_of_fixed_length,
    mistake="a sampler that forgets that the query's length varies",
    replicates=20_000,
)


def variance_of_four(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the estimated variance of 3, 0, 1, 2 accumulated in two shards."""
    sample = Sample(Moments.of(np.array([3.0, 0.0])).merge(Moments.of(np.array([1.0, 2.0]))))
    return np.full(replicates, estimators.estimate(sample, "variance", 0.95).estimate)


def five_thirds(cell: Cell) -> float:
    """Return 5/3."""
    return 5 / 3


def five_quarters(cell: Cell) -> float:
    """Return 5/4."""
    return 5 / 4


VARIANCE_DENOMINATOR = Claim(
    key="variance-denominator",
    statement="The variance of the sample 3, 0, 1, 2 is 5/3: the denominator is n - 1",
    meaning="Every variance that a study or a claim estimates is the unbiased one, however many shards it was drawn "
    "in. NumPy's default divides by n and would be 5/4; so does, on purpose, the audit of tensors.",
    assumptions=("a sample of four numbers",),
    source="derived here",
    derivation=None,
    predict=five_thirds,
    sample=variance_of_four,
    estimator=None,
    relation=Identity(),
    grid={"sample": ("3, 0, 1, 2",)},
    rival=five_quarters,
    mistake="the denominator n",
    is_code_check=True,
    replicates=2,
)


@dataclass(frozen=True)
class UniformShards:
    """A unit of work whose draws are the first numbers of its stream."""

    name: str = "independent-streams"
    where: str = "uniform numbers"
    shard: int = 2

    @property
    def digest(self) -> str:
        """The name of its streams."""
        return settings_digest(self.name, {})

    def draw(self, sequence: np.random.SeedSequence, replicates: int) -> FloatArray:
        """Return the first numbers of the stream."""
        return np.random.Generator(np.random.PCG64(sequence)).random(replicates)


def distinct_share(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the share of distinct numbers among all that the cell's shards drew."""
    work = [(UniformShards(), 2 * cell.shards)]
    with open_executor(None, 1) as pool:
        (sample,) = shards.run_cells(
            work,
            draw=UniformShards.draw,
            seed=0,
            keep_values=True,
            executor=pool,
            store=None,
            advance=lambda replicates: None,
        )
    assert sample.ordered is not None
    return np.full(replicates, np.unique(sample.ordered.low).size / sample.ordered.low.size)


def one(cell: Cell) -> float:
    """Return 1."""
    return 1.0


def share_of_one_stream(cell: Cell) -> float:
    """Return the share if all shards drew from one stream."""
    return 1.0 / float(cell.shards)


INDEPENDENT_STREAMS = Claim(
    key="independent-streams",
    statement="No two shards of a cell draw the same number",
    meaning="Replicates from different workers are independent, which every error bar here assumes. A stream shared "
    "between workers would make the bars too small without any other sign.",
    assumptions=("64 shards of two uniform numbers",),
    source="derived here",
    derivation=None,
    predict=one,
    sample=distinct_share,
    estimator=None,
    relation=Identity(),
    grid={"shards": (64,)},
    rival=share_of_one_stream,
    mistake="one stream for all shards",
    is_code_check=True,
    replicates=2,
)

METHOD_CLAIMS = (CONDITIONAL_SAMPLER, VARIANCE_DENOMINATOR, INDEPENDENT_STREAMS)
