"""One self-contained page from finished results: derivations, studies, claims and audits."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from analysis import plots
from analysis.illustrations import TenKeys, self_attention, ten_keys
from attnsym import explain

if TYPE_CHECKING:
    from analysis.audit.results import TensorAudit
    from analysis.confirmation import Confirmation
    from analysis.study_result import Study

_OPEN_DERIVATIONS = frozenset({"score-mean", "score-variance", "scaled-score-variance"})
_CSS = {"TRUE": "pass", "confirmed": "pass", "FALSE": "fail", "rejected": "fail"}


def write_report(
    path: str | os.PathLike[str],
    *,
    confirmation: Confirmation | None = None,
    studies: Iterable[Study] = (),
    audits: Iterable[TensorAudit] = (),
) -> Path:
    """
    Write the results as one HTML file that loads nothing else.

    Parameters
    ----------
    path : path-like
        Where to write; an existing file is replaced only once the new one is complete.
    confirmation : Confirmation, optional
        From `confirm`.
    studies : iterable of Study, optional
        Each becomes a figure and a table; nothing is simulated again.
    audits : iterable of TensorAudit, optional
        Each becomes a table and a layers × heads map.

    Returns
    -------
    pathlib.Path
        The file written. Besides the results it holds every derivation with its steps (formulas as MathML), one query
        step by step, ten keys at d_k = 512 and a self-attention pass.

    Raises
    ------
    OSError
        Where `path` cannot be written.
    ValueError
        Where an argument holds another kind of result.
    """
    studies, audits = _listed(studies, "studies", "Study", "rows"), _listed(audits, "audits", "TensorAudit", "heads")
    if confirmation is not None and not hasattr(confirmation, "critical_z"):
        raise ValueError(f"confirmation must be a Confirmation: got {type(confirmation).__name__}")
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise OSError(f"path must name a file in an existing folder: got {str(target)!r}")
    page = _render(confirmation, studies, audits)
    _replace(target, page)
    return target


def _listed(results: Any, name: str, kind: str, attribute: str) -> tuple[Any, ...]:
    if not isinstance(results, Iterable) or isinstance(results, str):
        raise ValueError(f"{name} must be a sequence of {kind}: got {type(results).__name__}")
    listed = tuple(results)
    for result in listed:
        if not hasattr(result, attribute):
            raise ValueError(f"{name} must hold {kind} results: got {type(result).__name__}")
    return listed


def _replace(target: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _render(confirmation: Confirmation | None, studies: Sequence[Study], audits: Sequence[TensorAudit]) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(resources.files("analysis").joinpath("report.html.j2").read_text("utf-8"))
    contents = [("one-query", "One query, step by step"), ("derivations", "Derived: every step checked")]
    contents += [("measured", "Predicted and measured")] if studies else []
    contents += [("ten-keys", "Ten keys at d_k = 512"), ("heatmap", "A self-attention pass")]
    contents += [("confirmed", "Confirmed, each against a rival")] if confirmation else []
    contents += [("audited", "Audited: real tensors")] if audits else []
    return template.render(
        contents=[*contents, ("provenance", "Provenance")],
        explanation=_explanation(),
        derivations=_derivations(),
        studies=[_study(study) for study in studies],
        ten_keys=_ten_keys(ten_keys()),
        self_attention=_self_attention(),
        confirmation=None if confirmation is None else _confirmation(confirmation),
        audits=[_audit(audit) for audit in audits],
        provenance=_provenance(studies),
    )


def _explanation() -> dict[str, Any]:
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
def _derivations() -> list[dict[str, Any]]:
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


def _study(study: Study) -> dict[str, Any]:
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


_HEAD_COLUMNS = {
    "layer": "layer",
    "head": "head",
    "score_variance_ratio": "variance / d_k",
    "within_row_variance": "within-row variance (population)",
    "entropy_ratio": "entropy / log m",
    "predicted_entropy_ratio": "Gaussian prediction",
    "jacobian_trace": "tr J",
    "dead_row_fraction": "dead rows",
    "largest_score": "largest |score|",
    "first_key_share": "first key",
    "verdict": "verdict",
    "cause": "cause",
}
_LAYER_COLUMNS = {
    **{name: _HEAD_COLUMNS[name] for name in list(_HEAD_COLUMNS)[:-2] if name != "head"},
    "heads_above_four": "heads above 4 within row",
    "heads_saturated": "saturated heads",
}


def _audit(audit: TensorAudit) -> dict[str, Any]:
    return {
        "title": audit.source,
        "summary": audit.summary(),
        "figures": [_figure(plots.audit_map(audit))] if audit.heads else [],
        "tables": [
            ("Layers (means over heads)", True, *_table(audit.layers, _LAYER_COLUMNS)),
            ("Every head", False, *_table(audit.heads, _HEAD_COLUMNS)),
        ],
    }


def _table(records: Sequence[Any], columns: dict[str, str]) -> tuple[list[str], list[list[str]]]:
    return list(columns.values()), [[_cell(getattr(record, name)) for name in columns] for record in records]


def _confirmation(confirmation: Confirmation) -> dict[str, Any]:
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
                "derived": result.derivation_verdict or result.claim.route,
                "numbers": [_number(number) for number in numbers],
                "verdict": verdict,
                "css": _CSS.get(verdict, "doubt"),
            }
        )
    confirmed = sum(row["verdict"] == "confirmed" for row in rows)
    summary = (
        f"{confirmed} of {len(rows)} claims confirmed. A row shows the cell that "
        f"speaks most against its claim and the largest z of its rival, the plausible mistake. Beyond |z| = "
        f"{confirmation.critical_z:.2f} a number is contradicted; if every claim is true, the probability that any is "
        f"rejected is at most {confirmation.family_wise_alpha:g}."
    )
    return {"summary": summary, "rows": rows}


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "–"
    return _number(value, 3) if isinstance(value, float) else str(value)


def _ten_keys(result: TenKeys) -> dict[str, Any]:
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


def _self_attention() -> dict[str, Any]:
    weights = self_attention()
    caption = (
        f"{weights.shape[0]} tokens of width 32 through random projections W_Q and W_K (seed 0), scaled by 1/√d_k. "
        "Each row is one query's mixture over the keys and sums to 1."
    )
    return {"figure": _figure(plots.weights_figure(weights, title="softmax(QKᵀ/√d_k)")), "caption": caption}


def _figure(figure: Any) -> Markup:
    return Markup(plots.svg(figure))  # our own drawing: names in it were drawn as paths, not written as text


def _number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}g}"


def _provenance(studies: Sequence[Study]) -> list[tuple[str, str]]:
    versions = [(name, metadata.version(name)) for name in ("numpy", "scipy", "sympy", "matplotlib")]
    seeds = sorted({str(row.seed) for study in studies for row in study.rows})
    return [
        ("attnsym", _own_version()),
        ("Python", platform.python_version()),
        *versions,
        ("machine", platform.machine()),
        *([("seed", ", ".join(seeds))] if seeds else []),
    ]


def _own_version() -> str:
    import attnsym

    return attnsym.__version__
