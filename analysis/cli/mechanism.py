"""The options that say what lies between plain scores and their weights, for the commands that predict."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from analysis.cli._app import float_list

SinkOption = Annotated[float | None, typer.Option("--sink", help="A logit in the denominator only; 0 is off-by-one.")]
BiasOption = Annotated[
    str | None, typer.Option("--bias", help="n_keys numbers separated by commas, or alibi:SLOPE by distance.")
]
SoftcapOption = Annotated[float | None, typer.Option("--softcap", help="c in c*tanh(score / c).")]

# The keyword arguments of `mechanism_of`: the type with its option, and the default that means nothing is there.
OPTIONS: dict[str, tuple[Any, Any]] = {
    "sink": (SinkOption, None),
    "bias": (BiasOption, None),
    "softcap": (SoftcapOption, None),
    "score": (
        Annotated[str, typer.Option("--score", help="dot, or cosine: --scale is then its temperature.")],
        "dot",
    ),
    "needle": (
        Annotated[float | None, typer.Option("--needle", help="Mean score of key 0 above the others.")],
        None,
    ),
    "key_spread": (
        Annotated[
            str | None, typer.Option("--key-spread", help="n_keys factors on the deviations of the keys' scores.")
        ],
        None,
    ),
    "causal": (Annotated[bool, typer.Option("--causal", help="Mean over the rows of a causal mask.")], False),
    "window": (
        Annotated[int | None, typer.Option("--window", help="With --causal: the keys that a row sees at most.")],
        None,
    ),
}


def takes_mechanism(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all OPTIONS in the place of its parameter `mechanism`, which receives them by name."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name != "mechanism":
            parameters.append(parameter)
            continue
        parameters += [
            inspect.Parameter(name, parameter.kind, default=default, annotation=annotation)
            for name, (annotation, default) in OPTIONS.items()
        ]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        command(mechanism={name: given.pop(name) for name in OPTIONS}, **given)

    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def mechanism_of(n_keys: list[int] | None, options: dict[str, Any]) -> dict[str, Any]:
    """
    Return the keyword arguments of the expectations that were asked for, none where none was.

    Parameters
    ----------
    n_keys : list of int or None
    options : dict
        What was given for OPTIONS.

    Raises
    ------
    ValueError
        For a bias or spread that cannot be read.
    """
    given = {name: value for name, value in options.items() if value != OPTIONS[name][1]}
    if "bias" in given:
        given["bias"] = _bias(given["bias"], n_keys)
    if "key_spread" in given:
        given["key_spread"] = float_list(given["key_spread"], "--key-spread")
    if "causal" in given:
        given["is_causal"] = given.pop("causal")
    return given


def _bias(text: str, n_keys: list[int] | None) -> list[float]:
    name, _, slope = text.partition(":")
    if name != "alibi":
        return float_list(text, "--bias")
    if n_keys is None or len(set(n_keys)) != 1:
        raise ValueError("--bias alibi:SLOPE needs one number of keys in --n-keys")
    (value,) = float_list(slope, "--bias alibi:")
    return [0.0 - value * distance for distance in range(n_keys[0])]
