"""A callback of transformers' `Trainer` that watches the model while it trains."""

from __future__ import annotations

import contextlib
from typing import Any

from transformers import TrainerCallback

from analysis.audit.live.watching import Watcher, watch


class WatchCallback(TrainerCallback):  # type: ignore[misc]  # transformers is optional, and Any where it is missing
    """
    Watches the attention of a `transformers.Trainer`'s model: ``Trainer(..., callbacks=[WatchCallback(every=100)])``.

    Parameters
    ----------
    **options
        Those of `watch`: ``every``, ``history``, ``alert``, ``on_row``. Steps are forward passes of the model: micro-
        batches, and batches of an evaluation in between, count one each.

    Attributes
    ----------
    watcher : Watcher or None
        Of the latest training run; its rows and ``unseen`` stay when training ends.
    """

    def __init__(self, **options: Any) -> None:
        """Keep the options until training begins."""
        self.options = options
        self.watcher: Watcher | None = None
        self._open = contextlib.ExitStack()

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        """Start to watch; a run that broke off before is closed."""
        self._open.close()
        self.watcher = self._open.enter_context(watch(model, **self.options))

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Close the last step and the history."""
        self._open.close()

    def close(self) -> None:
        """Stop to watch where training broke off: `Trainer` tells no callback of an exception."""
        self._open.close()
