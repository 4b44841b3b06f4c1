"""What an audit noticed about a function, with the line of its source that fits."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.audit.catalogue import CATALOGUE

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
        The line of the source that does it, where the source can be read, else what such a line looks like.
    fix : str
    """

    code: str
    severity: str
    title: str
    evidence: str
    likely_line: str
    fix: str


def finding(code: str, evidence: str, function: Callable[..., Any], *, title: str | None = None) -> Finding:
    """Return a finding with the catalogue's words, and the line of the function's source that fits the fault."""
    fault = CATALOGUE[code]
    line = source_line(function, fault.pattern) or f"probably like: {fault.typical}"
    return Finding(code, fault.severity, title or fault.title, evidence, line, fault.fix)


def source_line(function: Callable[..., Any], pattern: str) -> str | None:
    """Return "file:line: code" of the first statement line that matches, or None; the docstring is skipped."""
    target = getattr(function, "func", getattr(function, "forward", function))
    try:
        lines, start = inspect.getsourcelines(target)
        name = Path(inspect.getsourcefile(target) or "").name
    except (OSError, TypeError):
        return None
    for number, line in enumerate(lines):
        code = line.split("#")[0].strip()
        if number not in _documentation(lines) and re.search(pattern, code, re.IGNORECASE):
            return f"{name}:{start + number}: {code[:100]}"
    return None


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
