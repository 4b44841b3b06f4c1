"""Attention by hand: a softmax whose weights are multiplied by values, and the product that made its scores."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from analysis.audit.live.record import Unreadable

_SOFTMAX = {torch.softmax, functional.softmax, torch.Tensor.softmax}
_PRODUCT = {
    torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.Tensor.bmm, torch.baddbmm,
    torch.Tensor.baddbmm, torch.einsum, torch.functional.einsum,
}  # fmt: skip
_CUT = {torch.Tensor.__getitem__, torch.narrow, torch.Tensor.narrow}


@dataclass(frozen=True)
class Product:
    """A product q kᵀ as it was seen: query (…, n_queries, d), key (…, n_keys, d), shape and type of the result."""

    query: Any
    key: Any
    shape: Any
    dtype: Any


@dataclass
class _Softmax:
    """A softmax over scores that may turn out to be attention."""

    scores: Any
    version: int
    product: Product | None
    told: bool = False


class Softmaxes:
    """
    Follows weights from a softmax to the product with values, and reports the scores then.

    Weights keep their mark through whatever returns as many numbers (dropout, a change of type or shape) and through a
    cut of columns (a sink that is dropped). Other softmaxes, of a router or over a vocabulary, meet no such product.
    """

    def __init__(self, report: Callable[[Any, int, Product | None], None]) -> None:
        """`report` gets the scores, the number of keys that have a value, and the product, when attention is sure."""
        self._report = report
        self._marked: dict[int, tuple[Any, _Softmax]] = {}
        self._product: Product | None = None
        self.unfollowed = 0

    def forget(self) -> None:
        """Let go of everything that was seen."""
        self._marked, self._product = {}, None

    def see(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Take note of one call that has returned."""
        if function in _SOFTMAX:
            self._open(args, kwargs, result)
        elif function in _PRODUCT:
            self._multiplied(function, [x for x in args if isinstance(x, torch.Tensor)], result)
        elif self._marked and args and isinstance(result, torch.Tensor):
            known = self._find(args[0])
            if known is not None and (result.numel() == args[0].numel() or function in _CUT):
                self._mark(result, known)

    def _open(self, args: Any, kwargs: Any, result: Any) -> None:
        scores = args[0] if args else kwargs.get("input")
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if scores.dim() < 3 or axis not in (-1, scores.dim() - 1) or not scores.is_floating_point():
            return
        self.unfollowed += 1
        held = scores.detach()
        self._mark(result, _Softmax(held, _version(held), self._product))

    def _multiplied(self, function: Any, tensors: list[Any], result: Any) -> None:
        for weights in tensors:
            known = self._find(weights)
            if known is not None and not known.told and self._fits(known, weights, tensors):
                known.told = True
                self.unfollowed -= 1
                if _version(known.scores) != known.version:
                    raise Unreadable("its scores were changed in place after the softmax")
                self._report(known.scores, weights.shape[-1], self._match(known))
                return
        pair = tensors[-2:]
        if len(pair) == 2 and min(x.dim() for x in pair) >= 3 and "einsum" not in getattr(function, "__name__", ""):
            self._product = Product(pair[0], pair[1].detach().mT, result.shape, result.dtype)

    @staticmethod
    def _fits(known: _Softmax, weights: Any, tensors: list[Any]) -> bool:
        """Tell whether the other factor has a value for every key."""
        values = next((x for x in tensors if x is not weights), None)
        rows = weights.numel() * known.scores.shape[-1] == known.scores.numel() * weights.shape[-1]
        return values is not None and rows and weights.shape[-1] in values.shape[-2:] + values.shape[:-2]

    @staticmethod
    def _match(known: _Softmax) -> Product | None:
        product = known.product
        same = product is not None and product.shape[:-1].numel() == known.scores.shape[:-1].numel()
        return product if same and product is not None and product.shape[-1] <= known.scores.shape[-1] else None

    def _mark(self, tensor: Any, known: _Softmax) -> None:
        place = id(tensor)
        reference = weakref.ref(tensor, lambda _: self._marked.pop(place, None))
        self._marked[place] = reference, known

    def _find(self, tensor: Any) -> _Softmax | None:
        reference, known = self._marked.get(id(tensor), (None, None))
        return known if reference is not None and reference() is tensor else None


def _version(tensor: Any) -> int:
    """Return how often a tensor was changed in place; inference tensors do not count it."""
    return 0 if tensor.is_inference() else int(tensor._version)
