"""What the audit knows of each fault and variant, by the room of the function where it sits."""
