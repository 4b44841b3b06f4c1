"""What is there: `tensors` of a run, an attention function (`functions`), a `live` torch model, `files` on disk."""
