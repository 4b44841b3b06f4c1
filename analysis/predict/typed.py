"""What the expectations return, for type checkers: a float where every argument is a number, else an array of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypedDict, Unpack, cast, overload

from numpy.typing import ArrayLike

from analysis.predict.mechanism.setting import MechanismArguments, OtherArguments
from analysis.predict.routes import Method, Values
from analysis.vocabulary.scale import ScaleLike


class OtherNumbers(TypedDict, total=False):
    """`OtherArguments` for one row: numbers, and vectors over its keys."""

    bias: ArrayLike | None
    softcap: float | None
    score: Literal["dot", "cosine"]
    needle: float | None
    key_spread: ArrayLike | None
    is_causal: bool
    window: int | None


class MechanismNumbers(OtherNumbers, total=False):
    """`MechanismArguments` for one row."""

    sink: float | None


class Number(TypedDict, total=False):
    """What a score is multiplied by, and by which route."""

    scale: ScaleLike
    method: Method


class Array(TypedDict, total=False):
    """As `Number`, for several."""

    scale: ScaleLike | ArrayLike
    method: Method


class NumberOfScores(Number, total=False):
    """And how wide the scores are, by deviation or dimension."""

    sigma: float | None
    d_k: int | None


class ArrayOfScores(Array, total=False):
    """As `NumberOfScores`, for several."""

    sigma: ArrayLike | None
    d_k: ArrayLike | None


class RowNumbers(NumberOfScores, MechanismNumbers, total=False):
    """The keyword arguments of an expectation over one row."""


class RowArrays(ArrayOfScores, MechanismArguments, total=False):
    """The same over several."""


class VectorNumbers(Number, MechanismNumbers, total=False):
    """Those besides a width that must be given."""


class VectorArrays(Array, MechanismArguments, total=False):
    """The same over several."""


class SinkNumbers(NumberOfScores, OtherNumbers, total=False):
    """Those besides a sink that must be given."""


class SinkArrays(ArrayOfScores, OtherArguments, total=False):
    """The same over several."""


class OfRow(Protocol):
    """An expectation over rows of n_keys scores."""

    @overload
    def __call__(self, n_keys: int, **where: Unpack[RowNumbers]) -> float: ...
    @overload
    def __call__(self, n_keys: ArrayLike, **where: Unpack[RowArrays]) -> Values: ...


class OfOrder(Protocol):
    """An expectation that has an order before the number of keys."""

    @overload
    def __call__(self, order: int, n_keys: int, **where: Unpack[RowNumbers]) -> float: ...
    @overload
    def __call__(self, order: int, n_keys: ArrayLike, **where: Unpack[RowArrays]) -> Values: ...


class OfVectors(Protocol):
    """An expectation that needs the width of the vectors."""

    @overload
    def __call__(self, n_keys: int, *, d_k: int, **where: Unpack[VectorNumbers]) -> float: ...
    @overload
    def __call__(self, n_keys: ArrayLike, *, d_k: ArrayLike, **where: Unpack[VectorArrays]) -> Values: ...


class OfKey(Protocol):
    """An expectation about one key of the row."""

    @overload
    def __call__(self, n_keys: int, *, key: int = 0, **where: Unpack[RowNumbers]) -> float: ...
    @overload
    def __call__(self, n_keys: ArrayLike, *, key: ArrayLike = 0, **where: Unpack[RowArrays]) -> Values: ...


class OfSink(Protocol):
    """An expectation about the sink."""

    @overload
    def __call__(self, n_keys: int, *, sink: float, **where: Unpack[SinkNumbers]) -> float: ...
    @overload
    def __call__(self, n_keys: ArrayLike, *, sink: ArrayLike, **where: Unpack[SinkArrays]) -> Values: ...


def of_row(function: Callable[..., Values]) -> OfRow:
    """Return the function, of which only checkers learn more."""
    return cast(OfRow, function)


def of_order(function: Callable[..., Values]) -> OfOrder:
    """As `of_row`."""
    return cast(OfOrder, function)


def of_vectors(function: Callable[..., Values]) -> OfVectors:
    """As `of_row`."""
    return cast(OfVectors, function)


def of_key(function: Callable[..., Values]) -> OfKey:
    """As `of_row`."""
    return cast(OfKey, function)


def of_sink(function: Callable[..., Values]) -> OfSink:
    """As `of_row`."""
    return cast(OfSink, function)
