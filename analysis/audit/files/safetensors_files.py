"""Reader of .safetensors that checks every length and offset before it touches the data, and maps it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from analysis.audit.files.stored import MAX_TENSORS, StoredTensor, is_shape, mapped
from analysis.vocabulary.text import printable

MAX_HEADER = 100_000_000
_TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
_ML_TYPES = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


def read_safetensors(path: Path) -> list[StoredTensor]:
    """
    Return the tensors of a .safetensors file.

    Raises
    ------
    ValueError
        For a header longer than the file, more than 100,000 tensors, broken JSON, a name given twice, a shape that
        disagrees with its span, and spans that overlap, leave gaps, or do not end with the file.
    """
    label, size = printable(path.name), path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise ValueError(f"{label} is no whole .safetensors file: its header claims {length:,} of {size:,} bytes")
        text = stream.read(length)
    header = _header(label, text)
    if len(header) > MAX_TENSORS:
        raise ValueError(f"{label} holds more than {MAX_TENSORS:,} tensors")
    tensors = [_entry(path, name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"]
    _check_spans(
        label, [(name, *e["data_offsets"]) for name, e in header.items() if name != "__metadata__"], size - 8 - length
    )
    return tensors


def _header(label: str, text: bytes) -> dict[str, Any]:
    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("a name stands twice")
        return dict(pairs)

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{label} has a .safetensors header that cannot be read: {printable(str(error)[:80])}"
        ) from None
    if not isinstance(header, dict):
        raise ValueError(f"{label} has a .safetensors header that is no table of tensors")
    return header


def _entry(path: Path, name: str, entry: Any, start: int) -> StoredTensor:
    label = f"{printable(path.name)}, tensor {printable(name[:80])}"
    try:
        code, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError):
        raise ValueError(f"{label} lacks one of dtype, shape and data_offsets") from None
    if not is_shape(shape) or not is_shape(span) or len(span) != 2 or not isinstance(code, str):
        raise ValueError(f"{label} has a header entry that makes no sense")
    dtype = _dtype(code)
    if dtype is not None and math.prod(shape) * dtype.itemsize != span[1] - span[0]:
        raise ValueError(
            f"{label} has shape {tuple(shape)} of {printable(code)} but a span of {span[1] - span[0]:,} bytes"
        )

    def load() -> Any:
        assert dtype is not None
        return mapped(path, dtype, shape, start + span[0], "C")

    return StoredTensor(name, tuple(shape), dtype, printable(code), load)


def _check_spans(label: str, spans: list[tuple[str, int, int]], size: int) -> None:
    position = 0
    for name, begin, end in sorted(spans, key=lambda s: (s[1], s[2])):
        if begin != position or end < begin:
            raise ValueError(
                f"{label}, tensor {printable(name[:80])} starts at byte {begin:,} where {position:,} is due"
            )
        position = end
    if position != size:
        raise ValueError(f"{label} holds {size:,} bytes of data, its tensors {position:,}")


def _dtype(code: str) -> np.dtype[Any] | None:
    if code in _TYPES:
        return np.dtype(_TYPES[code])
    if code in _ML_TYPES:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_TYPES[code]))
        return dtype
    return None
