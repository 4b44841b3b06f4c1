"""`attnsym published`: who is right, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.cli._app import EXIT_FAILED_VERDICT, JsonOption, app, console, print_json

if TYPE_CHECKING:
    from analysis.confront.published.sentence import Adjudication


@app.command("published")
def published_command(
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Sentences; all of them by default.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Adjudicate published sentences about attention scores; exit 1 where one cannot be decided."""
    found = adjudicated(keys or [])
    if as_json:
        print_json([item.to_dict() for item in found])
    else:
        console().print("\n\n".join(map(str, found)) if keys else verdict_lines(found))
    if any(item.kind == "undecided" for item in found):
        raise typer.Exit(EXIT_FAILED_VERDICT)


def adjudicated(keys: Sequence[str] = ()) -> list[Adjudication]:
    """Adjudicate the sentences of these keys, all of them by default, and sort them by how wrong they are."""
    from analysis.confront.published import PUBLISHED
    from analysis.confront.published.sentence import by_how_wrong
    from attnsym._names import find_name

    known = {sentence.key: sentence for sentence in PUBLISHED}
    chosen = [known[key] for key in dict.fromkeys(find_name("sentence", key, known) for key in keys)]
    return by_how_wrong([sentence.adjudicate() for sentence in chosen or PUBLISHED])


def verdict_lines(found: Sequence[Adjudication]) -> str:
    """Return a line for each sentence, its key and its verdict."""
    width = max(len(item.sentence.key) for item in found)
    return "\n".join(f"{item.sentence.key:{width}}  {item.verdict}" for item in found)
