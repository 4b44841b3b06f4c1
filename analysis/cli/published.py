"""`attnsym published`: who is right, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from analysis.cli._app import EXIT_FAILED_VERDICT, JsonOption, app, console, print_json

if TYPE_CHECKING:
    from analysis.confront.published.sentence import Sentence


@app.command("published")
def published_command(
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Sentences; all of them by default.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Adjudicate published sentences about attention scores; exit 1 where one cannot be decided."""
    from analysis.confront.published.sentence import by_how_wrong

    found = by_how_wrong([sentence.adjudicate() for sentence in _chosen(keys or [])])
    if as_json:
        print_json([item.to_dict() for item in found])
    elif keys:
        console().print("\n\n".join(map(str, found)))
    else:
        width = max(len(item.sentence.key) for item in found)
        for item in found:
            console().print(f"{item.sentence.key:{width}}  {item.verdict}")
    if any(item.kind == "undecided" for item in found):
        raise typer.Exit(EXIT_FAILED_VERDICT)


def _chosen(keys: list[str]) -> tuple[Sentence, ...]:
    from analysis.confront.published import PUBLISHED
    from attnsym._names import find_name

    known = {sentence.key: sentence for sentence in PUBLISHED}
    return tuple(known[key] for key in dict.fromkeys(find_name("sentence", key, known) for key in keys)) or PUBLISHED
