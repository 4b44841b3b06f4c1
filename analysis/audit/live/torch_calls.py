"""Hooks that see a torch model's attention calls without changing a bit of its output."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from analysis.audit.live.history import WatchRow
from analysis.audit.live.record import Record, four_axes, gradient_hook, mask_axes
from analysis.audit.live.statistics import Call, head_statistics

_SDPA = functional.scaled_dot_product_attention
_SOFTMAX = {torch.softmax, functional.softmax, torch.Tensor.softmax}
# these ask whether a torch function mode is active, and then leave their fused path: other bits, so ours is off inside
_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


class Capture:
    """The state of a watched model: which module runs, what was captured in this step, what could not be seen."""

    def __init__(self, model: nn.Module, every: int) -> None:
        """Remember the model's module names."""
        self.model, self.every = model, every
        self.names = {id(module): name or type(module).__name__ for name, module in model.named_modules()}
        self.step, self.active, self.busy = -1, False, False
        self.stack: list[tuple[int, Any]] = []
        self.records: list[Record] = []
        self.hooks: list[Any] = []
        self.calls: Counter[str] = Counter()
        self.softmax_in: set[str] = set()
        self.reasons: dict[str, str] = {}
        self.finished: list[Record] = []
        self.on_finish: Callable[[], None] | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Install all hooks, and take them out again whatever happens."""
        if functional.scaled_dot_product_attention is not _SDPA:
            raise ValueError("scaled_dot_product_attention is replaced already: only one watch at a time")
        with contextlib.ExitStack() as stack:
            before = nn.modules.module.register_module_forward_pre_hook(self._enter)
            stack.callback(before.remove)
            after = nn.modules.module.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)
            stack.callback(after.remove)
            functional.scaled_dot_product_attention = self._attention
            stack.callback(setattr, functional, "scaled_dot_product_attention", _SDPA)
            if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(_Mode(self))
            stack.callback(self._unwind, None)
            yield

    def _enter(self, module: nn.Module, args: Any) -> None:
        if module is self.model:
            self.step += 1
            self.active = self.step % self.every == 0
            self._finish()
        guard = None
        if isinstance(module, _FUSED):
            guard = torch._C.DisableTorchFunction()
            guard.__enter__()
        self.stack.append((id(module), guard))

    def _leave(self, module: nn.Module, args: Any, *rest: Any) -> None:
        # (kwargs, output), but after an exception torch passes the output, None, alone
        kwargs, output = rest if len(rest) == 2 else ({}, None)
        if self.active and id(module) in self.names and output is not None:
            if isinstance(module, nn.MultiheadAttention):
                self._shadow(self.names[id(module)], module, args, kwargs)
            elif isinstance(module, nn.TransformerEncoderLayer):
                self._shadow_layer(module, args, kwargs)
        self._unwind(module)
        if module is self.model:
            self.active = False

    def _unwind(self, module: nn.Module | None) -> None:
        """Leave modules down to this one, in order, and lift their guards; None leaves all."""
        while self.stack:
            entered, guard = self.stack.pop()
            if guard is not None:
                guard.__exit__(None, None, None)
            if module is not None and entered == id(module):
                break

    def _finish(self) -> None:
        """Close the records of the step before: their backward pass is over."""
        self.finished += self.records
        self.records, self.calls = [], Counter()
        for hook in self.hooks:  # on a parameter they would pile up from step to step
            hook.remove()
        self.hooks = []
        if self.on_finish is not None and self.finished:
            self.on_finish()

    def take(self, *, last: bool = False) -> list[WatchRow]:
        """Return the rows of finished steps, and forget them."""
        if last:
            self._finish()
        rows = [row for record in self.finished for row in record.rows()]
        self.finished = []
        return rows

    @property
    def where(self) -> str:
        """The name of the innermost running module of the model."""
        return next((self.names[m] for m, _ in reversed(self.stack) if m in self.names), "?")

    def _attention(self, *args: Any, **kwargs: Any) -> Any:
        """Stand in for F.scaled_dot_product_attention; the call itself goes through untouched."""
        if self.active and not self.busy:
            self.record(self.where, *args, **kwargs)
        was, self.busy = self.busy, True
        try:
            return _SDPA(*args, **kwargs)
        finally:
            self.busy = was

    def record(
        self,
        where: str,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        """Take the statistics of one call; whatever cannot be read is noted and never raises into the model."""
        was, self.busy = self.busy, True
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction(), _no_autocast(query):
                self._record(where, query, key, attn_mask, is_causal, scale)
        except Exception as error:  # the model's run matters more than our numbers
            self.reasons[where] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        finally:
            self.busy = was

    def _record(self, where: str, query: Any, key: Any, mask: Any, is_causal: bool, scale: float | None) -> None:
        if query.is_nested or key.is_nested:
            self.reasons[where] = "nested tensors"
            return
        d_k = query.shape[-1]
        factor = d_k**-0.5 if scale is None else float(scale)
        q, k = four_axes(query), four_axes(key)
        if q.shape[1] != k.shape[1]:
            k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        mask = None if mask is None else mask_axes(mask, query)
        statistics = head_statistics(Call(q, k, mask, is_causal, factor))
        record = Record(self.step, where, self.calls[where], q, k.shape[2], factor, statistics)
        self.calls[where] += 1
        self.records.append(record)
        for name, tensor in (("query", query), ("key", key)):
            if tensor.requires_grad:
                self.hooks.append(tensor.register_hook(gradient_hook(record.gradients, name, q.shape[1])))
        record.query = torch.empty(q.shape, dtype=q.dtype, device="meta")  # its sizes and type only

    def _shadow(self, where: str, module: nn.MultiheadAttention, args: Any, kwargs: Any) -> None:
        """Run a MultiheadAttention again through SDPA where it took a path on which nothing was seen."""
        if self.calls[where]:
            return
        names = (
            "query",
            "key",
            "value",
            "key_padding_mask",
            "need_weights",
            "attn_mask",
            "average_attn_weights",
            "is_causal",
        )
        given = dict(zip(names, args, strict=False)) | kwargs
        given |= {"need_weights": False}
        self._run_shadow(where, module, given)

    def _shadow_layer(self, layer: nn.TransformerEncoderLayer, args: Any, kwargs: Any) -> None:
        where = self.names.get(id(layer.self_attn), self.names[id(layer)] + ".self_attn")
        if self.calls[where]:
            return
        given = dict(zip(("src", "src_mask", "src_key_padding_mask", "is_causal"), args, strict=False)) | kwargs
        x, padding = given["src"], given.get("src_key_padding_mask")
        with torch.no_grad(), torch._C.DisableTorchFunction():
            if x.is_nested:
                lengths = torch.tensor([len(item) for item in x.unbind()], device=x.device)
                x = x.to_padded_tensor(0.0)
                padding = torch.arange(x.shape[1], device=x.device)[None, :] >= lengths[:, None]
            x = layer.norm1(x) if layer.norm_first else x
        call = {"query": x, "key": x, "value": x, "attn_mask": given.get("src_mask"), "key_padding_mask": padding}
        call |= {
            "need_weights": False,
            "is_causal": given.get("is_causal", False) and given.get("src_mask") is not None,
        }
        self._run_shadow(where, layer.self_attn, call)

    def _run_shadow(self, where: str, module: nn.MultiheadAttention, given: dict[str, Any]) -> None:
        shadow, fast, training = _Shadow(self, where), torch.backends.mha.get_fastpath_enabled(), module.training
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            module.training = False  # no dropout: the model's random numbers stay as they are
            functional.scaled_dot_product_attention = shadow
            with torch.no_grad():
                module.forward(**given)
        except Exception as error:  # the model's run matters more than our numbers
            self.reasons[where] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        finally:
            functional.scaled_dot_product_attention = self._attention
            torch.backends.mha.set_fastpath_enabled(fast)
            module.training = training


class _Shadow:
    """Records a shadow call and returns anything of the right shape."""

    def __init__(self, capture: Capture, where: str) -> None:
        self.capture, self.where = capture, where

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.capture.record(self.where, *args, **kwargs)
        return _SDPA(*args, **kwargs)


class _Mode(TorchFunctionMode):  # type: ignore[misc]  # torch is optional, and Any where it is missing
    """Sees SDPA called under another name (imported before), and softmax in models that build attention by hand."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self.capture = capture

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        capture, options = self.capture, kwargs or {}
        if capture.active and not capture.busy:
            if function is _SDPA:
                capture.record(capture.where, *args, **options)
            elif function in _SOFTMAX and getattr(args[0] if args else None, "ndim", 0) >= 3:
                capture.softmax_in.add(capture.where)
        return function(*args, **options)


def _no_autocast(tensor: Any) -> Any:
    return torch.autocast(device_type=tensor.device.type, enabled=False)
