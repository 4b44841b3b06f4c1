"""Audit of tensors (`tensors`), of an attention function (`callables`) and of a live torch model (`capture`)."""
