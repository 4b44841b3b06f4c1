"""Where the wings meet: a claim is derived, predicted and measured, and the three confront each other."""
