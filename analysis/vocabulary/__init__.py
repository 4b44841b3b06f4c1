"""The words that every wing shares: quantities, laws, scales, and how numbers and text are read and written."""
