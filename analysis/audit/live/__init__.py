"""A live torch model, watched call by call."""
