"""What lies between the scores of a random row and its weights: a norm, a bias, a sink, another normalizer."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.vocabulary.numbers import shown

ALIBI = "alibi"


@dataclass(frozen=True, kw_only=True)
class RowMechanism:
    """
    The mechanism of a setting; every default is its absence.

    Attributes
    ----------
    sink : float or None
        A logit in the denominator only.
    bias : str or None
        Added to the scores of the keys: ``"alibi:SLOPE"``, -SLOPE times the number of the key, or n_keys numbers
        separated by commas.
    normalizer : {"softmax", "sigmoid", "relu"}
    normalizer_bias : float or None
        As in the attention core.
    qk_norm : {"l2", "rms"} or None
        Of query and keys, before their product.
    """

    sink: float | None = None
    bias: str | None = None
    normalizer: str = "softmax"
    normalizer_bias: float | None = None
    qk_norm: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What is there, by name: a setting without a mechanism says nothing of it."""
        return {
            item.name: getattr(self, item.name) for item in fields(self) if getattr(self, item.name) != item.default
        }

    def bias_of(self, n_keys: int) -> NDArray[np.float64] | None:
        """Return the biases of n_keys keys; ValueError where there are not as many."""
        if self.bias is None:
            return None
        name, _, slope = self.bias.partition(":")
        if name == ALIBI:
            return -float(slope) * np.arange(float(n_keys))
        numbers = np.array([float(part) for part in self.bias.split(",")])
        if len(numbers) != n_keys:
            raise ValueError(f"bias must have n_keys numbers: got {len(numbers)} for n_keys {n_keys}")
        return numbers


PLAIN = RowMechanism()


def cosine_factor(qk_norm: str, d_k: int) -> int:
    """Return what a cosine is multiplied by to give the product of normed vectors: 1 for "l2", d_k for "rms"."""
    return d_k if qk_norm == "rms" else 1


def read_bias(bias: Any) -> str | None:
    """
    Return a bias as `RowMechanism` keeps it.

    Parameters
    ----------
    bias : None, str or array_like of shape (n_keys,)

    Raises
    ------
    ValueError
        For another text, another shape, or what is not finite numbers.
    """
    if bias is None:
        return None
    if isinstance(bias, str) and bias.startswith(f"{ALIBI}:"):
        return f"{ALIBI}:{_numbers(bias, bias.partition(':')[2].split(','), 1)[0]!r}"
    parts = bias.split(",") if isinstance(bias, str) else bias
    return ",".join(repr(value) for value in _numbers(bias, parts, None))


def _numbers(bias: Any, parts: Any, count: int | None) -> list[float]:
    try:
        given = np.asarray(parts)
        if given.dtype.kind not in ("U" if isinstance(bias, str) else "iuf"):
            raise TypeError
        numbers = given.astype(np.float64)
    except (TypeError, ValueError):
        numbers = np.full((), np.nan)
    sized = numbers.ndim == 1 and 0 < numbers.size == (count or numbers.size)
    if not sized or not np.isfinite(numbers).all():
        raise ValueError(f"bias must be 'alibi:SLOPE' or n_keys finite numbers: got {shown(bias)}")
    found: list[float] = (numbers + 0.0).tolist()  # −0.0 and 0.0 are one setting
    return found
