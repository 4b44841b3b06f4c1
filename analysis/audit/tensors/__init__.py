"""The scores of a user's own tensors, head by head: size, cause, verdict, remedy."""
