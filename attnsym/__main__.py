"""
The command `attnsym`, which is also `python -m attnsym`.

The only file here that reaches for `analysis`. The command lives there, but the name is common, and a folder or file of
that name in the working directory or on PYTHONPATH would be found first: so the command starts here, where it can see
which `analysis` was installed beside it.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def prefer_own_analysis() -> None:
    """
    Move folders that hold another `analysis` behind the one that holds ours, on the `sys.path` of this process.

    They stay there, since they may hold the function to audit. Processes that a study starts inherit the order.
    """
    home = Path(__file__).absolute().parent.parent
    before: list[str] = []
    rivals: list[str] = []
    after = [*sys.path]
    while after:
        folder = after.pop(0)
        found = PathFinder.find_spec("analysis", [folder])
        if found is None or found.origin is None:  # nothing, or a folder without __init__.py, which waits for a package
            before.append(folder)
        elif Path(found.origin).absolute() == home / "analysis" / "__init__.py":
            break
        else:
            rivals.append(folder)
    if rivals:
        sys.path[:] = [*before, str(home), *rivals, *after]


def main() -> int:
    """Run the command line on `sys.argv` and return its exit code."""
    prefer_own_analysis()
    try:
        return int(importlib.import_module("analysis.cli").main())
    except KeyboardInterrupt:  # before the command had loaded; later it answers for itself
        print("attnsym: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
