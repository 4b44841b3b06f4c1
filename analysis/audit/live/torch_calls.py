"""Hooks that see a torch model's attention calls without changing a bit of its output."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from analysis.audit.live.fused import fused_statistics
from analysis.audit.live.history import WatchRow
from analysis.audit.live.maxima import Maxima
from analysis.audit.live.record import Record, Unreadable, check_readable, four_axes, mask_axes, product_type
from analysis.audit.live.shadow import FUSED, attention_arguments, layer_arguments, run_again
from analysis.audit.live.softmaxes import Product, Softmaxes
from analysis.audit.live.statistics import (
    Call,
    Pair,
    head_statistics,
    matrix_statistics,
)

_SDPA = functional.scaled_dot_product_attention
_ATEN_SDPA = {torch.ops.aten.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default}
_watching: list[Capture] = []


class Capture:
    """The state of a watched model: which module runs, what was captured in this step, what could not be seen."""

    def __init__(self, model: nn.Module, every: int, *, every_score: bool = True) -> None:
        """Remember the model's module names."""
        self.model, self.every, self.every_score = model, every, every_score
        self.names = {id(module): name or type(module).__name__ for name, module in model.named_modules()}
        self.step, self.depth, self.busy, self.gradients = -1, 0, False, False
        self.entrances = {id(model)}
        self.stack: list[tuple[int, Any]] = []
        self.records: list[Record] = []
        self.hooks: list[Any] = []
        self.calls: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self.finished: list[Record] = []
        self.softmaxes = Softmaxes(self._eager)
        self.maxima = Maxima()
        self.on_finish: Callable[[], None] | None = None
        self.on_pass: Callable[[list[WatchRow]], None] | None = None
        self._pass: contextlib.ExitStack | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Hook the model's own calls; all else is installed for the watched passes alone."""
        if _watching:
            raise ValueError("a model is watched already: only one watch at a time")
        with contextlib.ExitStack() as stack:
            _watching.append(self)
            stack.callback(_watching.clear)
            if self.every == 1:
                stack.enter_context(_eager_stance())
            if isinstance(self.model, FUSED):  # a hook of their own takes their fused path away, a global one does not
                _global_hooks(stack, self._begin, self._end)
            else:
                for entrance in (self.model, *_compiled(self.model)):
                    self.entrances.add(id(entrance))
                    stack.callback(entrance.register_forward_pre_hook(self._begin, prepend=True).remove)
                    stack.callback(entrance.register_forward_hook(self._end, with_kwargs=True, always_call=True).remove)
            if self.model._compiled_call_impl is not None:
                stack.callback(setattr, self.model, "_compiled_call_impl", self.model._compiled_call_impl)
                self.model._compiled_call_impl = self._around(self.model._compiled_call_impl)
            stack.callback(self._close)
            yield

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a compiled call with a pass about it, so that nothing of ours stands within compiled code."""

        def inside(*args: Any, **kwargs: Any) -> Any:
            self._begin(self.model, args)
            try:
                return call(*args, **kwargs)
            finally:
                self._end(self.model, args)

        return inside

    def begin_pass(self) -> None:
        """Open a pass that goes around the model's own call; calls of the model inside belong to it."""
        self._begin(self.model, ())

    def end_pass(self) -> None:
        """Close what `begin_pass` opened."""
        self._end(self.model, (), {}, None)

    def _begin(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or id(module) not in self.entrances:
            return  # within compiled code a pass has begun outside it
        if torch.jit.is_tracing() or _is_proxied():
            self.reasons[self.names[id(self.model)]] = "it was traced, not run"
            return
        self.depth += 1
        if self.depth > 1:
            return
        self.step += 1
        self._finish()
        if self.step % self.every == 0:
            self.gradients = torch.is_grad_enabled()
            self._pass = contextlib.ExitStack()
            self._pass.enter_context(self._seeing())
            self._enter(module, args)

    def _end(self, module: nn.Module, args: Any, *rest: Any) -> None:
        if torch.compiler.is_compiling() or id(module) not in self.entrances or not self.depth:
            return
        self.depth -= 1
        if not self.depth:
            if isinstance(module, FUSED):  # of two global hooks the older one, this, comes first
                self._leave(module, args, *rest)
            watched = self.active
            self._close()
            if watched and self.on_pass is not None:
                self.on_pass(self._rows(self.records))

    def _close(self) -> None:
        self.depth = 0
        if self._pass is not None:
            opened, self._pass = self._pass, None
            opened.close()

    @contextlib.contextmanager
    def _seeing(self) -> Iterator[None]:
        """Install all hooks for one pass, and take them out again whatever happens."""
        with contextlib.ExitStack() as stack:
            _global_hooks(stack, self._enter, self._leave)
            present = functional.scaled_dot_product_attention
            functional.scaled_dot_product_attention = self._attention
            stack.callback(setattr, functional, "scaled_dot_product_attention", present)
            stack.enter_context(_eager_stance())
            stack.enter_context(_Mode(self))
            stack.callback(self._unwind, None)
            stack.callback(self.softmaxes.forget)
            yield

    @property
    def active(self) -> bool:
        """Whether a watched pass runs."""
        return self._pass is not None

    def _enter(self, module: nn.Module, args: Any) -> None:
        guard = None
        if isinstance(module, FUSED):
            guard = torch._C.DisableTorchFunction()
            guard.__enter__()
        self.stack.append((id(module), guard))

    def _leave(self, module: nn.Module, args: Any, *rest: Any) -> None:
        if not self.active:
            return
        # (kwargs, output), but after an exception torch passes the output, None, alone
        kwargs, output = rest if len(rest) == 2 else ({}, None)
        if id(module) in self.names and output is not None and not torch.compiler.is_compiling():
            if isinstance(module, nn.MultiheadAttention):
                self._shadow(self.names[id(module)], module, lambda: attention_arguments(args, kwargs))
            elif isinstance(module, nn.TransformerEncoderLayer):
                where = self.names.get(id(module.self_attn), self.names[id(module)] + ".self_attn")
                self._shadow(where, module.self_attn, lambda: layer_arguments(module, args, kwargs))
        self._unwind(module)

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
        finished, self.finished = self.finished, []
        return self._rows(finished)

    def _rows(self, records: list[Record]) -> list[WatchRow]:
        rows: list[WatchRow] = []
        for record in records:
            with self.told(record.module):
                rows += record.rows()
        return rows

    @property
    def where(self) -> str:
        """The name of the innermost running module of the model."""
        return next((self.names[m] for m, _ in reversed(self.stack) if m in self.names), "?")

    @contextlib.contextmanager
    def told(self, where: str) -> Iterator[None]:
        """Keep our own work out of our sight; what goes wrong is noted and never raised into the model."""
        was, self.busy = self.busy, True
        try:
            yield
        except Unreadable as error:
            self.reasons[where] = str(error)
        except Exception as error:  # the model's run matters more than our numbers
            self.reasons[where] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        finally:
            self.busy = was

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
        value: Any = None,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        """Take the statistics of one call."""
        with self.told(where):
            check_readable(query)
            check_readable(key)
            dtype = product_type(query)
            factor = query.shape[-1] ** -0.5 if scale is None else float(scale)
            with torch.no_grad(), torch._C.DisableTorchFunction(), _no_autocast(query):
                q, k = four_axes(query).to(dtype), four_axes(key).to(dtype)
                if q.shape[1] != k.shape[1]:
                    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
                mask = None if attn_mask is None else mask_axes(attn_mask, query)
                statistics = self._statistics(where, Call(q, k, mask, is_causal, factor))
            self._keep(where, "fused", q, k.shape[2], factor, dtype, statistics, {"query": query, "key": key})

    def _statistics(self, where: str, call: Call) -> dict[str, Any]:
        """Read every score, or only what the fused kernel gives, where that can be."""
        fused = None
        if not self.every_score:
            try:
                fused = fused_statistics(call)
                reason = "a mask or sizes of another kind"
            except Unreadable as error:
                reason = str(error)
            if fused is None:
                self.notes[where] = f"every score was computed, since the fused kernel could not be asked ({reason})"
        return head_statistics(call) if fused is None else fused

    def _eager(self, scores: Any, n_keys: int, product: Product | None) -> None:
        """Take the statistics of scores that a softmax took."""
        where = self.where
        with self.told(where):
            check_readable(scores)
            with torch.no_grad(), torch._C.DisableTorchFunction(), _no_autocast(scores):
                four = four_axes(scores)
                pair = None if product is None else Pair(four_axes(product.query), four_axes(product.key))
                statistics = matrix_statistics(four, n_keys, pair)
            vectors = {} if product is None else {"query": product.query, "key": product.key}
            dtype = scores.dtype if product is None else product.dtype
            self._keep(where, "eager", four, n_keys, float("nan"), dtype, statistics, vectors)

    def _keep(
        self, where: str, source: str, shaped: Any, n_keys: int, scale: float, dtype: Any, statistics: Any, vectors: Any
    ) -> None:
        d_k = vectors["query"].shape[-1] if vectors else 0
        n_queries = shaped.shape[-2]
        record = Record(self.step, where, self.calls[where], source, d_k, n_queries, n_keys, scale, dtype, statistics)
        self.maxima.add((where, record.call), statistics)
        self.calls[where] += 1
        self.records.append(record)
        if torch.is_grad_enabled():
            self.hooks += record.watch_gradients(vectors)
        elif self.gradients:
            self.notes[where] = (
                "ran without gradient inside a pass that has one, as reentrant checkpointing does: no gradient norms"
            )

    def _shadow(self, where: str, module: nn.MultiheadAttention, given: Callable[[], dict[str, Any]]) -> None:
        """Run a MultiheadAttention again through SDPA where it took a path on which nothing was seen."""
        if self.calls[where]:
            return
        shadow, gradients = _Shadow(self, where), self.gradients
        try:
            self.gradients = False
            run_again(module, given(), shadow)
        except Exception as error:  # the model's run matters more than our numbers
            self.reasons[where] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        finally:
            self.gradients = gradients


class _Shadow:
    """Records a shadow call and returns anything of the right shape."""

    def __init__(self, capture: Capture, where: str) -> None:
        self.capture, self.where = capture, where

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.capture.record(self.where, *args, **kwargs)
        return _SDPA(*args, **kwargs)


class _Mode(TorchFunctionMode):  # type: ignore[misc]  # torch is optional, and Any where it is missing
    """Sees SDPA called under another name (imported before, or through aten), and softmaxes that make attention."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self.capture = capture

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        capture, options = self.capture, kwargs or {}
        if capture.busy or not capture.active:
            return function(*args, **options)
        if function is _SDPA or function in _ATEN_SDPA:
            capture.record(capture.where, *args, **options)
        elif "attention" in (name := str(getattr(function, "__name__", ""))) and not hasattr(torch.Tensor, name):
            capture.reasons.setdefault(capture.where, f"{name} keeps its scores to itself")
        result = function(*args, **options)
        if not capture.busy:
            with capture.told(capture.where), torch._C.DisableTorchFunction():
                capture.softmaxes.see(function, args, options, result)
        return result


def _global_hooks(stack: contextlib.ExitStack, before: Callable[..., None], after: Callable[..., None]) -> None:
    """Hook every module's forward until the stack is closed."""
    hooks = nn.modules.module
    stack.callback(hooks.register_module_forward_pre_hook(before).remove)
    handle = hooks.register_module_forward_hook(after, with_kwargs=True, always_call=True)
    stack.callback(
        hooks._global_forward_hooks_with_kwargs.pop, handle.id, None
    )  # `remove` forgets it, as of torch 2.13
    stack.callback(handle.remove)


def _eager_stance() -> Any:
    """Return a context in which compiled code runs eagerly, so that it can be seen."""
    if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
        return torch.compiler.set_stance("force_eager")
    return contextlib.nullcontext()


def _compiled(model: nn.Module) -> list[nn.Module]:
    """Return what `torch.compile(model)` has returned so far: it is called instead of the model."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None:
        return []
    kind = dynamo.OptimizedModule
    return [each for each in gc.get_objects() if type(each) is kind and each._modules.get("_orig_mod") is model]


def _is_proxied() -> bool:
    """Tell whether make_fx records the operations of this pass."""
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    return proxies is not None and proxies.get_proxy_mode() is not None


def _no_autocast(tensor: Any) -> Any:
    return torch.autocast(device_type=tensor.device.type, enabled=False)
