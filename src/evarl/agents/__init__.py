"""What acts and learns."""
