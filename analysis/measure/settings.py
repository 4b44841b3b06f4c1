"""What a study is asked for, checked at the door and turned into cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from analysis.measure.cell import Cell, reads_score
from analysis.measure.conditions import check_correlations, check_moments, choose_sampler
from analysis.measure.estimate.estimators import quantile_ranks
from analysis.measure.run.seeds import check_seed
from analysis.vocabulary.laws import resolve_law
from analysis.vocabulary.numbers import fraction, listed, number, positive, positive_integer, positive_integers, unique
from analysis.vocabulary.quantities import find_quantity
from analysis.vocabulary.scale import Scale, resolve_scale, scale_of_one_score

STATISTICS = ("mean", "variance", "rms", "median")


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
    cells: tuple[Cell, ...]

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


def read_settings(
    quantity: str | Callable[..., Any],
    *,
    d_k: Any,
    n_keys: Any,
    scale: Any,
    law: Any,
    alignment: float,
    key_correlation: float,
    score: str | Callable[..., Any],
    softcap: float | None,
    is_causal: bool,
    statistic: Any,
    replicates: int,
    target_rse: float | None,
    max_replicates: int | None,
    confidence_level: float,
    sampler: str,
    precision: str,
    seed: int,
    name: str | None,
) -> Settings:
    """Check every argument of `run_study`; ValueError with one sentence for the first that makes no sense."""
    quantity, statistic = _read_quantity(quantity, statistic)
    record = find_quantity(quantity) if isinstance(quantity, str) else None
    name = _check_name(quantity, name)
    widths = positive_integers("d_k", d_k)
    scales = _read_scales(scale)
    lengths = _read_lengths(n_keys, quantity, scales, widths)
    laws, law_name = _read_law(law)
    a, rho = _correlation("alignment", alignment), _correlation("key_correlation", key_correlation)
    cap = None if softcap is None else positive("softcap", softcap)
    score_name = _check_score(score)
    if not isinstance(is_causal, bool):
        raise ValueError(f"is_causal must be True or False: got {is_causal!r}")
    if precision not in ("double", "single"):
        raise ValueError(f"precision must be 'double' or 'single': got {precision!r}")
    statistics = _statistics(statistic)
    check_correlations(record, laws, a, rho, is_causal=is_causal, lengths=lengths)
    check_moments(record, laws, statistics, score=score, softcap=cap)
    chosen = choose_sampler(sampler, record, laws, a, rho, score=score, softcap=cap, is_causal=is_causal)

    def cell(width: int, length: int, factor: Scale) -> Cell:
        return Cell(
            name=name,
            quantity=quantity,
            law=laws,
            law_name=law_name,
            d_k=width,
            n_keys=length,
            scale=factor(width, length),
            scale_name=factor.label,
            alignment=a,
            key_correlation=rho,
            score=score,
            score_name=score_name,
            softcap=cap,
            is_causal=is_causal,
            sampler=chosen,
            precision=precision,
        )

    cells = tuple(cell(width, length, factor) for factor in scales for length in lengths for width in widths)
    level = fraction("confidence_level", confidence_level)
    count = _check_budget(replicates, target_rse, max_replicates, statistics, level)
    return Settings(name, check_seed(seed), statistics, count, target_rse, max_replicates, level, cells)


def _read_quantity(quantity: Any, statistic: Any) -> tuple[str | Callable[..., Any], Any]:
    """Return the quantity by its own name, and the statistic; ``"score_variance"`` names both."""
    if callable(quantity):
        return quantity, statistic
    try:
        record = find_quantity(quantity)
    except ValueError as error:
        raise ValueError(f"{error}, or a callable") from None
    named = record.aliases.get(quantity)
    if named is None:
        return record.name, statistic
    if statistic not in ("mean", named):
        raise ValueError(f"{quantity} is the {named} of {record.name!r}: leave statistic out, got {statistic!r}")
    return record.name, named


def _check_name(quantity: Any, name: Any) -> str:
    if name is None:
        return quantity if isinstance(quantity, str) else _name_of(quantity)
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"name must be a text that is not empty: got {name!r}")
    return name


def _name_of(function: Any) -> str:
    if isinstance(function, partial):
        return "<partial>"  # its arguments have no name
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _correlation(argument: str, value: Any) -> float:
    read = number(argument, value)
    if not -1.0 <= read <= 1.0:
        raise ValueError(f"{argument} is a correlation, between -1 and 1: got {value!r}")
    return read + 0.0  # −0.0 and 0.0 are one setting


def _read_lengths(n_keys: Any, quantity: Any, scales: Sequence[Scale], widths: Sequence[int]) -> list[int]:
    """Read the numbers of keys; for a score they may be left out where no scale depends on them."""
    if n_keys is not None or not reads_score(quantity):
        lengths = positive_integers("n_keys", n_keys)
        if isinstance(quantity, str):
            find_quantity(quantity).check_keys(min(lengths))
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


def _read_law(law: Any) -> tuple[Any, str]:
    if isinstance(law, tuple | list):
        if len(law) != 2:
            raise ValueError(f"law must be one law or a pair for query and key: got {len(law)} laws")
        names = [resolve_law(part).name for part in law]
        return tuple(law), names[0] if names[0] == names[1] else ", ".join(names)
    if callable(law) and not hasattr(law, "dist"):
        return law, _name_of(law)
    return (law, law), resolve_law(law).name


def _check_score(score: Any) -> str:
    if callable(score):
        return _name_of(score)
    if score not in ("dot", "cosine"):
        raise ValueError(f"score must be 'dot', 'cosine' or a callable (query, key) -> scores: got {score!r}")
    return str(score)


def _statistics(statistic: Any) -> tuple[str | float, ...]:
    read: list[str | float] = []
    for item in listed("statistic", statistic):
        if isinstance(item, str):
            if item not in STATISTICS:
                raise ValueError(
                    f"unknown statistic {item!r}: known are {', '.join(STATISTICS)}, or a quantile in (0, 1)"
                )
            read.append(item)
        else:
            read.append(fraction("a quantile", item))
    return tuple(unique(read))


def _check_budget(
    replicates: Any, target_rse: Any, max_replicates: Any, statistics: Sequence[str | float], level: float
) -> int:
    argument, count = "replicates", positive_integer("replicates", replicates)
    if target_rse is not None:
        fraction("target_rse", target_rse)
    if max_replicates is not None:
        if target_rse is None:
            raise ValueError("max_replicates caps what target_rse asks for: give target_rse, or replicates instead")
        argument, count = "max_replicates", positive_integer("max_replicates", max_replicates)
    if target_rse is not None and max_replicates is None:
        return count
    if count < 2:
        raise ValueError(f"a standard error needs at least 2 replicates: got {argument} {count}")
    for p in (0.5 if s == "median" else float(s) for s in statistics if is_quantile(s)):
        low, high = quantile_ranks(count, p, level)
        if low < 0 or high >= count:
            raise ValueError(
                f"{argument}: {count} replicates are too few for an interval of the quantile {p:g} at level {level:g}"
            )
    return count
