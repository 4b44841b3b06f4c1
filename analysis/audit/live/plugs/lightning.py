"""A callback of Lightning's `Trainer` that watches the module while it trains."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback  # the older name of the same library, with a Callback class of its own
else:
    from lightning.pytorch import Callback

from analysis.audit.live.watching import Watcher, watch


class WatchCallback(Callback):  # type: ignore[misc]  # lightning is optional, and Any where it is missing
    """
    Watches the attention of a `LightningModule`: ``Trainer(..., callbacks=[WatchCallback(every=100)])``.

    A pass is one training batch, from its start to its backward pass, whatever `training_step` calls. Validation is
    not watched.

    Parameters
    ----------
    **options
        Those of `watch`: ``every``, ``history``, ``alert``, ``on_row``.

    Attributes
    ----------
    watcher : Watcher or None
        Of the latest training run; its rows and ``unseen`` stay when training ends.
    """

    def __init__(self, **options: Any) -> None:
        """Keep the options until training begins."""
        super().__init__()
        self.options = options
        self.watcher: Watcher | None = None
        self._open = contextlib.ExitStack()
        self._batch = contextlib.ExitStack()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start to watch."""
        self._close()
        self.watcher = self._open.enter_context(watch(pl_module, **self.options))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Open a pass."""
        if self.watcher is not None:
            self._batch.enter_context(self.watcher.one_pass())

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Close the pass: what follows is the backward pass."""
        self._batch.close()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Close the pass of a batch without a backward pass."""
        self._batch.close()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Close the last step and the history."""
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close both where training breaks off."""
        self._close()

    def _close(self) -> None:
        self._batch.close()
        self._open.close()
