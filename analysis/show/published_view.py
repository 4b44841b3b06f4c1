"""Who is right: published sentences as rows of a page, each with its findings and, where it has a curve, a figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from analysis.show.drawing import new_figure, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from analysis.confront.published.ground import Numbers
    from analysis.confront.published.sentence import Adjudication

_CLASS = {"true": "pass", "true to leading order": "pass", "false": "fail"}


def published_view(found: Iterable[Adjudication]) -> dict[str, Any]:
    """Return adjudicated sentences, sorted by how wrong, as rows of a page."""
    from analysis.confront.published.sentence import by_how_wrong

    rows = [
        {
            "key": item.sentence.key,
            "sentence": item.sentence.sentence,
            "source": item.sentence.source,
            "assumptions": item.sentence.assumptions,
            "remark": item.sentence.remark,
            "verdict": item.verdict,
            "css": _CLASS.get(item.kind, "doubt"),
            "number": item.shown.words,
            "findings": [(finding.holds, finding.regime, finding.words) for finding in item.findings],
            "figures": [
                Markup(
                    svg(
                        sentence_figure(ground, along), name=f"published-{item.sentence.key}-{place}", title=ground.what
                    )
                )
                for place, (ground, along) in enumerate(_curves(item))
            ],
        }
        for item in by_how_wrong(list(found))
    ]
    return {"rows": rows}


def _curves(item: Adjudication) -> list[tuple[Numbers, str]]:
    from analysis.confront.published.ground import Numbers

    numbers = [ground for ground in item.sentence.grounds if isinstance(ground, Numbers)]
    return [(ground, along) for ground in numbers if (along := curve_of(ground)) is not None]


def curve_of(ground: Numbers) -> str | None:
    """Return the setting along which the numbers are a curve: the only one that varies, over three cases or more."""
    varying = [name for name, _ in ground.cells[0].settings if len({cell.get(name) for cell in ground.cells}) > 1]
    if len(ground.cells) < 3 or len(varying) != 1:
        return None
    return None if any(isinstance(cell.get(varying[0]), str | bool) for cell in ground.cells) else varying[0]


def sentence_figure(ground: Numbers, along: str) -> Figure:
    """Return what a sentence says and what is exact along a setting, with what was measured through the core."""
    figure = new_figure(4.2, 2.4)
    axes = figure.subplots()
    x = [float(cell.get(along)) for cell in ground.cells]
    axes.plot(x, [ground.finds(cell) for cell in ground.cells], "-", color="#1b6ca8", label="exact")
    says = {"at most": "says at most", "at least": "says at least"}.get(ground.relation, "says")
    axes.plot(x, [ground.says(cell) for cell in ground.cells], "--", color="#c8452f", label=says)
    if ground.measurable:
        x = [float(cell.get(along)) for cell in ground.measurable]
        measured = np.array([ground.measure(cell) for cell in ground.measurable])
        axes.errorbar(x, measured[:, 0], 2 * measured[:, 1], fmt="o", ms=4, color="#000000", label="measured, ± 2 SE")
    axes.set_xscale("log")
    axes.set_xlabel(along)
    axes.legend(fontsize=7)
    return figure
