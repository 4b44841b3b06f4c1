"""One self-contained page from finished results: derivations, studies, claims and audits."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.show.derivation_views import derivation_views
from analysis.show.drawing import default_style
from analysis.show.explorer import SEED, explorer_data, explorer_table
from analysis.show.published_view import published_view
from analysis.show.views import (
    audit_view,
    confirmation_view,
    explanation_view,
    sentence_view,
    study_view,
    ten_keys_view,
)
from analysis.vocabulary.output_file import check_writable, write_whole
from attnsym import __version__

if TYPE_CHECKING:
    from analysis.audit.over_time.trends import Trends
    from analysis.audit.tensors.result import TensorAudit
    from analysis.audit.weights.result import WeightsAudit
    from analysis.confront.confirmation import Confirmation
    from analysis.confront.published.sentence import Adjudication
    from analysis.measure.result import Study


def write_report(
    path: str | os.PathLike[str],
    *,
    confirmation: Confirmation | None = None,
    studies: Iterable[Study] = (),
    audits: Iterable[TensorAudit | WeightsAudit | Trends] = (),
    published: Iterable[Adjudication] = (),
    command: str = "analysis.write_report",
) -> Path:
    """
    Write the results as one HTML file that loads nothing else.

    Parameters
    ----------
    path : path-like
        Where to write; an existing file is replaced only once the new one is complete, a device or pipe written to.
    confirmation : Confirmation, optional
        From `confirm`.
    studies : iterable of Study, optional
        Each becomes a figure and a table; nothing is simulated again.
    audits : iterable of TensorAudit, WeightsAudit or Trends, optional
        Each becomes tables and a layers × heads map; the trends of a run also curves.
    published : iterable of Adjudication, optional
        What became of published sentences: "Who is right?", sorted by how wrong.
    command : str, optional
        What made the page, for its last section.

    Returns
    -------
    pathlib.Path
        The file written. Besides the results it holds ten keys at d_k = 512, an explorer of exact curves, every
        derivation with its steps (formulas as MathML) and what breaks without each assumption, one query step by step
        and trained heads on a sentence. It is whole without script; figures read on light and dark paper alike.

    Raises
    ------
    OSError
        Where `path` cannot be written.
    ValueError
        Where an argument holds another kind of result.
    """
    studies, audits = _listed(studies, "studies", "Study", "rows"), _listed(audits, "audits", "TensorAudit", "heads")
    published = _listed(published, "published", "Adjudication", "findings")
    if confirmation is not None and not hasattr(confirmation, "critical_z"):
        raise ValueError(f"confirmation must be a Confirmation: got {type(confirmation).__name__}")
    check_writable("path", path)
    with default_style():
        page = _render(confirmation, studies, audits, published, command)
    write_whole(path, page)
    return Path(path)


def _listed(results: Any, name: str, kind: str, attribute: str) -> tuple[Any, ...]:
    if not isinstance(results, Iterable) or isinstance(results, str):
        raise ValueError(f"{name} must be a sequence of {kind}: got {type(results).__name__}")
    listed = tuple(results)
    for result in listed:
        if not hasattr(result, attribute):
            raise ValueError(f"{name} must hold {kind} results: got {type(result).__name__}")
    return listed


def _render(
    confirmation: Confirmation | None,
    studies: Sequence[Study],
    audits: Sequence[TensorAudit | WeightsAudit | Trends],
    published: Sequence[Adjudication],
    command: str,
) -> str:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    script = _asset("script.js")
    contents = [("one-query", "One query, step by step"), ("derivations", "Derived: every step checked")]
    contents += [("measured", "Predicted and measured")] if studies else []
    contents += [("sentence", "Trained heads read a sentence")]
    contents += [("confirmed", "Confirmed, each against a rival")] if confirmation else []
    contents += [("published", "Who is right?")] if published else []
    contents += [("audited", "Audited: real tensors")] if audits else []
    page = environment.from_string(_asset("report.html.j2")).render(
        style=Markup(_asset("style.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        contents=[*contents, ("provenance", "Provenance")],
        ten_keys=ten_keys_view(),
        explorer=explorer_data(),
        explorer_table=explorer_table(),
        explorer_seed=SEED,
        explanation=explanation_view(),
        derivations=derivation_views(),
        studies=[study_view(study, f"{number}") for number, study in enumerate(studies, 1)],
        sentence=sentence_view(),
        confirmation=None if confirmation is None else confirmation_view(confirmation),
        published=published_view(published) if published else None,
        audits=[audit_view(audit, f"{number}") for number, audit in enumerate(audits, 1)],
        provenance=_provenance(studies),
        command=command,
        version=__version__,
    )
    return page.lstrip()


def _asset(name: str) -> str:
    return resources.files("analysis.show").joinpath("page", name).read_text("utf-8")


def _provenance(studies: Sequence[Study]) -> list[tuple[str, str]]:
    versions = [(name, metadata.version(name)) for name in ("numpy", "scipy", "sympy", "matplotlib")]
    seeds = sorted({str(row.seed) for study in studies for row in study.rows})
    return [
        ("attnsym", __version__),
        ("date", datetime.now(UTC).date().isoformat()),
        ("Python", platform.python_version()),
        *versions,
        ("machine", platform.machine()),
        *([("seed", ", ".join(seeds))] if seeds else []),
    ]
