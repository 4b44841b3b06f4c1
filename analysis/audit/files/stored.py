"""A tensor that lies in a file: what its header says, checked, and the way to its numbers."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.vocabulary.text import printable

MAX_TENSORS = 100_000

_CONVERT = (
    "import sys, torch, safetensors.torch as s; "
    "s.save_file({k: v.contiguous() for k, v in torch.load(sys.argv[1], weights_only=True).items()}, sys.argv[2])"
)


@dataclass(frozen=True)
class StoredTensor:
    """
    A named tensor in a file; nothing of it is read before `array` is called.

    Attributes
    ----------
    name : str
        As the file has it; never used as a path.
    shape : tuple of int
        Checked against the bytes that the file really holds.
    dtype : numpy.dtype or None
        None where NumPy has no such type; then `array` refuses.
    stored_as : str
        The file's own word for the type, for messages.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    stored_as: str
    load: Callable[[], NDArray[Any]] = field(repr=False, compare=False)

    def array(self) -> NDArray[Any]:
        """Return the values, memory-mapped and read-only where the file allows it; ValueError for an unusable type."""
        if self.dtype is None:
            raise ValueError(
                f"tensor {printable(self.name)} has type {self.stored_as}, which cannot be read as numbers"
            )
        return self.load()


def mapped(path: Path, dtype: np.dtype[Any], shape: Sequence[int], offset: int, order: str) -> NDArray[Any]:
    """Map a span of a file whose size was checked; empty tensors need no map, and `mmap` refuses them."""
    if math.prod(shape) == 0:
        return np.zeros(tuple(shape), dtype)
    raw = np.memmap(path, np.uint8, mode="r", offset=offset, shape=(math.prod(shape) * dtype.itemsize,))
    return np.ndarray(tuple(shape), dtype, buffer=raw, order="F" if order == "F" else "C")


def is_shape(value: object) -> bool:
    """Tell whether a header's shape is a sequence of non-negative whole numbers (True is none)."""
    return isinstance(value, tuple | list) and all(type(n) is int and n >= 0 for n in value)


def pickle_refusal(path: Path) -> str:
    """Return why a pickle is not read, with the line that converts it."""
    target = path.with_suffix(".safetensors")
    line = (
        f"python -c {shlex.quote(_CONVERT)} {shlex.quote(printable(str(path)))} {shlex.quote(printable(str(target)))}"
    )
    return f"{printable(path.name)} is a pickle, which could run code, and is not read: convert it with {line}"
