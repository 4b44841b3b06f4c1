"""One record per claim."""
