"""A clip applied in place to a torch attention module, or to all of a watched model that need one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from analysis.audit.live.clip import Array, ClipFactors, clip_factors, split_factor

if TYPE_CHECKING:
    from analysis.audit.live.maxima import HeadMaximum
    from analysis.audit.live.projections import Projections, Rows


def apply_clip(module: Any, gamma: ArrayLike, *, num_heads: int | None = None) -> ClipFactors:
    """
    Multiply the scores of each head of an attention module with a factor, in place.

    Parameters
    ----------
    module : torch.nn.Module
        `nn.MultiheadAttention`, or a module with linear layers for queries and keys under the names of the common
        libraries (``q_proj`` and ``k_proj``, ``query`` and ``key``, …; grouped heads are seen by their widths), or with
        one for queries, keys and values in three blocks (``qkv``, ``c_attn``). Rotary embedding may follow.
    gamma : (num_heads,)
        The factors: those of `clip_factors`, or the ``clip_factor`` of a `Remedy`. Heads with 1 are not touched.
    num_heads : int, optional
        Where the module does not say it.

    Returns
    -------
    ClipFactors
        What was applied: to the rows of W_Q and W_K, their biases, and the learned key of ``add_bias_kv``.

    Raises
    ------
    ValueError
        With the reason, before anything is changed: factors that cannot be, projections of unknown names or sizes, one
        matrix for queries and keys, numbers that are no floats, a parameter of the module itself whose part in the
        scores is unknown (a learned temperature), or a norm of queries or keys behind the projections whose gain
        all heads share. Where the gain has a number for each head and component, it is multiplied instead.
    ImportError
        Without torch.

    Notes
    -----
    Queries, keys and outputs of the other heads keep every bit: a linear layer computes each of its outputs from its
    own row. Scores change by γ up to the rounding of the weights' type (in bfloat16, 2⁻⁸ for each weight). What a
    module does to q and k in its own code, such as a division by their norm, cannot be seen here: watch it again.
    """
    found, factors = _planned(module, gamma, num_heads)
    _apply(found, factors)
    return factors


def clip_model(model: Any, maxima: Iterable[HeadMaximum], target: float) -> dict[str, ClipFactors]:
    """
    Clip every head of a watched model whose largest signed score is beyond a target, in place.

    Parameters
    ----------
    model : torch.nn.Module
        The one that was watched.
    maxima : of HeadMaximum
        What `Watcher.take_maxima` gave; of several calls of one module the largest counts.
    target : float

    Returns
    -------
    dict
        By the name of each module that was changed, its factors as of `apply_clip`.

    Raises
    ------
    ValueError
        As `clip_factors` and `apply_clip` do, with the module's name, before anything is changed.

    Notes
    -----
    On the inputs that were measured, a module's target is met exactly (to rounding); a clip in an earlier layer changes
    the inputs of a later one.
    """
    _check_module(model, "model")
    largest: dict[str, dict[int, float]] = {}
    for each in maxima:
        heads = largest.setdefault(each.module, {})
        heads[each.head] = float(np.fmax(heads.get(each.head, np.nan), each.largest_signed_score))
    plans = {}
    for name, heads in largest.items():
        gamma = clip_factors([heads[head] for head in sorted(heads)], target).gamma
        if (gamma < 1).any():
            plans[name] = _named(model, name, gamma)
    for found, factors in plans.values():
        _apply(found, factors)
    return {name: factors for name, (_, factors) in plans.items()}


def _named(model: Any, name: str, gamma: Array) -> tuple[Projections, ClipFactors]:
    parts = dict(model.named_modules())
    if name not in parts and name != type(model).__name__:  # the model itself goes by its type
        raise ValueError(f"the model has no module {name!r}: maxima are those of the model that was watched")
    try:
        return _planned(parts.get(name, model), gamma, None)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _planned(module: Any, gamma: ArrayLike, num_heads: int | None) -> tuple[Projections, ClipFactors]:
    """Return where the factors go, and what they are; nothing is changed yet."""
    _check_module(module, "module")
    from analysis.audit.live.projections import projections

    found = projections(module, num_heads)
    if np.size(gamma) != found.num_heads:
        raise ValueError(f"gamma must have one factor for each of {found.num_heads} heads: got {np.size(gamma)}")
    return found, split_factor(gamma, found.num_key_value_heads)


def _check_module(module: Any, name: str) -> None:
    try:
        from torch import nn
    except ImportError:
        raise ImportError("a clip in place needs torch: pip install 'attnsym[torch]'") from None
    if not isinstance(module, nn.Module):
        raise ValueError(f"{name} must be a torch.nn.Module: got {type(module).__name__}")


def _apply(found: Projections, factors: ClipFactors) -> None:
    import torch

    with torch.no_grad():
        _multiply(found.query, factors.query, found.d_k)
        _multiply(found.key, factors.key, found.d_k)


def _multiply(sides: list[Rows], factors: Array, d_k: int) -> None:
    for rows in sides:
        for head, factor in enumerate(factors.tolist()):
            if factor != 1:
                start = rows.start + head * d_k
                rows.values[start : start + d_k].mul_(factor)
