"""Evaluation-aware reinforcement learning: policies that are good and can be evaluated accurately.

>>> import evarl
>>> evarl.make_world("navigation").horizon
50
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
