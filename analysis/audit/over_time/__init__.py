"""Audits side by side: what changed from one to the other, head by head, and over the steps of a run."""
