"""One claim, one record: a statement, the two routes to its number, and the plausible mistake it must exclude."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.confront.cell import Cell, Scalar
from analysis.confront.derived import Support, support
from analysis.confront.inputs import Inputs
from analysis.confront.relation import Relation
from analysis.vocabulary.numbers import LARGEST_WHOLE
from attnsym._page import Page

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Grid = Mapping[str, Sequence[Scalar]]

_KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, repr=False)
class Claim(Page):
    """
    A statement about attention that a derivation, a prediction and a measurement must agree on.

    Parameters
    ----------
    key : str
        Lower-case words joined by hyphens; names the claim on the command line and seeds its streams.
    statement : str
        What is claimed, as one formula or sentence.
    assumptions : tuple of str
        Under which it is claimed: as `attnsym.symbolic` writes them, ``"independent(q, k)"``, so that they can be
        checked against the law of each cell; in prose only what that vocabulary lacks.
    source : str
        Where it comes from: paper and section, or "derived here".
    derivation : str or None
        A key of `attnsym.symbolic.DERIVATIONS`; `confirm` checks it anew. None where no derivation exists. Naming one
        makes a claim "derived" only where `support` finds that it gives the number of every cell.
    predict : callable ``(cell) -> float`` or None
        The predicted number; for `Fits` a law with ``ppf``. None where the draws are differences between
        two measured routes: their prediction is 0 and the claim is labelled "measured only".
    sample : callable ``(cell, rng, replicates) -> ndarray of shape (replicates,)``
        Independent draws through the attention functions of `attnsym`; never the formula under test.
    estimator : {"mean", "variance", "rms", "median"} or None
        What the relation compares with the prediction; None takes each cell's own setting ``statistic``. Ignored by
        `Identity`, `AtMost` and `Fits`, which look at every draw.
    relation : Relation
        `Exactly`, `Identity`, `ToLeadingOrder`, `AtMost` or `Fits`.
    grid : mapping of str to sequence, or a sequence of such mappings
        The settings: each mapping stands for the cross product of its values.
    rival : callable ``(cell) -> float``
        What a plausible mistake would predict, in the same form as `predict`. A claim whose data cannot reject its
        rival is "not separated", not confirmed.
    replicates : int or callable ``(cell) -> int``, optional
        Independent draws per cell at budget 1.
    meaning : str, optional
        Two sentences for somebody who builds attention.
    mistake : str, optional
        The rival in words: the mistake that the data must exclude.
    subject : str or callable ``(cell) -> str or None``, optional
        What is measured, in the notation of `attnsym.symbolic`: ``"Var(Dot(k, q))"``. The derivation's equation is put
        into it to see whether it gives the prediction.
    inputs : callable ``(cell) -> Inputs``, optional
        The joint law of the vectors that `sample` draws; read from the cell's settings by default.
    is_code_check : bool, optional
        Whether this is a check of the code, of its conventions or its instrument, and no statement about attention.

    Raises
    ------
    ValueError
        For a malformed key, an empty grid, a setting that is no scalar or an unknown estimator.
    """

    key: str
    statement: str
    assumptions: tuple[str, ...]
    source: str
    derivation: str | None
    predict: Callable[[Cell], Any] | None
    sample: Callable[[Cell, np.random.Generator, int], NDArray[np.float64]]
    estimator: str | None
    relation: Relation
    grid: Grid | Sequence[Grid]
    rival: Callable[[Cell], Any]
    replicates: int | Callable[[Cell], int] = 20_000
    meaning: str = ""
    mistake: str = ""
    subject: str | Callable[[Cell], str | None] | None = None
    inputs: Callable[[Cell], Inputs] = Inputs.of
    is_code_check: bool = False

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ValueError(f"a claim's key must be lower-case words joined by hyphens: got {self.key!r}")
        if not isinstance(self.relation, Relation):
            raise ValueError(
                f"claim {self.key!r}: relation must be a Relation such as Exactly(): got {self.relation!r}"
            )
        for name in ("sample", "rival"):
            if not callable(getattr(self, name)):
                raise ValueError(f"claim {self.key!r}: {name} must be callable: got {getattr(self, name)!r}")
        cells = self.cells
        if not cells:
            raise ValueError(f"claim {self.key!r}: the grid has no cell")
        if len(set(cells)) < len(cells):
            raise ValueError(f"claim {self.key!r}: the grid names a cell twice")
        for cell in cells:
            self.relation.check(self.estimator_of(cell), cell)
            self.replicates_at(cell, 1.0)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of the grid, in order."""
        grids = (self.grid,) if isinstance(self.grid, Mapping) else tuple(self.grid)
        return tuple(cell for grid in grids for cell in self._crossed(grid))

    @property
    def support(self) -> Support:
        """How the number is reached besides being measured, and what its derivation leaves out; computed anew."""
        predict = self.predict
        predictions = None if predict is None else ((cell, predict(cell)) for cell in self.cells)
        subject = self.subject
        text = (lambda cell: subject) if isinstance(subject, str) else subject
        try:
            return support(self.derivation, text, self.inputs, self.assumptions, self.relation, predictions)
        except ValueError as error:
            raise ValueError(f"claim {self.key!r}: {error}") from None

    @property
    def route(self) -> str:
        """The route of `support`: "derived", "derived in part", "predicted" or "measured only"."""
        return self.support.route

    def estimator_of(self, cell: Cell) -> str | None:
        """Return the estimator of one cell: the claim's, or the cell's own ``statistic``."""
        return self.estimator if self.estimator is not None else cell.get("statistic")

    def replicates_at(self, cell: Cell, budget: float) -> int:
        """Return the replicates of one cell at a budget: at least two, since one has no error."""
        asked = self.replicates(cell) if callable(self.replicates) else self.replicates
        if isinstance(asked, bool) or not isinstance(asked, int) or asked < 2:
            raise ValueError(f"claim {self.key!r}: replicates must be a whole number of at least 2: got {asked!r}")
        if asked * budget > LARGEST_WHOLE:
            raise ValueError(
                f"budget {budget:g} asks claim {self.key!r} for more than {LARGEST_WHOLE} replicates a cell"
            )
        return max(math.ceil(asked * budget), 2)

    def prediction(self, cell: Cell) -> Any:
        """Return what is predicted at `cell`: a number, or a law for `Fits`."""
        return 0.0 if self.predict is None else self.predict(cell)

    def _crossed(self, grid: Grid) -> Iterator[Cell]:
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise ValueError(f"claim {self.key!r}: grid[{name!r}] must be a list of values: got {values!r}")
            for value in values:
                if not isinstance(value, Scalar):
                    raise ValueError(f"claim {self.key!r}: grid[{name!r}] takes text and numbers: got {value!r}")
        for combination in itertools.product(*grid.values()):
            yield Cell(tuple(zip(grid, combination, strict=True)))

    def __str__(self) -> str:
        """Return what is claimed, under which assumptions, from where, and the mistake that it excludes."""
        lines = [f"{self.key}: {self.statement}"]
        lines += [f"  Assumes: {'; '.join(self.assumptions)}."] * bool(self.assumptions)
        lines += [f"  {self.meaning}"] * bool(self.meaning)
        lines += [f"  The mistake to be excluded: {self.mistake}."] * bool(self.mistake)
        return "\n".join([*lines, f"  Source: {self.source}."])
