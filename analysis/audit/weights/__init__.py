"""What a model's weights alone say of its scores, head by head."""
