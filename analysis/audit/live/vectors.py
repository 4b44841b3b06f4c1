"""What queries and keys tell beside their scores: norms, the bound, and the pair of the largest score."""

from __future__ import annotations

from typing import Any

import torch

from analysis.audit.live.sums import Sums


def vector_columns(query: Any, key: Any, scale: float, sums: Sums, padded: Any) -> dict[str, Any]:
    """Return what the vectors tell beside their scores: norms, the bound, and the pair of the largest score."""
    if not query.numel() or not key.numel():
        return no_vectors(query.shape[1], query.device)
    largest = _at_largest(query, key, sums.place)
    for name, values in largest.items():
        unknown = torch.nan if values.is_floating_point() else -1
        largest[name] = values.masked_fill(sums.rows == 0, unknown)
    return largest | norms_and_bound(query, key, scale, padded)


def norms_and_bound(query: Any, key: Any, scale: float, padded: Any) -> dict[str, Any]:
    """Return the rms norms of queries and keys, (heads,) each, and |scale|·max ‖q‖·max ‖k‖."""
    longest = [x.square().sum(-1).amax((0, 2)).sqrt() for x in (query, key)]
    return {
        "query_norm": _rms_norm(query, padded),
        "key_norm": _rms_norm(key, padded),
        "score_bound": abs(scale) * longest[0] * longest[1],
    }


def no_vectors(heads: int, device: Any) -> dict[str, Any]:
    """Return the columns of vectors that were not seen."""
    numbers = (
        "query_norm", "key_norm", "score_bound", "cosine_at_largest", "largest_channel_share", "query_norm_at_largest",
        "key_norm_at_largest",
    )  # fmt: skip
    places = ("largest_channel", "query_at_largest", "key_at_largest")
    unknown = {name: torch.full((heads,), torch.nan, device=device) for name in numbers}
    return unknown | {name: torch.full((heads,), -1, device=device) for name in places}


def _rms_norm(x: Any, padded: Any) -> Any:
    """Return per head the root mean square length of the vectors that are no padding."""
    squares = x.square().sum(-1)
    if padded is None:
        return squares.mean((0, 2)).sqrt()
    kept = (~padded).to(squares.dtype)
    return ((squares * kept[:, None, :]).sum((0, 2)) / kept.sum()).sqrt()


def _at_largest(query: Any, key: Any, place: Any) -> dict[str, Any]:
    heads = torch.arange(query.shape[1], device=query.device)
    q, k = query[place[:, 0], heads, place[:, 1]], key[place[:, 0], heads, place[:, 2]]
    products = (q * k).abs()
    share, channel = (products / products.sum(-1, keepdim=True)).max(dim=-1)
    return {
        "query_at_largest": place[:, 1],
        "key_at_largest": place[:, 2],
        "query_norm_at_largest": q.square().sum(-1).sqrt(),
        "key_norm_at_largest": k.square().sum(-1).sqrt(),
        "cosine_at_largest": torch.nn.functional.cosine_similarity(q, k, dim=-1),
        "largest_channel": channel,
        "largest_channel_share": share,
    }


def rounding_step(value: float, dtype: Any) -> float:
    """Return the distance from |value| to the next larger number of a torch type; infinite beyond its range."""
    if value != value:
        return value
    information = torch.finfo(dtype)
    size = max(abs(value), information.tiny)
    if size > information.max:
        return float("inf")
    exponent = int(torch.frexp(torch.tensor(size, dtype=torch.float64)).exponent)
    return float(information.eps * 2.0 ** (exponent - 1))
