"""The notation with which claims are written, and the gate through which they reach the checker."""
