"""Exact expectations of softmax over independent keys of any laws: sinks, biases, caps, cosines, needles, masks."""
