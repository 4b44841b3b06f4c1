"""Which files are the steps of one run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from analysis.audit.files.readers import INDEX, KINDS, read_tensors


def run_of(paths: Sequence[Path]) -> dict[int, Path] | None:
    """
    Return the steps of a run, or None where the files are parts of one whole.

    Steps are two files or folders or more, or those in one folder, whose names differ in one number and which hold
    tensors of the same names; parts hold different ones.
    """
    steps = steps_of(_inside(paths[0]) if len(paths) == 1 and paths[0].is_dir() else paths)
    if steps is None:
        return None
    try:
        held = [set(read_tensors([path])) for path in steps.values()]
    except (OSError, ValueError):
        return None  # whoever reads them next says what is wrong
    return steps if all(names == held[0] for names in held) else None


def _inside(folder: Path) -> list[Path]:
    children = list(folder.iterdir())
    if any(child.name.endswith(INDEX) for child in children):
        return []
    files = [child for child in children if child.suffix.lower() in KINDS and child.is_file()]
    return files or [child for child in children if child.is_dir()]


def steps_of(paths: Sequence[Path]) -> dict[int, Path] | None:
    """Return files by the one number in which their names differ, or None where they are not steps of one run."""
    parts = [re.split(r"([0-9]+)", path.name) for path in paths]
    if len(paths) < 2 or len({len(part) for part in parts}) > 1:
        return None
    varying = [i for i in range(len(parts[0])) if len({part[i] for part in parts}) > 1]
    if len(varying) != 1 or varying[0] % 2 == 0:
        return None
    steps = {int(part[varying[0]][:18]): path for part, path in zip(parts, paths, strict=True)}
    return steps if len(steps) == len(paths) else None
