"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """
    Write `content` (text as UTF-8) beside the file that `path` names, then put it in its place, with its permissions.

    A failure leaves what was there before. A link keeps pointing where it did, and a device or pipe is written to.
    """
    target, data = _target(path), content.encode("utf-8") if isinstance(content, str) else content
    if _is_device(target):
        with target.open("wb") as file:
            file.write(data)
        return
    handle, temporary = _temporary_beside(target)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, stat.S_IMODE(target.stat().st_mode) if target.exists() else _new_file_mode())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_writable(argument: str, path: str | os.PathLike[str]) -> None:
    """Refuse, before a long computation, a place that `write_whole` cannot write to; nothing is left there."""
    target = _target(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if _is_device(target):
            if not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        handle, temporary = _temporary_beside(target)
        os.close(handle)
        Path(temporary).unlink()
    except OSError as error:
        raise type(error)(f"{argument}: cannot write {os.fspath(path)}: {error.strerror or error}") from None


def _target(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.realpath(path))


def _is_device(target: Path) -> bool:
    return target.exists() and not target.is_file() and not target.is_dir()


def _temporary_beside(target: Path) -> tuple[int, str]:
    return tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")


def _new_file_mode() -> int:
    """Return the mode that a new file gets, which `mkstemp` narrows."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
