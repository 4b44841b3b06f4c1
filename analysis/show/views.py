"""What the report's template shows of each result: cells as text, figures as markup."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from analysis.audit.tensors.columns import HEAD_COLUMNS, LAYER_COLUMNS
from analysis.show import drawing, heatmaps, plots
from analysis.show.illustrations import TenKeys, self_attention
from attnsym import explain

if TYPE_CHECKING:
    from analysis.audit.tensors.columns import Column
    from analysis.audit.tensors.result import TensorAudit
    from analysis.confront.confirmation import ClaimResult, Confirmation
    from analysis.measure.result import Study

_OPEN_DERIVATIONS = frozenset({"score-mean", "score-variance", "scaled-score-variance"})
_CSS = {"TRUE": "pass", "confirmed": "pass", "FALSE": "fail", "rejected": "fail"}


def explanation_view() -> dict[str, Any]:
    """Return the worked example of one query."""
    from attnsym.explain import WHAT_WEIGHTS_ARE

    result = explain([1.0], [[0.0], [1.0986122886681098]], [[2.0], [6.0]], scale=1)
    rows = [
        [
            _number(cell)
            for cell in (row.product_sum, row.score, row.exponential, row.weight, *row.value, *row.contribution)
        ]
        for row in result.rows
        if row.value is not None and row.contribution is not None
    ]
    assert result.output is not None
    return {
        "note": WHAT_WEIGHTS_ARE,
        "columns": ["kᵀq", "score", "exp(score)", "weight", "value", "weight · value"],
        "rows": rows,
        "result": f"The exponentials sum to {_number(result.exponential_sum)}; the output is the sum of the last "
        f"column, {_number(result.output[0])}.",
    }


@cache  # the catalogue is constant: a second report costs only its own results
def derivation_views() -> list[dict[str, Any]]:
    """Return every derivation with its verdict, computed now."""
    from attnsym.symbolic import DERIVATIONS

    entries = []
    for key, derivation in DERIVATIONS.items():
        verdict = derivation.check().truth.value
        entries.append(
            {
                "key": key,
                "title": derivation.title,
                "statement": Markup(derivation.statement.to_mathml()),  # valid XML by its own tests, no user text in it
                "verdict": verdict,
                "css": _CSS.get(verdict, "doubt"),
                "open": key in _OPEN_DERIVATIONS,
                "body": Markup(derivation.to_mathml()),
            }
        )
    return entries


def study_view(study: Study) -> dict[str, Any]:
    """Return a study as a figure, a caption and a table."""
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
    figure = _figure(plots.study_figure(study))
    return {
        "figure": figure,
        "narrow": len({(row.quantity, row.statistic) for row in study.rows}) == 1,
        "caption": caption,
        "columns": [*columns, "prediction", "z", "replicates"],
        "rows": rows,
    }


def audit_view(audit: TensorAudit) -> dict[str, Any]:
    """Return an audit as sentences, a map and two tables."""
    return {
        "title": audit.source,
        "summary": audit.summary(),
        "figures": [_figure(heatmaps.audit_map(audit))] if audit.heads else [],
        "tables": [
            ("Layers (means over heads)", True, *_table(audit.layers, LAYER_COLUMNS)),
            ("Every head", False, *_table(audit.heads, HEAD_COLUMNS)),
        ],
    }


def _table(records: Sequence[Any], columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    cells = [[_cell(getattr(record, column.name)) for column in columns] for record in records]
    return [column.title for column in columns], cells


def confirmation_view(confirmation: Confirmation) -> dict[str, Any]:
    """Return a confirmation as a row per claim."""
    rows = []
    for result in confirmation.claims:
        shown = result.shown
        numbers = (shown.prediction, shown.estimate, shown.z_score, result.rival_z_score)
        verdict = result.verdict.value
        rows.append(
            {
                "key": result.claim.key,
                "statement": result.claim.statement,
                "meaning": result.claim.meaning,
                "route": _route(result),
                "missing": result.support.missing,
                "mistake": result.claim.mistake,
                "allowed": shown.allowed,
                "numbers": [_number(number) for number in numbers],
                "verdict": verdict,
                "css": _CSS.get(verdict, "doubt"),
            }
        )
    confirmed = sum(row["verdict"] == "confirmed" for row in rows)
    summary = (
        f"{confirmed} of {len(rows)} claims confirmed. Derived means that the proved equation gives the predicted "
        f"number in every cell and that the cell's law satisfies what the proof assumes. A row shows the cell that "
        f"speaks most against its claim and the largest z of its rival, the plausible mistake. Beyond |z| = "
        f"{confirmation.critical_z:.2f} a number is contradicted; if every claim is true, the probability that any is "
        f"rejected is at most {confirmation.family_wise_alpha:g}."
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


def ten_keys_view(result: TenKeys) -> dict[str, Any]:
    """Return the bar charts of ten keys and their caption."""
    panels = {
        "unscaled: softmax(kᵀq)": (result.unscaled, result.largest_unscaled),
        "divided by √d_k: softmax(kᵀq/√d_k)": (result.scaled, result.largest_scaled),
    }
    below = float((result.largest_unscaled < 0.9).mean())
    caption = (
        f"Components of the query and of {result.n_keys} keys are independent standard normals, seed {result.seed}. "
        f"One draw need not look like this one: over {result.n_draws:,} draws the largest unscaled weight is "
        f"{result.largest_unscaled.mean():.3f} in the mean and below .9 in {below:.0%} of them; "
        f"scaled, its mean is {result.largest_scaled.mean():.3f}."
    )
    return {"d_k": result.d_k, "figure": _figure(plots.ten_keys_figure(panels)), "caption": caption}


def self_attention_view() -> dict[str, Any]:
    """Return the heatmap of a self-attention pass and its caption."""
    weights = self_attention()
    caption = (
        f"{weights.shape[0]} tokens of width 32 through random projections W_Q and W_K (seed 0), scaled by 1/√d_k. "
        "Each row is one query's mixture over the keys and sums to 1."
    )
    return {"figure": _figure(heatmaps.weights_figure(weights, title="softmax(QKᵀ/√d_k)")), "caption": caption}


def _figure(figure: Any) -> Markup:
    return Markup(drawing.svg(figure))  # our own drawing: names in it were drawn as paths, not written as text


def _number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}g}"
