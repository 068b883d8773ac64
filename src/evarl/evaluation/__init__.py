"""How right predictions are: evaluators, critics, controls and off-policy estimates against the truth."""
