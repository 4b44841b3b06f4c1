"""Audit of tensors in files, memory-mapped and fetched a layer at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from analysis.audit.files.naming import LayerNames, find_layers
from analysis.audit.files.readers import read_tensors
from analysis.audit.files.stored import StoredTensor
from analysis.audit.tensors.arrays import LayerArrays, as_layer
from analysis.audit.tensors.audit import audit_layers
from analysis.audit.tensors.layers import Layer
from analysis.audit.tensors.result import TensorAudit
from analysis.audit.tensors.rows import HeadAudit
from analysis.audit.tensors.visibility import Rules
from analysis.vocabulary.scale import ScaleLike, resolve_scale
from analysis.vocabulary.text import printable
from attnsym.masks import Window


def audit_files(
    paths: str | Path | Sequence[str | Path],
    *,
    query: str | None = None,
    key: str | None = None,
    value: str | None = None,
    padding: str | None = None,
    is_causal: bool = False,
    scale: ScaleLike = None,
    softcap: float | None = None,
    window: Window = None,
    layout: str = "bhsd",
    num_heads: int | None = None,
) -> TensorAudit:
    """
    Audit the queries and keys in .npz, .npy or .safetensors files.

    Parameters
    ----------
    paths : path or sequence of path
        One file or several; several add up (shards, or ``q.npy`` and ``k.npy``). A folder stands for the files in it,
        the index of a sharded checkpoint (``….index.json``) for its shards.
    query, key, value, padding : str, optional
        Names of the tensors where they are not ``layer0.q``, ``layer0.k``, ``attention_mask`` and the like; one ``*``
        stands for the layer.
    is_causal, scale, softcap, window, layout, num_heads
        As in `audit_tensors`. Fewer key heads than query heads are read as grouped heads, and a note says so.

    Returns
    -------
    TensorAudit

    Raises
    ------
    OSError
        When a file cannot be opened.
    ValueError
        For files or names that cannot be read, pickles, and tensors that do not fit.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    tensors = read_tensors(paths)
    layers = find_layers(tensors, query=query, key=key, value=value, padding=padding)
    audit = audit_layers(
        [Layer(names.layer, _Fetch(names, tensors, layout, num_heads)) for names in layers],
        rules=Rules(is_causal=is_causal, window=window, softcap=softcap),
        scale=resolve_scale(scale),
        source=", ".join(Path(path).name or str(path) for path in paths),
        notes=_notes(layers, tensors, layout, num_heads),
    )
    return replace(audit, notes=(*audit.notes, *_grouped(audit.heads)))


def audit_example() -> TensorAudit:
    """Audit the queries and keys that come with the package: all-MiniLM-L6-v2 on one sentence of 16 tokens."""
    with as_file(files("analysis") / "data" / "minilm_example.npz") as path:
        return audit_files([path])


class _Fetch:
    """Reads one layer of a file; a class and not a closure, since loops bind late."""

    def __init__(self, names: LayerNames, tensors: dict[str, StoredTensor], layout: str, num_heads: int | None) -> None:
        self.names, self.tensors, self.layout, self.num_heads = names, tensors, layout, num_heads

    def __call__(self) -> LayerArrays:
        names = self.names
        q, k, v, mask = (self._array(n) for n in (names.query, names.key, names.value, names.padding))
        return as_layer(names.layer, q, k, v, mask, layout=self.layout, enable_gqa=True, num_heads=self.num_heads)

    def _array(self, name: str | None) -> Any:
        return None if name is None else self.tensors[name].array()


def _notes(
    layers: Sequence[LayerNames], tensors: dict[str, StoredTensor], layout: str, num_heads: int | None
) -> list[str]:
    first = layers[0]
    q, k = tensors[first.query], tensors[first.key]
    form = f"(batch, length, {num_heads} heads·d_k)" if num_heads is not None and len(q.shape) < 4 else layout
    shape = f"queries {q.shape} and keys {k.shape} read as {form}, {q.stored_as}"
    notes = [f"{len(layers)} layers; {printable(first.query)}: {shape}."]
    padding = sorted({names.padding for names in layers if names.padding})
    notes.append(
        f"Padding from {', '.join(map(printable, padding))}." if padding else "No padding mask: every token counts."
    )
    return notes


def _grouped(heads: Sequence[HeadAudit]) -> list[str]:
    """Return the note that a file's heads were read as grouped."""
    count = len({(head.layer, head.key_head) for head in heads})
    if count == len(heads) or not heads:
        return []
    first = [head for head in heads if head.layer == heads[0].layer]
    key_heads = len({head.key_head for head in first})
    return [f"Grouped heads: {len(first)} query heads share {key_heads} key heads in blocks."]
