"""Tests of how things are kept on disk."""
