"""Opens a tensor file by what it contains; pickles are refused with the line that converts them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.audit.files.numpy_files import MAGIC, read_npy, read_npz
from analysis.audit.files.safetensors_files import read_safetensors
from analysis.audit.files.stored import StoredTensor, pickle_refusal
from analysis.vocabulary.text import printable

PICKLED = {".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle"}


def read_tensors(paths: Sequence[str | Path]) -> dict[str, StoredTensor]:
    """
    Return the tensors of one or several .npz, .npy or .safetensors files by name, without reading their data.

    A .npy file's tensor takes the file's name (``layer0.q.npy`` is ``layer0.q``); the shards of a model add up.

    Raises
    ------
    OSError
        When a file cannot be opened.
    ValueError
        For an empty, damaged or hostile file, for pickles (with the line that converts them), or one name in two files.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in map(Path, paths):
        for tensor in _read(path):
            if tensor.name in tensors:
                raise ValueError(f"two of the files hold a tensor named {printable(tensor.name)}")
            tensors[tensor.name] = tensor
    return tensors


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
