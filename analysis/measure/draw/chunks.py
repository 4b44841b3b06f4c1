"""How replicates are cut: chunks that are drawn at once, shards that are stored and sent."""

from __future__ import annotations

from collections.abc import Iterator

MAX_CHUNK = 1 << 13


def chunk_size(elements: int, budget: int, least: int = 1) -> int:
    """Return the replicates of a chunk that holds about `budget` random numbers, `elements` per replicate."""
    return max(least, min(budget // elements, MAX_CHUNK))


def sizes(total: int, most: int) -> Iterator[int]:
    """Yield the sizes of the parts into which `total` is cut; only the last may be short."""
    for done in range(0, total, most):
        yield min(most, total - done)
