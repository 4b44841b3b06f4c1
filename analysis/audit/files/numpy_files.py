"""Readers of .npy and .npz that believe no header and never unpickle."""

from __future__ import annotations

import ast
import errno
import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.files.stored import StoredTensor, is_shape, mapped, pickle_refusal
from analysis.vocabulary.text import printable

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000
MAX_INFLATED = 2**30
MAX_MEMBERS = 10_000
_DAMAGE = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OverflowError)
_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}


def read_npy(path: Path) -> list[StoredTensor]:
    """Return the one tensor of a .npy file, named by the file; ValueError unless header and size agree."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        shape, dtype, order, descr = _header(stream, printable(path.name))
        offset = stream.tell()
    _check_span(printable(path.name), shape, dtype, size - offset)
    return [StoredTensor(path.stem, shape, _number_type(dtype), descr, lambda: _map(path, dtype, shape, offset, order))]


def read_npz(path: Path) -> list[StoredTensor]:
    """
    Return the tensors of a .npz file.

    Members stored without compression are mapped; compressed ones are inflated when read, up to 1 GiB each.

    Raises
    ------
    ValueError
        For a damaged archive, more than 10,000 members, two members of one name, a member that is no array, a pickled
        (object) array, or a header that disagrees with the member's size.
    """
    _check_members(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = [m.filename for m in members]
            if any(name.endswith("data.pkl") for name in names):
                raise ValueError(pickle_refusal(path))
            if len(set(names)) != len(names):
                raise ValueError(f"{printable(path.name)} holds two members of the same name")
            return [_member(path, archive, info) for info in members]
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise ValueError(f"{printable(path.name)} is not a whole .npz archive: it points outside itself") from None
    except _DAMAGE as error:
        raise ValueError(f"{printable(path.name)} is not a whole .npz archive: {_words(error)}") from None


def _words(error: Exception) -> str:
    """Return the start of a library's message, which may quote the file's bytes at length."""
    return printable(str(error)[:120])


def _check_members(path: Path) -> None:
    """Refuse an archive of very many members before its directory, which stands at the end, is parsed."""
    entries = 0
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 2**26))
        while block := stream.read(2**20):  # a mark cut in two is one of thousands
            entries += block.count(b"PK\x01\x02")
    if entries > MAX_MEMBERS:
        raise ValueError(f"{printable(path.name)} holds more than {MAX_MEMBERS:,} members: save fewer arrays a file")


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> StoredTensor:
    label = f"{printable(path.name)}, member {printable(info.filename)}"
    with archive.open(info) as stream:
        shape, dtype, order, descr = _header(stream, label)
        header_size = stream.tell()
    _check_span(label, shape, dtype, info.file_size - header_size)
    stored = info.compress_type == zipfile.ZIP_STORED
    if stored and _data_start(path, info) + info.file_size > path.stat().st_size:
        raise ValueError(f"{label} claims {info.file_size:,} bytes, more than the file has")

    def load() -> NDArray[Any]:
        if stored:
            return _map(path, dtype, shape, _data_start(path, info) + header_size, order)
        if info.file_size > MAX_INFLATED:
            raise ValueError(f"{label} inflates to {info.file_size:,} bytes: save it uncompressed (numpy.savez)")
        try:
            with zipfile.ZipFile(path) as opened:
                data = opened.read(info)
        except _DAMAGE as error:
            raise ValueError(f"{label} is damaged: {_words(error)}") from None
        if len(data) != info.file_size:
            raise ValueError(f"{label} inflates to {len(data):,} bytes where {info.file_size:,} are declared")
        return np.ndarray(shape, _as_stored(dtype), buffer=data, offset=header_size, order=order)

    name = info.filename.removesuffix(".npy")
    return StoredTensor(name, shape, _number_type(dtype), descr, load)


def _data_start(path: Path, info: zipfile.ZipInfo) -> int:
    with path.open("rb") as stream:
        stream.seek(info.header_offset)
        local = stream.read(30)
    # the lengths of name and extra field may differ between the local header and the directory
    return info.header_offset + 30 + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")


def _header(stream: IO[bytes], label: str) -> tuple[tuple[int, ...], np.dtype[Any], Any, str]:
    start = stream.read(8)
    if start[:6] != MAGIC:
        kind = "a pickle, which could run code" if start[:1] == b"\x80" else "not a NumPy array"
        raise ValueError(f"{label} is {kind}: arrays are needed")
    width = _LENGTH_BYTES.get(start[6] if len(start) == 8 else 0)
    if width is None:
        raise ValueError(f"{label} has an unknown .npy version")
    length = int.from_bytes(stream.read(width), "little")
    if length > MAX_HEADER:
        raise ValueError(f"{label} has a header of {length:,} bytes: at most {MAX_HEADER:,} are read")
    text = stream.read(length)
    try:
        header = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin1").strip())
        shape, descr, fortran = header["shape"], header["descr"], header["fortran_order"]
        dtype = np.dtype(descr)
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        raise ValueError(f"{label} has a .npy header that cannot be read") from None
    if len(text) != length or not is_shape(shape) or not isinstance(fortran, bool):
        raise ValueError(f"{label} has a .npy header that makes no sense: shape {printable(str(shape)[:60])}")
    if dtype.hasobject:
        raise ValueError(f"{label} is an object array: it holds a pickle, which could run code, and is not read")
    return tuple(shape), dtype, "F" if fortran else "C", printable(str(descr)[:40])


def _check_span(label: str, shape: tuple[int, ...], dtype: np.dtype[Any], present: int) -> None:
    declared = math.prod(shape) * dtype.itemsize
    if declared != present:
        raise ValueError(f"{label} declares shape {shape}, {declared:,} bytes of data, but holds {present:,}")


def _as_stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        import ml_dtypes

        stored: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return stored  # numpy.save writes bfloat16 as two anonymous bytes
    return dtype


def _number_type(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    stored = _as_stored(dtype)
    return stored if stored.kind in "biuf" or stored is not dtype else None


def _map(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, order: str) -> NDArray[Any]:
    return mapped(path, _as_stored(dtype), shape, offset, order)
