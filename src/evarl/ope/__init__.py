"""Off-policy evaluation: values of a policy from trajectories that other policies logged.

>>> from evarl import ope
>>> "dr" in ope.estimators()
True
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
