"""From replicates to an estimate with its standard error."""
