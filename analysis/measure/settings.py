"""What a study is asked for, checked at the door and turned into cells."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from analysis.measure.compatibility import check_correlations, check_moments, choose_sampler
from analysis.measure.draw.cell import StudyCell
from analysis.measure.estimate.estimators import quantile_ranks
from analysis.measure.mechanism import check_mechanism, read_mechanism
from analysis.measure.run.seeds import check_seed
from analysis.vocabulary.laws import Law, is_unfrozen, law_pair
from analysis.vocabulary.numbers import (
    fraction,
    listed,
    number,
    positive,
    positive_integer,
    positive_integers,
    shown,
    unique,
)
from analysis.vocabulary.quantities import find_quantity, read_quantity
from analysis.vocabulary.scale import Scale, resolve_scale, scale_of_one_score

STATISTICS = ("mean", "variance", "rms", "median")


@dataclass(frozen=True)
class Asked:
    """The arguments of `run_study` that say how a quantity is measured, as they were given."""

    d_k: Any
    n_keys: Any = None
    scale: Any = ("sqrt", "unscaled")
    law: Any = "normal"
    alignment: Any = 0.0
    key_correlation: Any = 0.0
    score: Any = "dot"
    softcap: Any = None
    is_causal: Any = False
    sink: Any = None
    bias: Any = None
    normalizer: Any = "softmax"
    normalizer_bias: Any = None
    qk_norm: Any = None
    statistic: Any = "mean"
    replicates: Any = 100_000
    target_rse: Any = None
    max_replicates: Any = None
    confidence_level: Any = 0.95
    sampler: Any = "auto"
    precision: Any = "double"
    seed: Any = 0
    name: Any = None


@dataclass(frozen=True)
class Settings:
    """The checked arguments of a study; `cells` is its grid in the order of the rows."""

    name: str
    seed: int
    statistics: tuple[str | float, ...]
    replicates: int
    target_rse: float | None
    max_replicates: int | None
    confidence_level: float
    cells: tuple[StudyCell, ...]

    @property
    def needs_order(self) -> bool:
        """Whether a median or quantile is asked for, so that values must be kept in order."""
        return any(is_quantile(statistic) for statistic in self.statistics)

    def identity(self) -> dict[str, Any]:
        """What must agree for stored shards to belong to this study; not how many replicates it takes."""
        first = self.cells[0].settings
        grid = {axis: unique(cell.settings[axis] for cell in self.cells) for axis in ("d_k", "n_keys", "scale")}
        statistics = [statistic_label(statistic) for statistic in self.statistics]
        return {"name": self.name, "seed": self.seed, **first, **grid, "statistic": statistics}

    def unnamed(self) -> str | None:
        """Return the argument that is a callable without a name of its own, which no store could tell from another."""
        cell = self.cells[0]
        named = [("quantity", self.name), ("law", cell.law_name), ("score", cell.score_name)]
        named += [("scale", cell.scale_name) for cell in self.cells]
        return next((argument for argument, name in named if name == "callable" or name.endswith(">")), None)


def is_quantile(statistic: str | float) -> bool:
    """Tell the statistics that need the values in order."""
    return statistic == "median" or not isinstance(statistic, str)


def statistic_label(statistic: str | float) -> str:
    """Return how rows call a statistic: ``"mean"``, ``"median"``, ``"quantile_0.9"``."""
    return statistic if isinstance(statistic, str) else f"quantile_{statistic:g}"


def read_settings(quantity: Any, asked: Asked) -> Settings:
    """Check what `run_study` was asked; ValueError with one sentence for the first argument that makes no sense."""
    quantity, statistic = _read_quantity(quantity, asked.statistic)
    name = _check_name(quantity, asked.name)
    widths = positive_integers("d_k", asked.d_k)
    scales = _read_scales(asked.scale)
    lengths = _read_lengths(asked.n_keys, quantity, scales, widths)
    laws, law_name = _read_law(asked.law)
    cell = StudyCell(
        name=name,
        quantity=quantity,
        d_k=widths[0],
        n_keys=lengths[0],
        scale=0.0,
        scale_name="",
        laws=laws,
        law_name=law_name,
        alignment=_correlation("alignment", asked.alignment),
        key_correlation=_correlation("key_correlation", asked.key_correlation),
        softcap=None if asked.softcap is None else positive("softcap", asked.softcap),
        score=asked.score,
        score_name=_check_score(asked.score),
        is_causal=_one_of("is_causal", asked.is_causal, (True, False)),
        mechanism=read_mechanism(asked.sink, asked.bias, asked.normalizer, asked.normalizer_bias, asked.qk_norm),
        precision=_one_of("precision", asked.precision, ("double", "single")),
        sampler="",
    )
    statistics = _statistics(statistic)
    check_mechanism(cell, lengths)
    check_correlations(cell, lengths)
    check_moments(cell, statistics)
    cell = replace(cell, sampler=choose_sampler(asked.sampler, cell))
    cells = tuple(
        replace(cell, d_k=width, n_keys=length, scale=scale(width, length), scale_name=scale.label)
        for scale in scales
        for length in lengths
        for width in widths
    )
    level = fraction("confidence_level", asked.confidence_level)
    target_rse = None if asked.target_rse is None else fraction("target_rse", asked.target_rse)
    count, most = _check_budget(asked, statistics, level)
    return Settings(name, check_seed(asked.seed), statistics, count, target_rse, most, level, cells)


def _one_of(argument: str, value: Any, allowed: tuple[Any, Any]) -> Any:
    if any(value is each or (isinstance(value, str) and value == each) for each in allowed):
        return value
    raise ValueError(f"{argument} must be {allowed[0]!r} or {allowed[1]!r}: got {shown(value)}")


def _takes(argument: str, function: Any, names: tuple[str, ...]) -> Any:
    """Return a caller's function, refused if it does not take that many arguments, as far as it can be asked."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    try:
        signature.bind(*names)
    except TypeError as error:
        raise ValueError(f"{argument} must be callable with ({', '.join(names)}): {error}") from None
    return function


def _read_quantity(quantity: Any, statistic: Any) -> tuple[str | Callable[..., Any], Any]:
    """Return the quantity by its own name, and the statistic; ``"score_variance"`` names both."""
    if callable(quantity):
        return _takes("quantity", quantity, ("query", "key", "scale")), statistic
    try:
        record, named = read_quantity(quantity)
    except ValueError as error:
        raise ValueError(f"{error}, or a callable") from None
    if named is None:
        return record.name, statistic
    if not (isinstance(statistic, str) and statistic in ("mean", named)):
        raise ValueError(f"{quantity} is the {named} of {record.name!r}: leave statistic out, got {shown(statistic)}")
    return record.name, named


def _check_name(quantity: Any, name: Any) -> str:
    if name is None:
        return quantity if isinstance(quantity, str) else _name_of(quantity)
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"name must be a text that is not empty: got {shown(name)}")
    return name


def _name_of(function: Any) -> str:
    if isinstance(function, partial):
        return "<partial>"  # its arguments have no name
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _correlation(argument: str, value: Any) -> float:
    read = number(argument, value)
    if not -1.0 <= read <= 1.0:
        raise ValueError(f"{argument} is a correlation, between -1 and 1: got {shown(value)}")
    return read + 0.0  # −0.0 and 0.0 are one setting


def _read_lengths(n_keys: Any, quantity: Any, scales: Sequence[Scale], widths: Sequence[int]) -> list[int]:
    """Read the numbers of keys; for a score they may be left out where no scale depends on them."""
    record = find_quantity(quantity) if isinstance(quantity, str) else None
    if n_keys is not None or record is None or record.reads != "score":
        lengths = positive_integers("n_keys", n_keys)
        if record is not None:
            record.check_keys(min(lengths))
        return lengths
    for scale in scales:
        for width in widths:
            scale_of_one_score(scale, width, None)
    return [1]


def _read_scales(scale: Any) -> list[Scale]:
    """Resolve the scales, once each; two different ones of one name would share their streams and their rows."""
    scales: dict[str, Scale] = {}
    for part in listed("scale", scale):
        found = resolve_scale(part)
        if callable(part) and found.label in scales and scales[found.label].function is not found.function:
            raise ValueError(f"two scales are called {found.label!r}: give them different names")
        scales.setdefault(found.label, found)
    return list(scales.values())


def _read_law(law: Any) -> tuple[tuple[Law, Law] | Callable[..., Any], str]:
    if callable(law) and not hasattr(law, "dist") and not is_unfrozen(law):
        return _takes("law", law, ("rng", "d_k", "n_keys")), _name_of(law)
    query, key = law_pair(law)
    return (query, key), query.name if query.name == key.name else f"{query.name}, {key.name}"


def _check_score(score: Any) -> str:
    if callable(score):
        return _name_of(_takes("score", score, ("query", "key")))
    if not (isinstance(score, str) and score in ("dot", "cosine")):
        raise ValueError(f"score must be 'dot', 'cosine' or a callable (query, key) -> scores: got {shown(score)}")
    return score


def _statistics(statistic: Any) -> tuple[str | float, ...]:
    read: list[str | float] = []
    for item in listed("statistic", statistic):
        if isinstance(item, str):
            if item not in STATISTICS:
                raise ValueError(
                    f"unknown statistic {shown(item)}: known are {', '.join(STATISTICS)}, or a quantile in (0, 1)"
                )
            read.append(item)
        else:
            read.append(fraction("statistic: a quantile", item))
    return tuple(unique(read))


def _check_budget(asked: Asked, statistics: Sequence[str | float], level: float) -> tuple[int, int | None]:
    """Read replicates and max_replicates, and refuse fewer than the statistics need."""
    argument, count, most = "replicates", positive_integer("replicates", asked.replicates), None
    if asked.max_replicates is not None:
        if asked.target_rse is None:
            raise ValueError("max_replicates caps what target_rse asks for: give target_rse, or replicates instead")
        argument, most = "max_replicates", positive_integer("max_replicates", asked.max_replicates)
    least = count if asked.target_rse is None else most
    if least is None:
        return count, most
    if least < 2:
        raise ValueError(f"a standard error needs at least 2 replicates: got {argument} {least}")
    for p in (0.5 if s == "median" else float(s) for s in statistics if is_quantile(s)):
        low, high = quantile_ranks(least, p, level)
        if low < 0 or high >= least:
            raise ValueError(
                f"{argument}: {least} replicates are too few for an interval of the quantile {p:g} at level {level:g}"
            )
    return count, most
