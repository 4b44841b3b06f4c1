"""What the report's template shows of each result: cells as text, figures as markup."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from analysis.audit.over_time.head_trend import TREND_COLUMNS
from analysis.audit.over_time.trends import Trends
from analysis.audit.tensors.columns import HEAD_COLUMNS, LAYER_COLUMNS
from analysis.audit.weights.result import COLUMNS, WeightsAudit
from analysis.show import drawing, heatmaps, plots
from analysis.show.derivation_views import VERDICT_CLASS
from analysis.show.illustrations import (
    EXAMPLE_MODEL,
    EXAMPLE_SENTENCE,
    EXAMPLE_TOKENS,
    example_weights,
    ten_keys,
)
from attnsym import explain

if TYPE_CHECKING:
    from analysis.audit.tensors.columns import Column
    from analysis.audit.tensors.result import TensorAudit
    from analysis.confront.confirmation import ClaimResult, Confirmation
    from analysis.measure.result import Study


def explanation_view() -> dict[str, Any]:
    """Return the worked example of one query of width 4 against two keys."""
    from attnsym.explain import WHAT_WEIGHTS_ARE

    third = 1.0986122886681098  # log 3, so that the weights are 1/4 and 3/4
    result = explain([1, 0, 1, 0], [[1.0, 0.0, -1.0, 0.0], [third, 0.0, third, 0.0]], [[2.0], [6.0]])
    rows = []
    for row in result.rows:
        assert row.value is not None
        assert row.contribution is not None
        numbers = (row.product_sum, row.score, row.exponential, row.weight, *row.value, *row.contribution)
        vector = ", ".join(_number(component) for component in row.key)
        rows.append([str(row.key_index), f"({vector})", *(_number(number) for number in numbers)])
    assert result.output is not None
    return {
        "note": WHAT_WEIGHTS_ARE,
        "columns": ["key", "components", "kᵀq", "kᵀq / √4", "exp", "weight", "value", "weight · value"],
        "rows": rows,
        "result": f"The exponentials sum to {_number(result.exponential_sum)}; divided by it they are the weights; "
        f"the output is the sum of the last column, {_number(result.output[0])}.",
    }


def study_view(study: Study, name: str) -> dict[str, Any]:
    """Return a study as figures, one a statistic, a caption and a table; `name` tells it from the page's others."""
    columns = ("quantity", "statistic", "scale", "law", "d_k", "n_keys", "estimate", "standard error", "interval")
    rows = [
        [
            row.quantity,
            str(row.statistic),
            row.scale,
            row.law,
            str(row.d_k),
            str(row.n_keys),
            _number(row.estimate, 6),
            _number(row.standard_error, 2),
            f"{_number(row.interval[0], 5)} to {_number(row.interval[1], 5)}",
            _number(row.prediction, 8),
            _number(row.z_score, 2),
            f"{row.replicates:,}",
        ]
        for row in study.rows
    ]
    first = study.rows[0]
    caption = (
        f"{first.replicates:,} independent draws a point, {first.sampler} sampler, seed {first.seed}; bars: "
        f"{first.confidence_level:.0%} confidence intervals."
    )
    figures = [
        _figure(
            figure,
            f"study-{name}-{i}",
            f"{statistic} of {quantity} against d_k",
            "Points with error bars are measured, lines are exact predictions. The numbers stand in the table below.",
        )
        for i, ((quantity, statistic), figure) in enumerate(plots.study_panels(study))
    ]
    return {
        "figures": figures,
        "caption": caption,
        "name": study.name,
        "columns": [*columns, "prediction", "z", "replicates"],
        "rows": rows,
    }


_TRENDS = (
    "variance and entropy of every head against the step, and how much each head's variance grew",
    "The most urgent heads by name, with the targets dashed. The numbers stand in the table of every head.",
)
_AUDIT_MAP = (
    "entropy over log of the visible keys, layers down, heads across",
    "A map: 1 is uniform attention, 0 is all weight on one key. The numbers stand in the table of every head.",
)


def audit_view(audit: TensorAudit | WeightsAudit | Trends, name: str) -> dict[str, Any]:
    """Return an audit as sentences, pictures and tables: of tensors by layer and by head, else by head."""
    if isinstance(audit, Trends):
        return _trends_view(audit, name)
    tables = [("Every head", False, *_table(audit.heads, COLUMNS if isinstance(audit, WeightsAudit) else HEAD_COLUMNS))]
    if not isinstance(audit, WeightsAudit):
        tables.insert(0, ("Layers (means over heads)", True, *_table(audit.layers, LAYER_COLUMNS)))
    return {
        "title": audit.source,
        "summary": audit.summary(),
        "figures": [_figure(heatmaps.audit_map(audit), f"audit-{name}", *_AUDIT_MAP)] if audit.heads else [],
        "tables": tables,
    }


def _trends_view(trends: Trends, name: str) -> dict[str, Any]:
    figure = _figure(plots.trends_figure(trends), f"trends-{name}", *_TRENDS)
    return {
        "title": f"A run, steps {trends.steps[0]:,} to {trends.steps[-1]:,}",
        "summary": trends.summary(),
        "figures": [figure],
        "tables": [("Every head", False, *_table(trends.heads, TREND_COLUMNS))],
    }


def _table(records: Sequence[Any], columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    cells = [[_cell(getattr(record, column.name)) for column in columns] for record in records]
    return [column.title for column in columns], cells


def confirmation_view(confirmation: Confirmation) -> dict[str, Any]:
    """Return a confirmation as a row per claim."""
    rows = []
    for result in confirmation.claims:
        shown = result.shown
        verdict = result.verdict.value
        rows.append(
            {
                "key": result.claim.key,
                "statement": result.claim.statement,
                "meaning": result.claim.meaning,
                "route": _route(result),
                "missing": result.support.missing,
                "predicted": _number(shown.prediction),
                "measured": f"{_number(shown.estimate)} ± {_number(shown.standard_error, 2)}",
                "allowed": shown.allowed,
                "z": _number(shown.z_score),
                "mistake": result.claim.mistake,
                "rival_z": _number(result.rival_z_score, 3),
                "verdict": verdict,
                "css": VERDICT_CLASS.get(verdict, "doubt"),
            }
        )
    confirmed = sum(row["verdict"] == "confirmed" for row in rows)
    summary = (
        f"{confirmed} of {len(rows)} claims confirmed. Derived means that the proved equation gives the predicted "
        f"number in every cell and that the cell's law satisfies what the proof assumes. A row shows the cell that "
        f"speaks most against its claim, what the claim allows beside its number, and the mistake that the data "
        f"exclude with the largest z of that mistake. Beyond |z| = {confirmation.critical_z:.2f} a number is "
        f"contradicted; if every claim is true, the probability that any is rejected is at most "
        f"{confirmation.family_wise_alpha:g}."
    )
    return {"summary": summary, "rows": rows}


def _route(result: ClaimResult) -> str:
    if result.derivation_verdict in (None, "TRUE"):
        return result.support.route
    return f"derivation {result.derivation_verdict}"


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "–"
    return _number(value, 3) if isinstance(value, float) else str(value)


_TEN_KEYS = {
    "Weights of ten keys": "Bars: the weights of one draw.",
    "Largest weight of each draw": "A histogram of the largest of ten weights over many draws; a line marks this one.",
}


@cache  # constant, as the derivations are: a second report costs only its own results
def ten_keys_view() -> dict[str, Any]:
    """Return the bar charts of ten keys and their caption."""
    result = ten_keys()
    panels = {
        r"unscaled: softmax($k^\top q$)": (result.unscaled, result.largest_unscaled),
        r"softmax($k^\top q\,/\sqrt{d_k}$)": (result.scaled, result.largest_scaled),
    }
    titles = [f"{what}, {scale}" for scale in ("unscaled", "divided by √d_k") for what in _TEN_KEYS]
    figures = [
        _figure(figure, f"ten-keys-{i}", title, _TEN_KEYS[title.split(",")[0]])
        for i, (title, figure) in enumerate(zip(titles, plots.ten_keys_panels(panels), strict=True))
    ]
    below = float((result.largest_unscaled < 0.9).mean())
    caption = (
        f"Components of the query and of {result.n_keys} keys are independent standard normals, seed {result.seed}. "
        f"One draw need not look like this one: over {result.n_draws:,} draws the largest unscaled weight is "
        f"{result.largest_unscaled.mean():.3f} in the mean and below .9 in {below:.0%} of them; "
        f"scaled, its mean is {result.largest_scaled.mean():.3f}."
    )
    return {"d_k": result.d_k, "figures": figures, "caption": caption}


_HEADS = (
    (0, 2, "layer 0, head 2: the previous token, and nothing else"),
    (1, 8, "layer 1, head 8: the next token, or the first"),
    (0, 1, "layer 0, head 1: spread as Gaussian scores are"),
)


@cache
def sentence_view() -> dict[str, Any]:
    """Return maps of three trained heads that read one sentence, and their caption."""
    figures = []
    for layer, head, title in _HEADS:
        figure = heatmaps.weights_figure(example_weights(layer, head), title=title.split(":")[0], tokens=EXAMPLE_TOKENS)
        description = "A matrix: the query's token down, the key's token across, lighter is heavier."
        figures.append((title, _figure(figure, f"head-{layer}-{head}", f"weights of {title}", description)))
    caption = (
        f"Model: {EXAMPLE_MODEL}. Sentence: “{EXAMPLE_SENTENCE}” Each row is one query's mixture over the keys and "
        "sums to 1. A saturated head is no fault by itself: the first one is one-hot on purpose."
    )
    return {"figures": figures, "caption": caption}


def _figure(figure: Any, name: str, title: str, description: str) -> Markup:
    # Our own drawing: names in it were drawn as paths, and title and description are escaped.
    return Markup(drawing.svg(figure, name=name, title=title, description=description))


def _number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:z.{digits}g}"
