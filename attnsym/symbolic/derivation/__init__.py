"""A derivation: its steps, the rules that propose them, and the check of every line."""
