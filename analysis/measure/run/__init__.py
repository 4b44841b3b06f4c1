"""Replicates by the million: shards, their seeds, the store and the workers."""
