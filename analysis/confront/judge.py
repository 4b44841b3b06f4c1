"""Run claims: derive again, predict, measure through the attention core, and let the three confront each other."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from analysis.confront.cell import Cell
from analysis.confront.claim import Claim
from analysis.confront.claims import CLAIMS
from analysis.confront.confirmation import CellResult, ClaimResult, ClaimVerdict, Confirmation
from analysis.confront.derived import Support
from analysis.measure.draw.chunks import chunk_size, sizes
from analysis.measure.estimate.accumulators import Sample
from analysis.measure.run.effort import check_effort
from analysis.measure.run.executors import ExecutorLike, check_sendable, open_executor, workers_of
from analysis.measure.run.progress import progress_bar
from analysis.measure.run.seeds import check_seed, settings_digest
from analysis.measure.run.shards import run_cells
from analysis.measure.run.store import Store
from analysis.vocabulary.numbers import shown
from attnsym._names import find_name

_CHUNK_ELEMENTS = 1 << 17  # random numbers drawn at once: near the size of a core's cache
_CHUNKS_PER_SHARD = 16


@dataclass(frozen=True, eq=False)
class ClaimCell:
    """A cell of a claim as a unit that workers draw from; its streams are named by the claim's key and settings."""

    claim: Claim
    cell: Cell

    @cached_property
    def digest(self) -> str:
        """The name of the cell's streams and of its rows in a store."""
        return settings_digest(self.claim.key, dict(self.cell.settings))

    @property
    def name(self) -> str:
        """The claim's key, for messages."""
        return self.claim.key

    @property
    def where(self) -> str:
        """The cell in words, for messages."""
        return str(self.cell)

    @property
    def elements(self) -> int:
        """Random numbers per replicate, roughly."""
        return int(self.cell.get("d_k", 1)) * (int(self.cell.get("n_keys", 1)) + 1)

    @property
    def chunk(self) -> int:
        """Replicates drawn at once: a property of the cell, never of the number of workers or replicates."""
        return chunk_size(self.elements, _CHUNK_ELEMENTS, least=16)

    @property
    def shard(self) -> int:
        """Replicates of one shard."""
        return self.chunk * _CHUNKS_PER_SHARD

    @property
    def keeps_values(self) -> bool:
        """Whether the relation looks at order statistics."""
        return self.claim.relation.needs_order(self.claim.estimator_of(self.cell))

    def draw(self, sequence: np.random.SeedSequence, replicates: int) -> NDArray[np.float64]:
        """Return that many independent draws of the claim's sample."""
        rng = np.random.Generator(np.random.PCG64(sequence))
        return np.concatenate([self._chunk(rng, size) for size in sizes(replicates, self.chunk)])

    def _chunk(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):  # a draw that is not finite contradicts its claim: that is said there
            try:
                draws = np.asarray(self.claim.sample(self.cell, rng, size), dtype=np.float64)
            except (ValueError, ArithmeticError):  # what the core refuses is no number; `_failure` finds its words
                return np.full(size, np.nan)
        if draws.shape != (size,):
            raise ValueError(
                f"claim {self.claim.key!r}: sample must return one number per replicate, shape ({size},): got shape "
                f"{draws.shape} at {self.cell}"
            )
        return draws


def confirm(
    claims: Claim | str | Iterable[Claim | str] = CLAIMS,
    *,
    budget: float = 1.0,
    seed: int = 0,
    family_wise_alpha: float = 1e-6,
    workers: int | None = None,
    executor: ExecutorLike = None,
    store: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Confirmation:
    """
    Hold claims against their derivations, their predictions and measurements through the attention core.

    Parameters
    ----------
    claims : Claim, key, or iterable of them
        The built-in ones by default: all of them, or those of these keys; your own records pass the same way.
    budget : float
        Times the replicates that each claim asks for.
    seed : int
        The streams derive from (seed, claim's key and cell's settings, shard): neither the number of workers nor the
        choice of claims changes a number.
    family_wise_alpha : float
        Probability that one or more true claims among all are rejected by chance: Bonferroni over the cells of all
        claims with a random outcome. A cell whose estimator's tail is not calibrated at its number of replicates is
        shown but not judged, and does not enter the family.
    workers, executor, store, progress
        As in `run_study`. A store keeps draws by claim and settings: start a new one after editing a claim's `sample`.

    Returns
    -------
    Confirmation
        One `ClaimResult` per claim; ``passed`` only if every verdict is "confirmed".

    Raises
    ------
    ValueError
        For a budget, level or seed that makes no sense, two claims of one key, an unknown derivation, or a claim of
        unnamed functions that worker processes cannot import.

    Notes
    -----
    A claim is rejected if its derivation is FALSE or a judged cell contradicts the prediction, as draws do that are no
    numbers or that `sample` refuses with a ValueError (the reason then has its words); UNKNOWN if its
    derivation is; "not separated" if no judged cell contradicts the rival; else confirmed.
    """
    chosen = _checked_claims(claims)
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget <= sys.float_info.max:
        raise ValueError(f"budget must be a positive number: got {shown(budget)}")
    if not 0 < family_wise_alpha < 1:
        raise ValueError(f"family_wise_alpha must lie between 0 and 1: got {family_wise_alpha!r}")
    seed = check_seed(seed)
    derivations = {claim.key: _derivation_verdict(claim.derivation) for claim in chosen}
    supports = {claim.key: claim.support for claim in chosen}
    cells = [ClaimCell(claim, cell) for claim in chosen for cell in claim.cells]
    critical = critical_z(family_wise_alpha, sum(item.claim.relation.stochastic for item in cells))
    with ExitStack() as stack:
        pool = stack.enter_context(open_executor(executor, workers))
        for claim in chosen:
            for name in ("sample", "predict", "rival"):
                check_sendable(pool, f"claim {claim.key!r}: {name}", getattr(claim, name))
        shards = None if store is None else stack.enter_context(Store(store, {"name": "confirm", "seed": seed}))
        work = [(item, item.claim.replicates_at(item.cell, budget)) for item in cells]
        numbers = sum(count * item.elements for item, count in work)
        check_effort("budget", numbers, workers_of(pool), shown=progress)
        advance = stack.enter_context(progress_bar("confirm", sum(count for _, count in work), shown=progress))
        outcomes = {}
        for keep_values in (False, True):
            part = [(item, count) for item, count in work if item.keeps_values is keep_values]
            samples = run_cells(
                part,
                draw=ClaimCell.draw,
                seed=seed,
                keep_values=keep_values,
                executor=pool,
                store=shards,
                advance=advance,
            )
            for (item, _), sample in zip(part, samples, strict=True):
                outcomes[item] = _judged(item, sample, critical)
    results = tuple(
        _claim_result(
            claim, derivations[claim.key], supports[claim.key], [outcomes[i] for i in cells if i.claim is claim], budget
        )
        for claim in chosen
    )
    return Confirmation(results, budget, seed, family_wise_alpha, critical)


def critical_z(family_wise_alpha: float, tests: int) -> float:
    """Return the two-sided critical z of one test among `tests` at this family-wise level (Bonferroni)."""
    from scipy.special import ndtri

    return float(-ndtri(family_wise_alpha / (2 * max(tests, 1))))


def _checked_claims(claims: Claim | str | Iterable[Claim | str]) -> tuple[Claim, ...]:
    """Take records and keys, one or several."""
    given = (claims,) if isinstance(claims, Claim | str) else tuple(claims)
    known = {claim.key: claim for claim in CLAIMS}
    if all(isinstance(one, str) for one in given):
        given = tuple(known[key] for key in dict.fromkeys(find_name("claim", one, known) for one in given))
    chosen = tuple(known[find_name("claim", one, known)] if isinstance(one, str) else one for one in given)
    for claim in chosen:
        if not isinstance(claim, Claim):
            raise ValueError(f"claims must be Claim records, or keys of them: got {claim!r}")
    keys = [claim.key for claim in chosen]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None or not keys:
        raise ValueError(f"two claims have the key {twice!r}" if keys else "claims is empty: nothing to confirm")
    return chosen


@cache
def _derivation_verdict(key: str | None) -> str | None:
    if key is None:
        return None
    from attnsym.symbolic import derive

    return derive(key).check().truth.value


def _judged(item: ClaimCell, sample: Sample, critical: float) -> CellResult:
    claim, cell = item.claim, item.cell
    found = claim.relation.judge(
        sample, cell, claim.estimator_of(cell), claim.prediction(cell), claim.rival(cell), critical
    )
    note = _failure(item) if math.isnan(sample.moments.mean) else found.note
    return CellResult(**{**vars(found), "note": note}, settings=dict(cell.settings))


def _failure(item: ClaimCell) -> str:
    """Return why a cell has no numbers: what its sample raises, asked here again, since workers send only draws."""
    try:
        with np.errstate(all="ignore"):
            item.claim.sample(item.cell, np.random.default_rng(0), item.chunk)
    except (ValueError, ArithmeticError) as error:
        return f"its sample fails: {error}"
    return "some draws are not numbers"


def _claim_result(
    claim: Claim, derived: str | None, support: Support, outcomes: Sequence[CellResult], budget: float
) -> ClaimResult:
    judged = [cell for cell in outcomes if cell.calibrated]
    against = [cell for cell in judged if not cell.agrees]
    wanted = None
    if derived == "FALSE":
        verdict, reason = ClaimVerdict.REJECTED, f"its derivation {claim.derivation!r} is FALSE"
    elif against:
        worst = max(against, key=lambda cell: abs(cell.z_score or math.inf))
        where = " ".join(f"{name}={value}" for name, value in worst.settings.items())
        why = f"{where}: {worst.note}" if math.isnan(worst.estimate) else where
        verdict, reason = ClaimVerdict.REJECTED, f"{len(against)} of {len(judged)} judged cells contradict it ({why})"
    elif derived not in (None, "TRUE"):
        verdict, reason = ClaimVerdict.UNKNOWN, f"its derivation {claim.derivation!r} is {derived}"
    elif not any(cell.separates for cell in judged):
        factor = min((cell.factor for cell in outcomes), default=math.inf)
        verdict, (reason, wanted) = ClaimVerdict.NOT_SEPARATED, _not_separated(factor, budget)
    else:
        verdict, reason = ClaimVerdict.CONFIRMED, f"{len(judged)} judged cells agree with it and its rival is excluded"
    return ClaimResult(claim, verdict, reason, support, derived, wanted, tuple(outcomes))


def _not_separated(factor: float, budget: float) -> tuple[str, float | None]:
    if not math.isfinite(factor):
        return "these data would look the same under its rival, and more of them would too", None
    wanted = float(f"{max(factor, 1.0) * budget * 1.05:.2g}")  # two digits, rounded so as not to fall short
    return f"these data would look the same under its rival; budget {wanted:g} should separate them", wanted
