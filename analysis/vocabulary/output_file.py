"""Text files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(target: Path, text: str, mode: int) -> None:
    """Write `text` beside `target`, then put it in its place; a failure leaves what was there before."""
    handle, temporary = temporary_beside(target)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def temporary_beside(target: Path) -> tuple[int, str]:
    """Return an open handle and the name of a new file in the folder of `target`."""
    return tempfile.mkstemp(dir=target.absolute().parent, prefix=f".{target.name}.")


def new_file_mode() -> int:
    """Return the mode that a new file gets, which `mkstemp` narrows."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
