"""Imports the function that a user names on the command line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from analysis.vocabulary.text import printable


def load_callable(target: str) -> Callable[..., Any]:
    """
    Return the object named by ``package.module:function`` (dots after the colon reach into classes).

    The module is imported, which runs its code, with the current directory first on the path: name only modules that
    you would run.

    Raises
    ------
    ValueError
        When the name has not that form, the import fails, or what is found cannot be called.
    """
    module_name, colon, attributes = target.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *attributes.split("."))):
        raise ValueError(f"a callable is named package.module:function: got {target!r}")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a stranger's module may raise anything while it is imported
        raise ValueError(f"importing {module_name} failed: {type(error).__name__}: {printable(str(error))}") from None
    finally:
        sys.path.remove(os.getcwd())
    for part in attributes.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ValueError(f"{module_name} has no {attributes}") from None
    if not callable(found):
        raise ValueError(f"{target} is a {type(found).__name__}, not a function")
    function: Callable[..., Any] = found
    return function
