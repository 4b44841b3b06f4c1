"""`attnsym explain`: one query's attention, step by step."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from analysis.cli._app import JsonOption, app, float_list, print_json


@app.command("explain")
def explain_command(
    query: Annotated[str, typer.Option(help="The query's components, separated by commas.")],
    keys: Annotated[
        str, typer.Option(help="The keys: vectors separated by semicolons; plain commas separate keys when d_k = 1.")
    ],
    values: Annotated[str | None, typer.Option(help="The values, one for each key, written as the keys are.")] = None,
    scale: Annotated[str, typer.Option(help="sqrt (1/√d_k), unscaled, a number, or an expression.")] = "sqrt",
    softcap: Annotated[float | None, typer.Option(help="Cap the scores smoothly at ± this number.")] = None,
    sink: Annotated[
        float | None, typer.Option(help="A logit that takes a share and gives nothing; 0: off by one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show one query's products, scores, exponentials, weights and output."""
    from analysis.vocabulary.scale import resolve_scale
    from analysis.vocabulary.strict_json import finite_or_none
    from attnsym.explain import WHAT_WEIGHTS_ARE, explain

    vector = float_list(query, "--query")
    key = _vectors(keys, "--keys", len(vector))
    value = None if values is None else _vectors(values, "--values", None)
    factor = resolve_scale(scale)(len(vector), len(key))
    result = explain(vector, key, value, scale=factor, softcap=softcap, sink=sink)
    if as_json:
        shown = {name: part for name, part in asdict(result).items() if sink is not None or "sink" not in name}
        print_json(finite_or_none(shown) | {"note": WHAT_WEIGHTS_ARE})
    else:
        print(result)


def _vectors(text: str, name: str, components: int | None) -> list[list[float]]:
    """
    Read vectors: semicolons separate them, commas their components.

    Without a semicolon, commas separate one-component vectors, unless `components` says how many each has. A trailing
    semicolon marks a single vector.
    """
    if ";" not in text and components in (None, 1):
        return [[number] for number in float_list(text, name)]
    vectors = [float_list(part, name) for part in text.strip().removesuffix(";").split(";")]
    wanted = len(vectors[0]) if components is None else components
    wrong = [vector for vector in vectors if len(vector) != wanted]
    if wrong:
        raise ValueError(f"{name} takes vectors of {wanted} components, separated by semicolons: got {wrong[0]}")
    return vectors
