"""The vectors, arrays and scalars that a claim may speak of, as bare facts: their sizes, and whether E acts on them."""

from __future__ import annotations

import re
from dataclasses import dataclass

COMPONENT, KEY, VALUE, MODEL = "d_k", "n_keys", "d_v", "d_model"
SORTS = (COMPONENT, KEY, VALUE, MODEL)
_OWN = re.compile(r"[a-z][a-z0-9]{0,7}")


@dataclass(frozen=True)
class Family:
    """
    A vector, array or scalar.

    Attributes
    ----------
    sorts : tuple of str
        The size that each index runs to.
    random : bool
        Whether expectations act on it.
    meaning : str
        What it stands for.
    flexible : bool
        Whether it may run to another size, which the rest of a claim then says.
    """

    sorts: tuple[str, ...] = ()
    random: bool = False
    meaning: str = ""
    flexible: bool = False


FAMILIES: dict[str, Family] = {
    "q": Family((COMPONENT,), True, "query"),
    "k": Family((COMPONENT,), True, "key"),
    "k2": Family((COMPONENT,), True, "a second key"),
    "u": Family((COMPONENT,), True, "a random unit vector"),
    "w": Family((COMPONENT,), True, "another random unit vector"),
    "W": Family((COMPONENT, MODEL), True, "a random matrix, a projection"),
    "W_q": Family((COMPONENT, MODEL), True, "the projection of queries"),
    "W_k": Family((COMPONENT, MODEL), True, "the projection of keys"),
    "S": Family((), True, "a score"),
    "X": Family((), True, "one more query component"),
    "Y": Family((), True, "one more key component"),
    "X2": Family((), True, "the query component that a rotation turns with X"),
    "Y2": Family((), True, "the key component that it turns with Y"),
    "z": Family((), True, "the difference of two scores"),
    "s": Family((KEY,), False, "scores of one row"),
    "p": Family((KEY,), False, "weights of one row, softmax(s)"),
    "x": Family((KEY,), False, "any fixed numbers", flexible=True),
    "beta": Family((COMPONENT,), False, "any fixed numbers, coefficients", flexible=True),
    "K": Family((KEY, COMPONENT), False, "keys"),
    "V": Family((KEY, VALUE), False, "values"),
    "C_q": Family((COMPONENT, COMPONENT), False, "second moments of q"),
    "C_k": Family((COMPONENT, COMPONENT), False, "second moments of k"),
    "excess": Family((KEY,), False, "slack of an inequality, one for each key"),
    "p_t": Family((KEY,), False, "weights at inverse temperature t, softmax(t·s)"),
    "cgf_i": Family((COMPONENT,), False, "log E[exp(t q_i k_i)]"),
}
RANDOM = frozenset(name for name, own in FAMILIES.items() if own.random)
# What moves with the query and the keys: no number to an expectation over them.
MOVING = frozenset({"s", "p", "K", "V", "H", "log_Z"})
# Names that stand for something else in a claim.
TAKEN = frozenset(
    {
        *("exp", "log", "sqrt", "moment", "delta", "vector", "mu", "sigma"),
        *("c", "t", "rho", "scale", "epsilon", "pi", "i", "j", "l", "r", "a", "b"),
    }
)


def family(name: str) -> Family | None:
    """Return what `name` stands for: one of `FAMILIES`, or a random vector of the user's own; None if neither."""
    if name in FAMILIES:
        return FAMILIES[name]
    own = _OWN.fullmatch(name) and name not in TAKEN
    return Family((COMPONENT,), True, "a vector of your own", flexible=True) if own else None
