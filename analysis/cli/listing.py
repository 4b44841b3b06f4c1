"""`attnsym list`: what can be derived, what is claimed, and which quantities there are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from analysis.cli._app import JsonOption, app, console, print_json


@app.command("list")
def list_command(
    what: Annotated[
        str | None,
        typer.Argument(help="quantities, laws, assumptions or published; without it, the derivations and the claims."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the derivations and the claims, what other commands take, or what has been published."""
    from attnsym._names import find_name

    what = None if what is None else find_name("list", what, _LISTS)
    entries = _derivations_and_claims() if what is None else {what: _LISTS[what]()}
    if as_json:
        print_json(entries if what is None else entries[what])
    else:
        for number, (kind, items) in enumerate(entries.items()):
            _print(kind, items, first=number == 0)


def _derivations_and_claims() -> dict[str, list[dict[str, Any]]]:
    from analysis.confront.claims import CLAIMS
    from attnsym.symbolic import DERIVATIONS

    claims = [
        {
            "key": claim.key,
            "route": support.route,
            "missing": list(support.missing),
            "derivation": claim.derivation,
            "statement": claim.statement,
            "meaning": claim.meaning,
            "assumptions": list(claim.assumptions),
            "source": claim.source,
            "rival_in_words": claim.mistake,
            "is_code_check": claim.is_code_check,
            "kind": "check of code" if claim.is_code_check else "claim",
            "cells": len(claim.cells),
        }
        for claim, support in ((claim, claim.support) for claim in CLAIMS)
    ]
    derivations = [{"key": key, "title": derivation.title} for key, derivation in DERIVATIONS.items()]
    return {"derivations": derivations, "claims": claims}


def _quantities() -> list[dict[str, Any]]:
    from analysis.vocabulary.quantities import QUANTITIES
    from analysis.vocabulary.row_shares import STUDIED

    return [
        {
            "name": record.name,
            "aliases": list(record.aliases),
            "formula": record.formula,
            "unit": record.unit,
            "words": record.words,
            "exact": None if record.exact is None else record.exact.statistic,
            "solvable": record.exact is not None and record.exact.is_monotone,
        }
        for record in (QUANTITIES | STUDIED).values()
    ]


def _laws() -> list[dict[str, Any]]:
    from analysis.vocabulary.laws import STANDARDISED, resolve_law

    names = [*STANDARDISED, "student_t10"]
    return [
        {"name": name, "kurtosis": law.central_moment(4), "symmetric": "symmetric" if law.is_symmetric else "skewed"}
        for name, law in ((name, resolve_law(name)) for name in names)
    ]


def _assumptions() -> list[dict[str, Any]]:
    from attnsym.symbolic.trusted.assumptions import kinds_in_words

    return [{"name": written, "sentence": sentence} for written, sentence in kinds_in_words().items()]


def _published() -> list[dict[str, Any]]:
    from analysis.confront.published import PUBLISHED

    return [
        {
            "key": sentence.key,
            "adjudication": found.verdict,
            "kind": found.kind,
            "sentence": sentence.sentence,
            "source": sentence.source,
            "claims": list(sentence.claims),
            "derivations": list(sentence.derivations),
        }
        for sentence, found in ((sentence, sentence.adjudicate()) for sentence in PUBLISHED)
    ]


_LISTS = {"quantities": _quantities, "laws": _laws, "assumptions": _assumptions, "published": _published}
# Of each kind: how to use an entry, and what is shown beside it.
_SHOWN = {
    "derivations": ("attnsym derive KEY", ("title",)),
    "claims": ("attnsym confirm KEY", ("kind", "route", "statement")),
    "laws": ("--law NAME, mean 0 and variance 1; E X⁴ beside", ("kurtosis", "symmetric")),
    "assumptions": ("--assume 'KIND(VECTORS)'", ("sentence",)),
    "published": ("attnsym published KEY", ("kind", "sentence")),
    "quantities": ("attnsym study NAME; predict and solve where it is exact", ("aliases", "exact", "formula", "words")),
}


def _print(kind: str, items: list[dict[str, Any]], *, first: bool) -> None:
    use, columns = _SHOWN[kind]
    rows = [
        [_text(value) for value in (next(iter(item.values())), *(item[column] for column in columns))] for item in items
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))] + [0]
    console().print(f"{'' if first else chr(10)}{len(items)} {kind} ({use})")
    for row in rows:
        console().print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:z.4g}"
    return (", ".join(value) if isinstance(value, list) else value) or "-"
