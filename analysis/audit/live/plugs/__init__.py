"""Where a watched run plugs in: trackers of metrics and training loops. No library is imported before it is used."""
