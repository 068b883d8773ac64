"""The driver's test."""
