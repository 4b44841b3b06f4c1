"""Progress with rate and time left, on a terminal or in a notebook; nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from analysis.vocabulary import numbers

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task
    from rich.text import Text


@contextmanager
def progress_bar(
    name: str, total: int, *, shown: bool, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """
    Give a function that hears how many replicates are done.

    The bar goes to stderr, so that a redirected stdout stays clean, and only where somebody watches it.
    """
    if not isinstance(shown, bool | np.bool_):
        raise ValueError(f"progress must be True or False: got {numbers.shown(shown)}")
    if not shown:
        yield _ignore
        return
    from rich.console import Console

    console = console or Console(stderr=not _in_notebook())
    if not (console.is_terminal or console.is_jupyter):
        yield _ignore
        return
    with _bar(console) as bar:
        task = bar.add_task(name, total=total)
        yield lambda replicates: bar.advance(task, replicates)


def _ignore(replicates: int) -> None:
    """Nobody watches."""


def _in_notebook() -> bool:
    kernel = sys.modules.get("ipykernel")
    return kernel is not None


def _bar(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Replicates per second."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} replicates/s" if task.speed else "")

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        Rate(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
