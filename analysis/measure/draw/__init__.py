"""One replicate: vectors drawn, sent through the attention core, read as a quantity."""
