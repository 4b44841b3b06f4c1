"""Audit tensors, callables and live models."""
