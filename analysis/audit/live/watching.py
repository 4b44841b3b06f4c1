"""Watching a live torch model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.audit.live.history import HistoryFile, WatchRow

if TYPE_CHECKING:
    from analysis.audit.live.torch_calls import Capture


class Watcher:
    """
    What `watch` gives inside its block.

    Attributes
    ----------
    rows : list of WatchRow
        All finished steps; only the latest where a history file takes them.
    """

    def __init__(self, capture: Capture, history: HistoryFile | None) -> None:
        """Join a capture with the file that its rows go to."""
        self._capture, self._history = capture, history
        self._rows: list[WatchRow] = []

    @property
    def rows(self) -> list[WatchRow]:
        """The rows of finished steps: a step ends, with its backward pass, when the next begins or the block ends."""
        self._collect()
        return self._rows

    @property
    def unseen(self) -> tuple[str, ...]:
        """Sentences on attention that was not seen: built by hand, compiled or traced, or of an unreadable form."""
        capture = self._capture
        seen = {row.module for row in self._rows} | {record.module for record in capture.records + capture.finished}
        sentences = [f"{name}: not read ({why})." for name, why in capture.reasons.items()]
        sentences += [
            f"{name}: attention by hand (a softmax over scores, no scaled_dot_product_attention) is not seen."
            for name in sorted(capture.softmax_in - seen)
        ]
        reported = set(capture.reasons) | capture.softmax_in | seen
        for module in capture.model.modules():
            name, kind = capture.names[id(module)], type(module).__name__
            inside = any(other == name or other.startswith(name + ".") for other in reported)
            if "attention" in kind.lower() and not inside and capture.step >= 0:
                sentences.append(f"{name} ({kind}): no attention call was seen.")
        return tuple(sentences)

    def _collect(self, *, last: bool = False) -> None:
        rows = self._capture.take(last=last)
        if self._history is not None and rows:
            self._history.write(rows)
            self._rows = rows
        else:
            self._rows += rows


@contextlib.contextmanager
def watch(model: Any, *, every: int = 1, history: str | Path | None = None) -> Iterator[Watcher]:
    """
    Watch the attention of a torch model while it runs; its output is unchanged to the bit.

    Parameters
    ----------
    model : torch.nn.Module
    every : int
        Take statistics at forward passes 0, every, 2·every, ….
    history : path, optional
        A .csv or .jsonl file that gets a row per step, module and head as steps finish; it is replaced.

    Yields
    ------
    Watcher
        Its ``rows`` and, in ``unseen``, what could not be seen.

    Raises
    ------
    ImportError
        Without torch (the extra ``torch``).
    ValueError
        For something that is no module, an ``every`` below 1, or a history of another kind.
    OSError
        When the history cannot be written.

    Notes
    -----
    Seen: `torch.nn.functional.scaled_dot_product_attention` however it was imported, `nn.MultiheadAttention` and
    `nn.TransformerEncoderLayer` on every path. Where those use a fused kernel or return weights, their attention is
    computed a second time without gradient, so that rows have no gradient norms. Not seen: attention by hand, flex
    attention, traced models. Compiled modules run eagerly inside the block: their output is then that of eager code.

    A row's statistics are computed in float32 (float64 for float64 inputs) from the call's own query, key, mask and
    scale, tile by tile. One watch at a time; a pass is one call of `model`.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(f"every must be a whole number of at least 1: got {every!r}")
    try:
        from torch import nn

        from analysis.audit.live.torch_calls import Capture
    except ImportError:
        raise ImportError("watch needs torch: pip install 'attnsym[torch]'") from None
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module: got {type(model).__name__}")
    capture = Capture(model, every)
    file = None if history is None else HistoryFile(history)
    watcher = Watcher(capture, file)
    try:
        with capture.installed():
            if file is not None:
                capture.on_finish = watcher._collect
            yield watcher
    finally:
        watcher._collect(last=True)
        if file is not None:
            file.close()
