"""Random streams by content: what a cell draws depends on the seed and on what the cell is, on nothing else."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.vocabulary.numbers import shown

_SEED_BITS = 4096
_WORDS = 4  # 128 bits of the digest: two cells of one study never meet


def check_seed(seed: Any) -> int:
    """
    Return `seed` as an int.

    Raises
    ------
    ValueError
        Unless it is a whole number of at least 0. A boolean is no seed, None would not be reproducible, and a
        `numpy.random.Generator` would be advanced by the call, so that the second of two equal calls would differ.
    """
    try:
        value = -1 if isinstance(seed, bool | np.bool_) else operator.index(seed)
    except TypeError:
        value = -1
    if value < 0:
        raise ValueError(f"seed must be a whole number of at least 0: got {shown(seed)}")
    if value.bit_length() > _SEED_BITS:
        raise ValueError(f"seed must be a whole number of at most {_SEED_BITS} bits: got one of {value.bit_length()}")
    return value


def settings_digest(name: str, settings: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal, of a name and settings; their order does not matter."""
    canonical = json.dumps([name, dict(settings)], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def shard_sequence(seed: int, digest: str, shard: int) -> np.random.SeedSequence:
    """
    Return the seed sequence of one shard of one cell.

    The digest and the shard's number are the spawn key of the seed, hence streams of different seeds, cells and shards
    are independent, `default_rng(seed)` itself is none of them, and the key never depends on how many cells, shards
    or workers there are.
    """
    words = tuple(int(digest[8 * i : 8 * i + 8], 16) for i in range(_WORDS))
    return np.random.SeedSequence(entropy=seed, spawn_key=(*words, shard))
