"""What the value really is."""
