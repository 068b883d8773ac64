"""Files: written atomically, checked when they are read, never executed."""
