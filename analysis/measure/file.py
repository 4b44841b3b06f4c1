"""A study as strict JSON: what is written is read back equal, and anything else is refused."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, Protocol

from analysis.vocabulary.output_file import write_whole

_FORMAT = "attnsym-study"
_VERSION = 1
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}

_NUMBERS: tuple[type, ...] = (int, float)
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, NoneType),
    "int": (int,),
    "bool": (bool,),
    "float": _NUMBERS,
    "float | None": (*_NUMBERS, NoneType),
}


class Written(Protocol):
    """What of a study is written."""

    @property
    def rows(self) -> Sequence[Any]:
        """Dataclasses of one kind."""

    @property
    def name(self) -> str:
        """Of its streams."""

    @property
    def seed(self) -> int:
        """Of its streams."""

    @property
    def versions(self) -> dict[str, str]:
        """Of the libraries."""


def study_document(study: Written) -> dict[str, Any]:
    """Return what `write_study` writes, as plain objects."""
    rows = [_record(row) for row in study.rows]
    return {
        "format": _FORMAT,
        "format_version": _VERSION,
        "name": study.name,
        "seed": study.seed,
        "versions": study.versions,
        "rows": rows,
    }


def write_study(study: Written, path: str | os.PathLike[str]) -> None:
    """Write `study` to `path`; a failure leaves what was there before, and its error names that path."""
    text = json.dumps(study_document(study), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    try:
        write_whole(path, text)
    except OSError as error:
        raise type(error)(f"cannot write {os.fspath(path)}: {error.strerror or error}") from None


def read_study(path: str | os.PathLike[str], row_type: type[Any]) -> dict[str, Any]:
    """Read a study as its arguments, rows as `row_type`; ValueError naming the file and what is wrong with it."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        return _study(document, row_type)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{os.fspath(path)} is not a study written by attnsym: {reason}") from None


def _study(document: Any, row_type: type[Any]) -> dict[str, Any]:
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"it does not say format {_FORMAT!r}")
    if document["format_version"] != _VERSION:
        raise ValueError(f"format_version is {document['format_version']!r}, this version reads {_VERSION}")
    if not isinstance(document["rows"], list):
        raise ValueError("rows is not a list")
    versions = document["versions"]
    if not isinstance(versions, dict) or not all(isinstance(value, str) for value in versions.values()):
        raise ValueError("versions is not a table of texts")
    return {
        "rows": tuple(_row(record, row_type) for record in document["rows"]),
        "name": _typed("name", document["name"], "str"),
        "seed": _typed("seed", document["seed"], "int"),
        "versions": versions,
    }


def _row(record: Any, row_type: type[Any]) -> Any:
    columns = fields(row_type)
    names = [item.name for item in columns]
    optional = {item.name for item in columns if item.default is not MISSING}
    if not isinstance(record, dict) or not set(names) - optional <= set(record) <= set(names):
        raise ValueError(f"a row must have exactly the fields {', '.join(names)}")
    values: dict[str, Any] = {}
    for item in columns:
        value = record.get(item.name, item.default)
        if item.name == "interval":
            if not isinstance(value, list) or len(value) != 2:
                raise ValueError("interval is not a pair")
            values["interval"] = tuple(_typed("interval", part, "float") for part in value)
        else:
            values[item.name] = _typed(item.name, value, str(item.type))
    return row_type(**values)


def _typed(name: str, value: Any, kind: str) -> Any:
    if "float" in kind and isinstance(value, str):
        value = _SPECIAL.get(value, value)
    fits = isinstance(value, _TYPES[kind]) and (kind == "bool" or not isinstance(value, bool))
    if not fits:
        raise ValueError(f"{name} is {value!r}, not {kind}")
    return float(value) if "float" in kind and value is not None else value


def _record(row: Any) -> dict[str, Any]:
    """Return the fields of a row; those that have a default, only where they differ from it."""
    values = {item.name: getattr(row, item.name) for item in fields(row) if getattr(row, item.name) != item.default}
    return {name: _encoded(value) for name, value in values.items()}


def _encoded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_encoded(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _refuse_constant(token: str) -> Any:
    raise ValueError(f"{token} is not JSON")
