"""Where the command writes: terminals, files and pipes, in any encoding, whether or not anybody still reads."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

from analysis.vocabulary.text import spelled


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(spelled(character) for character in error.object[error.start : error.end]), error.end


codecs.register_error("attnsym-spelled", _spell)


class Output:
    """
    A text stream whose reader may leave: what is written after that goes nowhere, and the command goes on.

    Any other failure to write, as on a full disk, raises OSError where `results` are written. Where the failure would
    be told, there is nobody left to tell.
    """

    def __init__(self, stream: Any, *, results: bool) -> None:
        self._stream = stream
        self._results = results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write `text` and return its length."""
        with self._watched():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write out the buffer."""
        with self._watched():
            self._stream.flush()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._discard()
        except OSError as error:
            self._discard()
            if self._results:
                raise OSError(f"standard output cannot be written: {error.strerror}") from None

    def _discard(self) -> None:
        """Send what is still in the buffer, and all that follows, nowhere: else Python fails on it again as it ends."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def safe_streams() -> Iterator[None]:
    """
    Make stdout and stderr fit for the command, and put them back.

    A character that the encoding lacks is spelled out, where it would end the command after the work is done. A pipe
    that closes early is no failure: the exit code stays that of the verdict.
    """
    with ExitStack() as stack:
        for stream, redirect in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
            if stream is None:  # closed by the caller
                target: Any = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            else:
                stack.enter_context(_spelling(stream))
                target = Output(stream, results=redirect is redirect_stdout)
            stack.enter_context(redirect(target))
        yield


@contextmanager
def _spelling(stream: Any) -> Iterator[None]:
    errors = getattr(stream, "errors", None)
    if errors is None or not hasattr(stream, "reconfigure"):
        yield
        return
    stream.reconfigure(errors="attnsym-spelled")
    try:
        yield
    finally:
        with suppress(OSError):
            stream.reconfigure(errors=errors)
