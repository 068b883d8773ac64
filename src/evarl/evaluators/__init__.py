"""Evaluators: what predicts a policy's values from the returns of a few assessment episodes."""
