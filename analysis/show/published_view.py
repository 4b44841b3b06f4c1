"""Who is right: published sentences as rows of a page, each with its findings and the figures of its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from analysis.show.drawing import svg
from analysis.show.published_figure import curve_of, described, sentence_figure

if TYPE_CHECKING:
    from analysis.confront.published.sentence import Adjudication

_CLASS = {"true": "pass", "true to leading order": "pass", "false": "fail"}


def published_view(found: Iterable[Adjudication]) -> dict[str, Any]:
    """Return adjudicated sentences, sorted by how wrong, as rows of a page."""
    from analysis.confront.published.sentence import by_how_wrong

    return {"rows": [sentence_view(item) for item in by_how_wrong(list(found))]}


def sentence_view(item: Adjudication) -> dict[str, Any]:
    """
    Return one adjudicated sentence as a page shows it.

    Its figures, and `plain`: sentences that say of the numbers without a figure, or without draws, why there are none;
    `table` holds the cases of numbers without a figure.
    """
    from analysis.confront.published.numbers import Numbers

    record = item.sentence
    figures, plain, table = [], [], []
    for place, (ground, finding) in enumerate(zip(record.grounds, item.findings, strict=True)):
        if not isinstance(ground, Numbers):
            continue  # a proof or a claim: its words are the computation
        along = curve_of(finding.rows)
        if along is None:
            plain.append(f"No curve: {ground.what} stands at too few cases to join them; they are these.")
            table += [str(row) for row in finding.rows]
        else:
            figure = sentence_figure(ground, finding, along)
            title = ground.what + (f" ({finding.regime})" if finding.regime else "")
            name = f"published-{record.key}-{place}"
            figures.append(
                Markup(svg(figure, name=name, title=title, description=described(finding, along), plain_text=True))
            )
        if ground.sample is None:
            plain.append(f"Nothing is drawn for {ground.what}: {ground.undrawn}.")
    return {
        "key": record.key,
        "sentence": record.sentence,
        "source": record.source,
        "assumptions": record.assumptions,
        "remark": record.remark,
        "verdict": item.verdict,
        "css": _CLASS.get(item.kind, "doubt"),
        "number": item.shown.words,
        "findings": [(finding.holds, finding.regime, finding.words) for finding in item.findings],
        "figures": figures,
        "plain": list(dict.fromkeys(plain)),
        "table": table,
    }
