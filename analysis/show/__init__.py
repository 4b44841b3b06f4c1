"""Pictures, tables and the report; nothing is computed here."""
