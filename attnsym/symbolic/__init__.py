"""Derivations of the moments of attention scores, decided by machine."""
