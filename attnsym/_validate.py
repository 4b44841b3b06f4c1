"""Shape and domain checks: the one place that words the errors of the attention functions."""
