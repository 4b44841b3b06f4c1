"""Which mechanism is meant: its arguments read once, and the groups of keys that they make of a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.predict.arguments import whole_numbers
from analysis.predict.mechanism.grid import Group
from analysis.predict.mechanism.key_law import Array, KeyLaw

# Scores narrower than this are equal to rounding, and so are scores and those capped so far out.
NARROWEST = 1e-9
NEGLIGIBLE = 1e-100
FAR = 1e9
# Beyond, a float no longer tells scores apart that softmax does.
LARGEST_SCORE = 1e12
LARGEST_NEEDLE = 1e6


class OtherArguments(TypedDict, total=False):
    """All but the sink of `MechanismArguments`."""

    bias: ArrayLike | None
    softcap: ArrayLike | None
    score: Literal["dot", "cosine"]
    needle: ArrayLike | None
    key_spread: ArrayLike | None
    is_causal: bool
    window: int | None


class MechanismArguments(OtherArguments, total=False):
    """
    What may lie between plain scores and their weights: keyword arguments of every expectation.

    Attributes
    ----------
    sink : float or array_like, optional
        A logit that only the denominator has; 0 is softmax-off-by-one, -inf none. Entropy is then that of all
        n_keys + 1 weights and log Σ exp counts it; power sums, Jacobian and largest weight are those of the keys.
    bias : array_like of shape (n_keys,), optional
        Added to the scores, after a soft-cap. Under a causal mask row i has the first i of them.
    softcap : float or array_like, optional
        c > 0: scores s become c·tanh(s/c).
    score : {"dot", "cosine"}, optional
        "cosine" takes d_k, and `scale` is the temperature, 1 by default: keys isotropic, of any length. RMS-normalised
        q and k with gains a, b are cosines of temperature scale·d_k·a·b.
    needle : float or array_like, optional
        Mean of the score of key 0 above the others', before a soft-cap.
    key_spread : array_like of shape (n_keys,), optional
        Factors >= 0 on the deviation of each key's score: keys of different lengths.
    is_causal : bool, optional
        The mean over the rows of 1 ... n_keys keys; the keys come in order, so that every row has key 0.
    window : int, optional
        Rows have at most that many keys, the last ones: with `is_causal` only, without bias and key_spread.
    """

    sink: ArrayLike | None


@dataclass(frozen=True)
class Mechanism:
    """The arguments, checked: those that may be arrays as arrays, vectors over the keys as tuples."""

    sink: Array
    softcap: Array
    needle: Array
    bias: tuple[float, ...] | None
    key_spread: tuple[float, ...] | None
    is_cosine: bool
    is_causal: bool
    window: int | None

    @property
    def is_plain(self) -> bool:
        """Whether the scores are iid, and nothing else is in the denominator."""
        nothing = self.bias is None and self.key_spread is None and not (self.is_cosine or self.is_causal)
        scalar = self.sink.ndim == self.softcap.ndim == self.needle.ndim == 0
        return nothing and scalar and self.at(0).is_plain

    @property
    def has_vectors(self) -> bool:
        """Whether keys differ from one another by their place."""
        return self.bias is not None or self.key_spread is not None

    def at(self, place: int) -> Place:
        """Return one cell's numbers."""
        return Place(*(float(values.flat[place if values.ndim else 0]) for values in self.numbers))

    @property
    def numbers(self) -> tuple[Array, Array, Array]:
        """What broadcasts with n_keys."""
        return self.sink, self.softcap, self.needle


@dataclass(frozen=True)
class Place:
    """The numbers of one cell: -inf is no sink, inf no soft-cap."""

    sink: float
    softcap: float
    needle: float

    @property
    def is_plain(self) -> bool:
        """Whether none of them changes anything."""
        return self.sink == -math.inf and self.softcap == math.inf and self.needle == 0


def read_mechanism(
    sink: Any = None,
    bias: Any = None,
    softcap: Any = None,
    score: Any = "dot",
    needle: Any = None,
    key_spread: Any = None,
    is_causal: Any = False,
    window: Any = None,
) -> Mechanism:
    """
    Check the arguments; see `MechanismArguments`.

    Raises
    ------
    ValueError
        One sentence naming the argument.
    """
    if not isinstance(score, str) or score not in ("dot", "cosine"):
        raise ValueError(f"score must be dot or cosine here: got {score!r}")
    if not isinstance(is_causal, bool | np.bool_):
        raise ValueError(f"is_causal must be True or False: got {is_causal!r}")
    if window is not None:
        if not is_causal or bias is not None or key_spread is not None:
            raise ValueError("window goes with is_causal=True, without bias and key_spread")
        window = int(whole_numbers(window, "window")[()])
    if score == "cosine" and key_spread is not None:
        raise ValueError("key_spread goes with score='dot': a cosine does not depend on the length of a key")
    return Mechanism(
        sink=_numbers(sink, "sink", -math.inf, "-inf or a number", _is_sink),
        softcap=_numbers(softcap, "softcap", math.inf, "a number > 0", lambda x: x > 0),
        needle=_numbers(needle, "needle", 0.0, "a number", lambda x: abs(x) <= LARGEST_NEEDLE),
        bias=_vector(bias, "bias", "numbers", lambda x: abs(x) <= LARGEST_SCORE),
        key_spread=_vector(key_spread, "key_spread", "numbers >= 0", lambda x: (x >= 0) & (x <= LARGEST_SCORE)),
        is_cosine=score == "cosine",
        is_causal=bool(is_causal),
        window=window,
    )


def _is_sink(x: Array) -> NDArray[np.bool_]:
    return np.asarray((abs(x) <= LARGEST_SCORE) | (x == -math.inf))


def _numbers(value: Any, name: str, absent: float, wanted: str, valid: Any) -> Array:
    if value is None:
        return np.array(absent)
    try:
        array = np.asarray(value)
        if array.size and array.dtype.kind not in "iuf":
            raise TypeError
        numbers = array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {wanted}: got {value!r}") from None
    bad = ~valid(numbers)
    if np.any(bad):
        limits = {"softcap": "", "needle": f" of size at most {LARGEST_NEEDLE:g}"}
        limit = limits.get(name, f" of size at most {LARGEST_SCORE:g}")
        raise ValueError(f"{name} must be {wanted}{limit}: got {numbers[bad].flat[0]}")
    return numbers


def _vector(value: Any, name: str, wanted: str, valid: Any) -> tuple[float, ...] | None:
    if value is None:
        return None
    numbers = _numbers(value, name, 0.0, f"n_keys {wanted}", valid)
    if numbers.ndim != 1:
        raise ValueError(f"{name} must have the shape (n_keys,): got {numbers.shape}")
    return tuple(numbers.tolist())


def row_groups(
    mechanism: Mechanism, place: Place, n_keys: int, sigma: float, dimension: int
) -> tuple[list[Group], list[int]]:
    """
    Make the groups of a row of n_keys keys.

    Parameters
    ----------
    mechanism : Mechanism
    place : Place
    n_keys : int
    sigma : float
        Deviation of a dot product, or the temperature of a cosine.
    dimension : int
        Of the vectors of a cosine, else 0.

    Returns
    -------
    groups : list of Group
        The sink last, if there is one.
    of_key : list of int
        The group of each key, or of key 0 and of all the others where the keys are alike but for the needle.
    """
    alike = mechanism.bias is None and mechanism.key_spread is None
    spread = mechanism.key_spread or (1.0,) * (min(n_keys, 2) if alike else n_keys)
    bias = mechanism.bias or (0.0,) * len(spread)
    for name, vector in (("bias", mechanism.bias), ("key_spread", mechanism.key_spread)):
        if vector is not None and len(vector) != n_keys:
            raise ValueError(f"{name} must have n_keys numbers: got {len(vector)} for n_keys {n_keys}")
    counts: dict[tuple[KeyLaw, float], float] = {}
    names = []
    for key, (factor, shift) in enumerate(zip(spread, bias, strict=True)):
        mean = place.needle if key == 0 else 0.0
        law = _law(sigma if dimension else sigma * factor, mean, place.softcap, dimension)
        names.append((law, shift))
        counts[law, shift] = counts.get((law, shift), 0.0) + (n_keys - 1 if alike and key else 1)
    order = {name: index for index, name in enumerate(counts)}
    groups = [Group(law, shift, count) for (law, shift), count in counts.items()]
    if place.sink > -math.inf:
        groups.append(Group(KeyLaw(0.0), place.sink, 1.0, True))
    return groups, [order[name] for name in names]


def _law(width: float, mean: float, softcap: float, dimension: int) -> KeyLaw:
    """Return the law of a score of this deviation, or temperature of a cosine, where no size is lost in rounding."""
    width = width if width > NEGLIGIBLE else 0.0
    if softcap < NARROWEST:
        softcap = 0.0
    elif softcap > FAR * (20 * width + abs(mean) + 1):
        softcap = math.inf
    return KeyLaw(0.0, mean, softcap, dimension, width) if dimension else KeyLaw(width, mean, softcap)
