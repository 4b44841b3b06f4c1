"""Which files are the steps of one run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.audit.files.readers import INDEX, KINDS, PICKLED, read_tensors
from analysis.vocabulary.text import printable

MOST_NAMED = 6


@dataclass(frozen=True)
class Run:
    """The steps of a run, and what lies beside them and is none."""

    steps: dict[int, Path]
    beside: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, in words."""
        if not self.beside:
            return ()
        named = ", ".join(printable(name) for name in self.beside[:MOST_NAMED])
        return (f"No step of the run: {named}{', …' if len(self.beside) > MOST_NAMED else ''}.",)


def run_of(paths: Sequence[Path]) -> Run | None:
    """
    Return the steps of a run, or None where the files are one whole or parts of one.

    Steps are two files or folders or more, or those in one folder, whose names differ in one number. Files are steps
    only where they hold tensors of the same names (parts of a whole hold different ones); folders and the JSON of
    audits are never parts.

    Raises
    ------
    ValueError
        For names that differ in several numbers, and a folder of folders of which fewer than two tell a step.
    """
    if len(paths) == 1 and paths[0].is_dir():
        return _inside(paths[0])
    steps = _steps(paths)
    return None if steps is None else Run(steps)


def _steps(paths: Sequence[Path]) -> dict[int, Path] | None:
    """Return steps by their number, None for one whole or its parts; ValueError where several numbers differ."""
    stored = all(path.suffix == ".json" and not path.name.endswith(INDEX) for path in paths)  # audits, by --json
    if not (stored or all(path.is_dir() for path in paths) or _alike(paths)):
        return None
    steps = steps_of(paths)
    if steps is None and len(paths) > 1 and len({_template(path) for path in paths}) == 1:
        raise ValueError(f"{_named(paths)} differ in more than one number: name the files of one run, told by its step")
    return steps


def _inside(folder: Path) -> Run | None:
    """Return the run in a folder: of folders that hold tensors, else of files."""
    children = sorted(folder.iterdir())
    folders = [child for child in children if _holds_tensors(child)]
    files = [child for child in children if child.suffix.lower() in KINDS and child.is_file()]
    for kind in (folders, files):
        groups: dict[str, list[Path]] = {}
        for child in kind:
            groups.setdefault(_template(child), []).append(child)
        for members in sorted(groups.values(), key=len, reverse=True):
            steps = _steps(members)
            if steps is not None:
                return Run(steps, tuple(c.name for c in children if c not in members and _beside(c, members[0])))
    if not folders or files:
        return None
    if len(folders) == 1:
        raise ValueError(
            f"{printable(folder.name)} holds one checkpoint, {printable(folders[0].name)}, and a run needs two: audit "
            "that folder by itself"
        )
    raise ValueError(
        f"the names in {printable(folder.name)} tell no step ({_named(folders)}): they must differ in one number, as "
        "checkpoint-1000 and checkpoint-2000 do"
    )


def _beside(child: Path, step: Path) -> bool:
    """Tell whether something beside the steps is worth telling: it holds tensors, or is a step without any yet."""
    unwritten = child.is_dir() and _template(child) == _template(step)
    return unwritten or child.suffix.lower() in KINDS or _holds_tensors(child)


def _holds_tensors(child: Path) -> bool:
    return child.is_dir() and any(inner.suffix.lower() in (*KINDS, *PICKLED) for inner in child.iterdir())


def _template(path: Path) -> str:
    return re.sub(r"[0-9]+", "0", path.name)


def _alike(paths: Sequence[Path]) -> bool:
    """Tell whether two of the files that can be read hold a tensor of the same name; the others are told of later."""
    seen: set[str] = set()
    for path in paths:
        try:
            names = set(read_tensors([path]))
        except (OSError, ValueError):
            continue
        if seen & names:
            return True
        seen |= names
    return False


def _named(paths: Sequence[Path]) -> str:
    named = ", ".join(printable(path.name) for path in sorted(paths)[:MOST_NAMED])
    return named + (", …" if len(paths) > MOST_NAMED else "")


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
