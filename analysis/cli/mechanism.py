"""The options that say what lies between plain scores and their weights, for the commands that predict."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from analysis.cli._app import float_list

SinkOption = Annotated[float | None, typer.Option("--sink", help="A logit in the denominator only; 0 is off-by-one.")]
BiasOption = Annotated[
    str | None, typer.Option("--bias", help="n_keys numbers separated by commas, or alibi:SLOPE by distance.")
]
SoftcapOption = Annotated[float | None, typer.Option("--softcap", help="c in c*tanh(score / c).")]
ScoreOption = Annotated[str, typer.Option("--score", help="dot, or cosine: --scale is then its temperature.")]
NeedleOption = Annotated[float | None, typer.Option("--needle", help="Mean score of key 0 above the others.")]
SpreadOption = Annotated[
    str | None, typer.Option("--key-spread", help="n_keys factors on the deviations of the keys' scores.")
]
CausalOption = Annotated[bool, typer.Option("--causal", help="Mean over the rows of a causal mask.")]
WindowOption = Annotated[int | None, typer.Option("--window", help="With --causal: the keys that a row sees at most.")]


def mechanism_of(
    n_keys: list[int] | None,
    *,
    sink: float | None = None,
    bias: str | None = None,
    softcap: float | None = None,
    score: str = "dot",
    needle: float | None = None,
    key_spread: str | None = None,
    causal: bool = False,
    window: int | None = None,
) -> dict[str, Any]:
    """
    Return the keyword arguments of the expectations that were asked for, none where none was.

    Raises
    ------
    ValueError
        For a bias or spread that cannot be read.
    """
    given: dict[str, Any] = {"sink": sink, "softcap": softcap, "needle": needle, "window": window}
    if bias is not None:
        given["bias"] = _bias(bias, n_keys)
    if key_spread is not None:
        given["key_spread"] = float_list(key_spread, "--key-spread")
    if score != "dot":
        given["score"] = score
    if causal:
        given["is_causal"] = True
    return {name: value for name, value in given.items() if value is not None}


def _bias(text: str, n_keys: list[int] | None) -> list[float]:
    name, _, slope = text.partition(":")
    if name != "alibi":
        return float_list(text, "--bias")
    if n_keys is None or len(set(n_keys)) != 1:
        raise ValueError("--bias alibi:SLOPE needs one number of keys in --n-keys")
    (value,) = float_list(slope, "--bias alibi:")
    return [-value * distance for distance in range(n_keys[0])]
