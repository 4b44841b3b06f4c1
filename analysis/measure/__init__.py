"""What is drawn: studies of random attention, from the settings to rows with error bars."""
