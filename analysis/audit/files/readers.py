"""Opens a tensor file by what it contains; pickles are refused with the line that converts them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from analysis.audit.files.numpy_files import MAGIC, read_npy, read_npz
from analysis.audit.files.safetensors_files import read_safetensors
from analysis.audit.files.stored import MAX_TENSORS, StoredTensor, pickle_refusal
from analysis.vocabulary.text import printable

PICKLED = {".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle"}


KINDS = (".safetensors", ".npz", ".npy")
INDEX = ".index.json"
MAX_INDEX = 100_000_000
MAX_NAME = 1_000


def read_tensors(paths: Sequence[str | Path]) -> dict[str, StoredTensor]:
    """
    Return the tensors of one or several .npz, .npy or .safetensors files by name, without reading their data.

    A .npy file's tensor takes the file's name (``layer0.q.npy`` is ``layer0.q``); the shards of a model add up. A
    folder stands for the files in it, and an index (``model.safetensors.index.json``) for the shards that it names.

    Raises
    ------
    OSError
        When a file cannot be opened.
    ValueError
        For an empty, damaged or hostile file, for pickles (with the line that converts them), one name in two files,
        more than 100,000 tensors, a name longer than 1,000 characters, and an index that names a file elsewhere or a
        tensor that its shards have not.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in itertools.chain.from_iterable(_files(Path(part)) for part in paths):
        for tensor in _read(path):
            if len(tensor.name) > MAX_NAME:
                raise ValueError(
                    f"{printable(path.name)} holds a tensor whose name has {len(tensor.name):,} characters, "
                    f"{printable(tensor.name[:40])}…: at most {MAX_NAME:,} are read"
                )
            if tensor.name in tensors:
                raise ValueError(f"two of the files hold a tensor named {printable(tensor.name)}")
            tensors[tensor.name] = tensor
        if len(tensors) > MAX_TENSORS:
            raise ValueError(f"the files hold more than {MAX_TENSORS:,} tensors: name fewer files")
    return tensors


def _files(path: Path) -> list[Path]:
    """Return the files that a path stands for: itself, those of a folder, or the shards of an index."""
    if path.is_dir():
        inside = sorted(child for child in path.iterdir() if child.is_file())
        indices = [child for child in inside if child.name.endswith(INDEX)]
        if len(indices) == 1:
            return _shards(indices[0])
        found = [child for child in inside if child.suffix.lower() in KINDS]
        if not found:
            pickled = [child for child in inside if child.suffix.lower() in PICKLED]
            if pickled:
                raise ValueError(pickle_refusal(pickled[0]))
            raise ValueError(f"the folder {printable(str(path))} holds no .safetensors, .npz or .npy file")
        return found
    return _shards(path) if path.name.endswith(INDEX) else [path]


def _shards(index: Path) -> list[Path]:
    label = printable(index.name)
    if index.stat().st_size > MAX_INDEX:
        raise ValueError(f"{label} has {index.stat().st_size:,} bytes: an index of at most {MAX_INDEX:,} is read")
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(places.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{label} is no index of shards: it has no weight_map of names to files") from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
            raise ValueError(f"{label} names {printable(str(name)[:80])!r}: shards are files beside the index")
    shards = [index.parent / name for name in names]
    held = {tensor.name for shard in shards for tensor in _read(shard)}
    missing = sorted(set(places) - held)
    if missing:
        raise ValueError(f"{label} names {printable(missing[0][:80])}, which none of its shards holds")
    return shards


def _read(path: Path) -> list[StoredTensor]:
    if path.suffix.lower() in PICKLED:
        raise ValueError(pickle_refusal(path))
    with path.open("rb") as stream:
        start = stream.read(6)
    if not start:
        raise ValueError(f"{printable(path.name)} is empty")
    if path.suffix.lower() == ".safetensors":
        return read_safetensors(path)
    if start == MAGIC:
        return read_npy(path)
    if start[:2] == b"PK":
        return read_npz(path)
    if start[:1] == b"\x80":
        raise ValueError(pickle_refusal(path))
    raise ValueError(f"{printable(path.name)} is no .npz, .npy or .safetensors file")
