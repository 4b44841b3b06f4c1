"""The vectors, arrays and scalars that a claim may speak of, as bare facts: their sizes, and whether E acts on them."""

from __future__ import annotations

from dataclasses import dataclass

COMPONENT, KEY, VALUE = "d_k", "n_keys", "d_v"


@dataclass(frozen=True)
class Family:
    """A vector, array or scalar: the sorts of its indices, whether it is random, and what it stands for."""

    sorts: tuple[str, ...] = ()
    random: bool = False
    meaning: str = ""


FAMILIES: dict[str, Family] = {
    "q": Family((COMPONENT,), True, "query"),
    "k": Family((COMPONENT,), True, "key"),
    "k2": Family((COMPONENT,), True, "a second key"),
    "u": Family((COMPONENT,), True, "a random unit vector"),
    "w": Family((COMPONENT,), True, "another random unit vector"),
    "S": Family((), True, "a score"),
    "X": Family((), True, "one more query component"),
    "Y": Family((), True, "one more key component"),
    "z": Family((), True, "the difference of two scores"),
    "s": Family((KEY,), False, "scores of one row"),
    "p": Family((KEY,), False, "weights of one row, softmax(s)"),
    "x": Family((KEY,), False, "any numbers, one for each key"),
    "K": Family((KEY, COMPONENT), False, "keys"),
    "V": Family((KEY, VALUE), False, "values"),
    "C_q": Family((COMPONENT, COMPONENT), False, "second moments of q"),
    "C_k": Family((COMPONENT, COMPONENT), False, "second moments of k"),
    "excess": Family((KEY,), False, "slack of an inequality, one for each key"),
    "p_t": Family((KEY,), False, "weights at inverse temperature t, softmax(t·s)"),
    "cgf_i": Family((COMPONENT,), False, "log E[exp(t q_i k_i)]"),
}
RANDOM = frozenset(name for name, family in FAMILIES.items() if family.random)
