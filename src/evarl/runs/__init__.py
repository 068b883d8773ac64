"""Training with everything kept in a run directory: configuration, checkpoints, metrics, logs, policies."""
