"""One self-contained page from finished results: derivations, studies, claims and audits."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.show.illustrations import ten_keys
from analysis.show.views import (
    audit_view,
    confirmation_view,
    derivation_views,
    explanation_view,
    self_attention_view,
    study_view,
    ten_keys_view,
)
from analysis.vocabulary.output_file import new_file_mode, write_whole
from attnsym import __version__

if TYPE_CHECKING:
    from analysis.audit.tensors.result import TensorAudit
    from analysis.confront.confirmation import Confirmation
    from analysis.measure.result import Study


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
    write_whole(target, page, target.stat().st_mode if target.exists() else new_file_mode())
    return target


def _listed(results: Any, name: str, kind: str, attribute: str) -> tuple[Any, ...]:
    if not isinstance(results, Iterable) or isinstance(results, str):
        raise ValueError(f"{name} must be a sequence of {kind}: got {type(results).__name__}")
    listed = tuple(results)
    for result in listed:
        if not hasattr(result, attribute):
            raise ValueError(f"{name} must hold {kind} results: got {type(result).__name__}")
    return listed


def _render(confirmation: Confirmation | None, studies: Sequence[Study], audits: Sequence[TensorAudit]) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(resources.files("analysis.show").joinpath("report.html.j2").read_text("utf-8"))
    contents = [("one-query", "One query, step by step"), ("derivations", "Derived: every step checked")]
    contents += [("measured", "Predicted and measured")] if studies else []
    contents += [("ten-keys", "Ten keys at d_k = 512"), ("heatmap", "A self-attention pass")]
    contents += [("confirmed", "Confirmed, each against a rival")] if confirmation else []
    contents += [("audited", "Audited: real tensors")] if audits else []
    return template.render(
        contents=[*contents, ("provenance", "Provenance")],
        explanation=explanation_view(),
        derivations=derivation_views(),
        studies=[study_view(study) for study in studies],
        ten_keys=ten_keys_view(ten_keys()),
        self_attention=self_attention_view(),
        confirmation=None if confirmation is None else confirmation_view(confirmation),
        audits=[audit_view(audit) for audit in audits],
        provenance=_provenance(studies),
    )


def _provenance(studies: Sequence[Study]) -> list[tuple[str, str]]:
    versions = [(name, metadata.version(name)) for name in ("numpy", "scipy", "sympy", "matplotlib")]
    seeds = sorted({str(row.seed) for study in studies for row in study.rows})
    return [
        ("attnsym", __version__),
        ("Python", platform.python_version()),
        *versions,
        ("machine", platform.machine()),
        *([("seed", ", ".join(seeds))] if seeds else []),
    ]
