"""What an audit noticed about a function, with the line of its source that fits."""

from __future__ import annotations

import ast
import inspect
import re
import sysconfig
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.audit.functions.catalogue.everything import CATALOGUE

_LAMBDA = re.compile(r"lambda[^:]*:")  # the names of arguments say nothing of what is done with them
SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """
    One thing that the audit noticed.

    Attributes
    ----------
    code : str
        A stable name, such as "softmax-axis".
    severity : {"error", "warning", "note"}
        error: wrong numbers. warning: wrong for some inputs, or suspicious. note: a variant or a limit, named only.
    title : str
        One sentence.
    evidence : str
        The numbers that show it.
    likely_line : str
        The line of the source that fits; empty where none does, or where the source is an installed package's.
    typical : str
        What such a line looks like elsewhere; may be empty.
    fix : str
    """

    code: str
    severity: str
    title: str
    evidence: str
    likely_line: str
    typical: str
    fix: str


def finding(
    code: str, evidence: str, function: Callable[..., Any], *, title: str | None = None, severity: str | None = None
) -> Finding:
    """Return a finding with the catalogue's words, and the line of the function's source that fits the fault."""
    fault = CATALOGUE[code]
    line = source_line(function, fault.pattern) or ""
    return Finding(code, severity or fault.severity, title or fault.title, evidence, line, fault.typical, fault.fix)


def source_line(function: Callable[..., Any], pattern: str) -> str | None:
    """
    Return "file:line: code" of the first statement line that matches, or None; the docstring is skipped.

    The source of an installed package is not read: a line of it that happens to match says nothing of the user's.
    """
    try:
        target = getattr(function, "func", getattr(function, "forward", function))
        lines, start = inspect.getsourcelines(target)
        path = Path(inspect.getsourcefile(target) or "")
    except Exception:  # a stranger's object may raise anything when it is looked at
        return None
    if _installed(path):
        return None
    for number, line in enumerate(lines):
        code = line.split("#")[0].strip()
        if number not in _documentation(lines) and re.search(pattern, _LAMBDA.sub("", code), re.IGNORECASE):
            return f"{path.name}:{start + number}: {code[:100]}"
    return None


def _installed(path: Path) -> bool:
    """Tell whether a source file belongs to an installed package or to Python itself."""
    library = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    whole = path.resolve()
    return bool({"site-packages", "dist-packages"} & set(whole.parts)) or any(map(whole.is_relative_to, library))


def _documentation(lines: list[str]) -> set[int]:
    """Return the numbers of the lines of a function's signature and docstring."""
    try:
        node = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (SyntaxError, IndexError):
        return set()
    if not isinstance(node, ast.FunctionDef):
        return set()
    first = node.body[1] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body[0]
    return set(range(first.lineno - 1))
