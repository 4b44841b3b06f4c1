"""A user's own attention function, probed from outside."""
