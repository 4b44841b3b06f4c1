"""What a proof rests on, and nothing else: no SymPy is imported here."""
