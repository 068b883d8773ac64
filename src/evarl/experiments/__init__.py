"""Studies that are made by one command each."""
