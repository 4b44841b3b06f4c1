"""Tensors that lie in files: headers checked, nothing unpickled, and which tensor is a query and which a key."""
