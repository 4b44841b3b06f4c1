"""Statistics of an attention call at the memory of the fused kernel: without n² scores, and without what needs them."""

from __future__ import annotations

from typing import Any

import torch

from analysis.audit.live.record import Unreadable
from analysis.audit.live.statistics import Call
from analysis.audit.live.sums import Sums
from analysis.audit.live.vectors import no_vectors, norms_and_bound
from analysis.vocabulary.row_formulas import HIDDEN_BIAS

CHUNK = 128
CHECKED = 2
AGREEMENT = 64  # units of last place of the bound on scores: a kernel that means something else is off by far more


def fused_statistics(call: Call) -> dict[str, Any] | None:
    """
    Return what `head_statistics` does, from one more fused call; None for a mask that differs from query to query.

    Notes
    -----
    With o = Σ p k, the output of the call with the keys as values, entropy is log Σ exp(s) − scale·q·o. The keys are
    taken about their mean first: softmax sees no constant added to a row, and the difference then cancels less. Its
    error is a few units of last place of ‖scale·q‖·max ‖k‖. Variances within rows come from the second moments of the
    keys, (d, d), summed up chunk by chunk for causal rows; the first key's weight is exp(s − log Σ exp). The largest
    score and dead rows need every score, and are NaN; the bound is there.

    Raises
    ------
    Unreadable
        Where the last rows, computed directly, disagree.
    """
    wide = torch.float64 if call.query.dtype == torch.float64 else torch.float32
    query, key = call.query.detach().to(wide), call.key.detach().to(wide)
    batch, heads, n_queries, _ = query.shape
    n_keys = key.shape[2]
    visible = _visible_keys(call, batch, n_keys)
    if visible is None or not query.numel() or not key.numel() or (call.is_causal and n_queries != n_keys):
        return None
    hidden = ~visible[:, None, :, None]  # what is hidden may be NaN, which no product with 0 removes
    mean = key.masked_fill(hidden, 0.0).sum(2, keepdim=True) / (~hidden).sum(2, keepdim=True).clamp(min=1)
    centred = (key - mean).masked_fill(hidden, 0.0)
    scaled = query * call.scale
    output, lse = _fused(scaled, centred, visible, is_causal=call.is_causal)
    entropy = (lse - (scaled * output).sum(-1)).clamp(min=0)
    _check(scaled, centred, visible, entropy, is_causal=call.is_causal)
    count, variance = _moments(scaled, centred, visible, is_causal=call.is_causal)
    used = (count >= 2) & entropy.isfinite() & variance.isfinite()
    padded = ~visible if n_queries == n_keys else None
    used = used if padded is None else used & visible[:, None, :]
    sums = Sums(heads, n_keys, wide, query.device)
    first = ((scaled @ centred[:, :, :1].mT)[..., 0] - lse).exp() * visible[:, None, :1]
    unknown = torch.full_like(lse, torch.nan)
    sums.add_rows(count, used, {
        "within_row_variance": variance,
        "unbiased_variance": variance * count / (count - 1).clamp(min=1),
        "entropy_ratio": entropy / count.clamp(min=2).log(),
        "dead_row_fraction": unknown,
        "first_key_share": first,
        "sink_share": unknown,
        "logsumexp": lse + (scaled @ mean.mT)[..., 0],
    })  # fmt: skip
    result = sums.result(batch * n_queries) | no_vectors(heads, query.device)
    result["largest_signed_score"] = result["largest_score"]  # neither was seen
    return result | norms_and_bound(query, key, call.scale, padded)


def _visible_keys(call: Call, batch: int, n_keys: int) -> Any:
    """Return (batch, n_keys): the keys that every query of an item may see, or None for any other mask."""
    if call.mask is None:
        return torch.ones((batch, n_keys), dtype=torch.bool, device=call.query.device)
    mask = call.mask.detach()
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.shape[2] != 1 or not bool((mask == mask[:, :1]).all()):
        return None
    seen = mask if mask.dtype == torch.bool else mask > HIDDEN_BIAS
    if mask.dtype != torch.bool and bool((mask.masked_fill(~seen, 0.0) != 0).any()):
        return None  # a bias on what is visible
    return seen[:, 0, 0].expand(batch, n_keys)


def _fused(query: Any, key: Any, visible: Any, *, is_causal: bool) -> tuple[Any, Any]:
    """Return Σ p k and log Σ exp(s) of every row, by the kernel of the device."""
    bias = None
    if not bool(visible.all()):
        bias = torch.zeros(visible.shape, dtype=query.dtype, device=query.device).masked_fill(~visible, -torch.inf)
        bias = bias[:, None, None, :]
    aten = torch.ops.aten
    if query.device.type == "cpu":
        found = aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, key, 0.0, is_causal, attn_mask=bias, scale=1.0
        )
        return found[0], found[1]
    if query.device.type == "cuda" and query.dtype == torch.float32:
        if bias is not None:
            bias = bias.expand(*query.shape[:3], key.shape[2])
        found = aten._scaled_dot_product_efficient_attention(query, key, key, bias, True, 0.0, is_causal, scale=1.0)
        return found[0], found[1][..., : query.shape[2]]  # padded to a multiple of 32
    raise Unreadable(f"no kernel gives the log-sum-exp of {query.dtype} on {query.device.type}")


def _check(query: Any, key: Any, visible: Any, entropy: Any, *, is_causal: bool) -> None:
    """Compare the last rows with their scores."""
    scores = query[:, :, -CHECKED:] @ key.mT
    rows = torch.arange(query.shape[2], device=query.device)[-CHECKED:, None]
    seen = visible[:, None, None, :].expand_as(scores)
    if is_causal:
        seen = seen & (torch.arange(key.shape[2], device=query.device) <= rows)
    scores = scores.masked_fill(~seen, -torch.inf)
    direct = torch.special.entr(scores.softmax(-1)).sum(-1)
    bound = query[:, :, -CHECKED:].norm(dim=-1) * key.norm(dim=-1).amax(-1, keepdim=True)
    off = (direct - entropy[:, :, -CHECKED:]).abs() / (1 + bound)
    if bool((off > AGREEMENT * torch.finfo(query.dtype).eps).any()):  # NaN, as of a row that sees nothing, is no error
        raise Unreadable("the fused kernel's entropy disagrees with the scores of the last rows")


def _moments(query: Any, key: Any, visible: Any, *, is_causal: bool) -> tuple[Any, Any]:
    """Return how many keys each row sees, and the variance of its scores; keys that are hidden are zero."""
    shown = visible[:, None, :].to(query.dtype)
    if not is_causal:
        count = shown.sum(-1, keepdim=True).expand(query.shape[:3])
        total = (query @ key.sum(2)[..., None])[..., 0]
        square = ((query @ (key.mT @ key)) * query).sum(-1)
        return count, _variance(count, total, square)
    parts = []
    gram, summed = torch.zeros_like(key[:, :, :1].mT @ key[:, :, :1]), torch.zeros_like(key[:, :, 0])
    for start in range(0, query.shape[2], CHUNK):
        q, k = query[:, :, start : start + CHUNK], key[:, :, start : start + CHUNK]
        scores = (q @ k.mT).tril()
        total = scores.sum(-1) + (q @ summed[..., None])[..., 0]
        parts.append((total, scores.square().sum(-1) + ((q @ gram) * q).sum(-1)))
        gram, summed = gram + k.mT @ k, summed + k.sum(2)
    total, square = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
    count = shown.cumsum(-1).expand(query.shape[:3])
    return count, _variance(count, total, square)


def _variance(count: Any, total: Any, square: Any) -> Any:
    m = count.clamp(min=1)
    return (square / m - (total / m).square()).clamp(min=0)
