"""How things are kept on disk: written at once or not at all, checked when read, never executed."""
