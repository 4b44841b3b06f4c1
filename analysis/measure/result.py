"""The result of a study: rows, and the ways out of them."""

from __future__ import annotations

import importlib
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from analysis.measure.file import read_study, write_study
from analysis.vocabulary.frames import dataframe
from analysis.vocabulary.text import printable
from analysis.vocabulary.versions import library_versions
from attnsym._page import Page


@dataclass(frozen=True, repr=False)
class StudyRow(Page):
    """
    One statistic of one cell.

    Attributes
    ----------
    quantity, statistic, law, scale, score : str
        As they are called; a quantile is ``"quantile_0.9"``.
    d_k, n_keys, alignment, key_correlation, softcap, is_causal
        The other settings of the cell.
    estimate, standard_error : float
        The estimate and the standard deviation of its estimator, in the units of the quantity (entropy: nats).
    interval : (float, float)
        Confidence interval at `confidence_level`.
    replicates : int
        Independent draws of query and keys.
    prediction, z_score : float or None
        The exact value where one is known, and (estimate − prediction) / standard_error.
    sampler, precision : str
        What drew the replicates.
    calibrated : bool
        Whether the tail of the z-score can be trusted at this number of replicates.
    sink, bias, normalizer, normalizer_bias, qk_norm
        The mechanism of the row, as `run_study` takes it; a bias is text. Files leave out what is not there.
    """

    quantity: str
    statistic: str
    law: str
    d_k: int
    n_keys: int
    scale: str
    alignment: float
    key_correlation: float
    score: str
    softcap: float | None
    is_causal: bool
    estimate: float
    standard_error: float
    interval: tuple[float, float]
    confidence_level: float
    replicates: int
    prediction: float | None
    z_score: float | None
    sampler: str
    precision: str
    seed: int
    calibrated: bool
    sink: float | None = None
    bias: str | None = None
    normalizer: str = "softmax"
    normalizer_bias: float | None = None
    qk_norm: str | None = None

    def __str__(self) -> str:
        """Return the estimate with its error, where it was taken, and the exact value."""
        exact = "" if self.prediction is None else f", exact {self.prediction:z.6g}"
        z = "" if self.z_score is None else f" (z {self.z_score:+z.2f})"
        where = f"d_k={self.d_k} n_keys={self.n_keys} scale={self.scale}"
        what = f"{self.statistic} of {printable(self.quantity)} at {where}"
        return f"{what}: {self.estimate:z.6g} ± {self.standard_error:.2g}{exact}{z}"


@dataclass(frozen=True, repr=False)
class Study(Page):
    """
    The result of `run_study`.

    Attributes
    ----------
    rows : tuple of StudyRow
        One per cell and statistic, in the order of the arguments.
    name : str
        The name under which the streams are derived.
    seed : int
        The seed.
    versions : dict of str to str
        Library versions and kind of machine: the same bits are promised on the same of these.
    """

    rows: tuple[StudyRow, ...]
    name: str
    seed: int
    versions: dict[str, str] = field(default_factory=library_versions)

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries."""
        return [asdict(row) for row in self.rows]

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the study as strict JSON, atomically; infinities become strings. OSError names `path`."""
        write_study(self, path)

    @staticmethod
    def from_json(path: str | os.PathLike[str]) -> Study:
        """Read what `to_json` wrote, equal to the original; ValueError for any other file."""
        return Study(**read_study(path, StudyRow))

    def to_dataframe(self) -> Any:
        """
        Return the rows as a pandas DataFrame, the interval as `interval_low` and `interval_high`.

        ImportError with the line to install if pandas is missing.
        """
        names = list(StudyRow.__dataclass_fields__)
        at = names.index("interval")
        names[at : at + 1] = ["interval_low", "interval_high"]
        records = [row | dict(zip(names[at : at + 2], row["interval"], strict=True)) for row in self.to_records()]
        return dataframe(records, names)

    def plot(self) -> Any:
        """Return a matplotlib Figure of the estimates with error bars and predictions."""
        return importlib.import_module("analysis.show.plots").study_figure(self)

    def _repr_html_(self) -> str:
        text: str = importlib.import_module("analysis.show.tables").html_table(self)
        return text

    def _line(self) -> str:
        return f"{printable(self.name)}: {len(self.rows)} row{'s' * (len(self.rows) != 1)}, seed {self.seed}"

    def __str__(self) -> str:
        """Return the table."""
        text: str = importlib.import_module("analysis.show.tables").plain_table(self)
        return text
