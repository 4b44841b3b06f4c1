"""Counterexamples: finite laws, and exact evaluation on them."""
