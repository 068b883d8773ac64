"""Certificates: tests of claims about a run's policies, fixed before the first rollout and kept with the run.

The statistics are in `evarl.bounds`, which works on plain arrays; here they are applied to worlds, policies and files.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
