"""The probes: each asks one question of the function."""
