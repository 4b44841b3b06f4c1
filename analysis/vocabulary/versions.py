"""What the bits of a result depend on beside its settings."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def library_versions() -> dict[str, str]:
    """Return the versions of attnsym, NumPy and SciPy and the kind of machine; another of them may draw other bits."""
    found = {"machine": platform.machine()}
    for package in ("attnsym", "numpy", "scipy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a source tree that is not installed
            from attnsym import __version__

            found[package] = __version__
    return found
