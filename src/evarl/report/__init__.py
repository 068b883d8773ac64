"""What a run is worth: its policies examined, measured against the truth, and drawn."""
