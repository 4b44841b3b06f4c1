"""Watching a live torch model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.audit.live.alerts import Alarm
from analysis.audit.live.history import HistoryFile, WatchRow
from analysis.audit.live.maxima import HeadMaximum

if TYPE_CHECKING:
    from analysis.audit.live.torch_calls import Capture


_NEVER_RAN = (
    "The model was not called inside the block: only what goes through model(...) is watched; a trainer's step, a "
    "method of a part, a copy of the model, an export, or code compiled inside the block goes around it. Steps and "
    "methods are watched inside `with watcher.one_pass():`."
)
_NOTHING_SEEN = (
    "The model ran {} times and no attention was seen: scripted or exported code, custom kernels and a softmax made of "
    "exp and sum leave nothing to read."
)


class Watcher:
    """
    What `watch` gives inside its block.

    Attributes
    ----------
    rows : list of WatchRow
        All finished steps; only the latest where a history file takes them.
    """

    def __init__(
        self, capture: Capture, history: HistoryFile | None, on_row: Callable[[WatchRow], object] | None
    ) -> None:
        """Join a capture with the file and the function that its rows go to."""
        self._capture, self._history, self._on_row = capture, history, on_row
        self._rows: list[WatchRow] = []
        self._seen: set[str] = set()

    @property
    def rows(self) -> list[WatchRow]:
        """The rows of finished steps: a step ends, with its backward pass, when the next begins or the block ends."""
        self._collect()
        return self._rows

    @property
    def unseen(self) -> tuple[str, ...]:
        """Sentences on attention that was not seen, and why; never empty where there are no rows."""
        capture = self._capture
        sentences = [f"{name}: not read ({why})." for name, why in capture.reasons.items()]
        sentences += [f"{name}: {why}." for name, why in capture.notes.items()]
        if capture.step < 0:
            return tuple(sentences) or (_NEVER_RAN,)
        seen = self._seen | {record.module for record in capture.records + capture.finished}
        reported = set(capture.reasons) | seen
        for module in capture.model.modules():
            name, kind = capture.names[id(module)], type(module).__name__
            inside = any(other == name or other.startswith(name + ".") for other in reported)
            if inside or not name:
                continue
            if "script" in kind.lower() or kind == "TopLevelTracedModule":
                sentences.append(f"{name}: scripted or traced code is not seen.")
            elif "attention" in kind.lower():
                sentences.append(f"{name} ({kind}): no attention call was seen.")
        return tuple(sentences) if sentences or seen else (_NOTHING_SEEN.format(capture.step + 1),)

    def take_maxima(self, group: Any = None) -> tuple[HeadMaximum, ...]:
        """
        Return the largest scores of every head since the last time, and start anew.

        Call it once per optimiser step: its maxima are those of all micro-batches of it. Where torch.distributed runs
        they are reduced by maximum over its processes, all of which must make this call (`group`: some of them only;
        under tensor parallelism the data-parallel ones, since elsewhere a head's number means another head). With
        ``every_score=False`` no single score is seen: the maxima are NaN.
        """
        return self._capture.maxima.take(group)

    @contextlib.contextmanager
    def one_pass(self) -> Iterator[None]:
        """Count what runs inside as one pass: for a step, or a method, that goes around ``model(...)``."""
        self._capture.begin_pass()
        try:
            yield
        finally:
            self._capture.end_pass()

    def _collect(self, *, last: bool = False) -> None:
        rows = self._capture.take(last=last)
        self._seen |= {row.module for row in rows}
        if self._on_row is not None:
            try:
                for row in rows:
                    self._on_row(row)
            except Exception as error:  # a tracker that fails is no reason for the run to
                self._capture.notes["on_row"] = f"raised {type(error).__name__}: {' '.join(str(error).split())[:120]}"
        if self._history is not None and rows:
            self._history.write(rows)
            self._rows = rows
        else:
            self._rows += rows


@contextlib.contextmanager
def watch(
    model: Any,
    *,
    every: int = 1,
    history: str | Path | None = None,
    alert: Mapping[str, Any] | None = None,
    on_row: Callable[[WatchRow], object] | None = None,
    every_score: bool = True,
) -> Iterator[Watcher]:
    """
    Watch the attention of a torch model while it runs; its output is unchanged to the bit.

    Parameters
    ----------
    model : torch.nn.Module
    every : int
        Take statistics at forward passes 0, every, 2·every, ….
    history : path, optional
        A .csv or .jsonl file that gets a row per step, module and head as steps finish; it is replaced.
    alert : mapping, optional
        Thresholds of "largest_score", "largest_signed_score", "within_row_variance", "dead_row_fraction",
        "first_key_share", "sink_share", "score_bound" (from above) and "entropy_fraction" (from below), looked at when
        a watched pass ends, before its backward pass. Once per head and quantity an `AttentionWarning` says which head,
        by how much and why; ``"action": "raise"`` raises `AttentionAlert` instead, and a function there is called with
        the `Alert`.
    on_row : callable, optional
        Called with each `WatchRow` as its step finishes, backward pass included: for a tracker's log. What it raises is
        told in ``unseen``.
    every_score : bool
        False reads calls of scaled_dot_product_attention from one more fused call, at its memory and without n² scores:
        entropy, log-sum-exp, variance within rows, norms and the bound; what needs every score (the largest ones, dead
        rows) is NaN, and no alert can be set on it. Calls whose mask differs from query to query are read in full,
        which ``unseen`` tells.

    Yields
    ------
    Watcher
        Its ``rows`` and, in ``unseen``, what could not be seen.

    Raises
    ------
    ImportError
        Without torch (the extra ``torch``).
    ValueError
        For something that is no module, an ``every`` below 1, a history of another kind, or an alert that cannot be.
    AttentionAlert
        From a pass beyond a threshold, where the alert's action is "raise".
    OSError
        When the history cannot be written.

    Notes
    -----
    Seen: `torch.nn.functional.scaled_dot_product_attention` however it was imported, `nn.MultiheadAttention` and
    `nn.TransformerEncoderLayer` on every path, and attention built by hand: a softmax over the last of three axes or
    more whose weights are then multiplied by values. Its argument is the score matrix, with whatever soft-cap, bias or
    sink the model gave it. Where the modules of `nn` use a fused kernel or return weights, their attention is computed
    a second time without gradient, so that rows have no gradient norms. Not seen, and told in `unseen`: flex attention,
    scripted or exported models, transforms of torch.func, fake tensors.

    Watched passes run eagerly where the model is compiled: their output is then that of eager code. Passes between them
    keep their compiled path. Under autocast the statistics are those of the type in which the product runs. Of several
    processes each writes a history of its own, and `read_history` reads them all. Nothing that goes wrong in here is
    raised into the model.

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
    capture = Capture(model, every, every_score=every_score)
    if alert is not None:
        capture.on_pass = Alarm(alert, every_score=every_score).see
    file = None if history is None else HistoryFile(history)
    watcher = Watcher(capture, file, on_row)
    try:
        with capture.installed():
            if file is not None or on_row is not None:
                capture.on_finish = watcher._collect
            yield watcher
    finally:
        watcher._collect(last=True)
        if file is not None:
            file.close()
