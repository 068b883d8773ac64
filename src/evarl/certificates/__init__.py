"""Certificates: tests of claims about a run's policies, fixed before the first rollout and kept with the run.

The statistics are in `evarl.bounds`, which works on plain arrays; here they meet worlds, policies and files.
"""
