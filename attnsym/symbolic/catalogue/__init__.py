"""The derivations, one function each."""
